#include "quanta/ops/conv/cuda_float.h"

#include "quanta/ops/cuda/library.h"
#include "quanta/ops/cuda/library_loops.h"
#include "quanta/ops/cuda/matrices.h"
#include "quanta/ops/detail/cuda_floats.h"

namespace quanta::cuda {
namespace {

using detail::ConvGeometry;

constexpr MemoryFormat kLast = MemoryFormat::ChannelsLast;

// The tensors of a convolution as its caller sees it.
struct ConvTensors {
  Tensor x, weight, y;
};

struct ConvCall {
  FloatConvolution convolution;
  ConvOperands operands;
};

// A transposed convolution is a convolution from y to x.
ConvCall call_of(ConvPass pass, const ConvGeometry& geometry, const ConvTensors& tensors) {
  const cpu::ConvShape shape = detail::conv_shape(geometry, tensors.x.sizes());
  ConvCall call;
  call.convolution.dtype = tensors.x.dtype();
  call.convolution.spatial = geometry.kernel_rank();
  call.convolution.pass = pass;
  call.convolution.shape = shape;
  call.operands = {tensors.x.device_ptr(), tensors.weight.device_ptr(), tensors.y.device_ptr()};
  if (shape.transposed) {
    call.convolution.shape = turned_around(shape);
    std::swap(call.operands.input, call.operands.output);
    if (pass == ConvPass::Output) call.convolution.pass = ConvPass::Input;
    if (pass == ConvPass::Input) call.convolution.pass = ConvPass::Output;
  }
  return call;
}

std::string_view run(ConvPass pass, const ConvGeometry& geometry, const ConvTensors& tensors) {
  const ConvCall call = call_of(pass, geometry, tensors);
  return convolve_floats(tensors.x.device(), call.convolution, call.operands);
}

// What comes behind the sums: a bias, which may be undefined, and relu.
void finish(const Tensor& bias, Fusion fusion, std::int64_t channels, const Tensor& out) {
  const bool relu = fusion == Fusion::ReLU;
  if (!bias.defined() && !relu) return;
  add_bias(out.device(), {.dtype = out.dtype(),
                          .count = out.numel(),
                          .channels = channels,
                          .bias = bias.defined() ? bias.device_ptr() : nullptr,
                          .y = out.device_ptr(),
                          .relu = relu});
}

}  // namespace

std::string_view convolve(const ConvGeometry& geometry, const Tensor& x, const Tensor& weight,
                          const Tensor& bias, Fusion fusion, const Tensor& out) {
  const Tensor dense = weight.contiguous(kLast);
  ConvCall call = call_of(ConvPass::Output, geometry, {x, dense, out});
  Tensor terms = bias.defined() ? bias.contiguous() : bias;
  if (terms.defined() && detail::is_float_of_16_bits(out.dtype())) {
    // The library adds it, so that sums are rounded once; where it has no plan for that, in Float32.
    call.convolution.has_bias = true;
    call.operands.bias = terms.device_ptr();
    if (!convolves_with_bias(out.device(), call.convolution, call.operands)) {
      const Tensor wide = Tensor::empty(out.sizes(), DType::Float32, kLast, out.device());
      const std::string_view kernel = convolve(geometry, detail::widened(x), detail::widened(dense),
                                               detail::widened(terms), fusion, wide);
      out.copy_(wide);
      return kernel;
    }
    terms = {};
  }
  const std::string_view kernel = convolve_floats(out.device(), call.convolution, call.operands);
  finish(terms, fusion, geometry.shape.out_channels, out);
  return kernel;
}

Tensor conv_input_gradient(const ConvGeometry& geometry, const Tensor& weight,
                           const Tensor& gradient, const Dims& x_sizes) {
  Tensor result = Tensor::empty(x_sizes, gradient.dtype(), kLast, gradient.device());
  run(ConvPass::Input, geometry, {result, weight.contiguous(kLast), gradient});
  return result;
}

Tensor conv_weight_gradient(const ConvGeometry& geometry, const Tensor& x, const Tensor& gradient,
                            const Dims& weight_sizes) {
  const Tensor result = Tensor::empty(weight_sizes, gradient.dtype(), kLast, gradient.device());
  run(ConvPass::Weight, geometry, {x, result, gradient});
  return result.contiguous();
}

Tensor channel_sums(const Tensor& image) {
  const std::int64_t channels = image.size(1);
  const std::int64_t pixels = image.numel() / channels;
  const Tensor ones =
      Tensor::empty({1, pixels}, image.dtype(), MemoryFormat::Contiguous, image.device());
  ones.fill_(1.0);
  Tensor sums = Tensor::empty({channels}, image.dtype(), MemoryFormat::Contiguous, image.device());
  multiply(ones, image.as_strided({pixels, channels}, {channels, 1}, image.storage_offset()), {},
           sums.view({1, channels}));
  return sums;
}

}  // namespace quanta::cuda
