#include "quanta/ops/conv/cuda_float.h"

#include "quanta/ops/cuda/library.h"
#include "quanta/ops/cuda/library_loops.h"
#include "quanta/ops/cuda/matrices.h"

namespace quanta::cuda {
namespace {

using detail::ConvGeometry;

constexpr MemoryFormat kLast = MemoryFormat::ChannelsLast;

// The tensors of a convolution as its caller sees it.
struct ConvTensors {
  Tensor x, weight, y;
};

// A transposed convolution is a convolution from y to x.
std::string_view run(ConvPass pass, const ConvGeometry& geometry, const ConvTensors& tensors) {
  const cpu::ConvShape shape = detail::conv_shape(geometry, tensors.x.sizes());
  FloatConvolution convolution;
  convolution.dtype = tensors.x.dtype();
  convolution.spatial = geometry.kernel_rank();
  convolution.pass = pass;
  convolution.shape = shape;
  ConvOperands operands{tensors.x.device_ptr(), tensors.weight.device_ptr(),
                        tensors.y.device_ptr()};
  if (shape.transposed) {
    convolution.shape = turned_around(shape);
    std::swap(operands.input, operands.output);
    if (pass == ConvPass::Output) convolution.pass = ConvPass::Input;
    if (pass == ConvPass::Input) convolution.pass = ConvPass::Output;
  }
  return convolve_floats(tensors.x.device(), convolution, operands);
}

}  // namespace

std::string_view convolve(const ConvGeometry& geometry, const Tensor& x, const Tensor& weight,
                          const Tensor& bias, Fusion fusion, const Tensor& out) {
  const std::string_view kernel =
      run(ConvPass::Output, geometry, {x, weight.contiguous(kLast), out});
  const bool relu = fusion == Fusion::ReLU;
  if (!bias.defined() && !relu) return kernel;
  const Tensor terms = bias.defined() ? bias.contiguous() : bias;
  add_bias(out.device(), {.dtype = out.dtype(),
                          .count = out.numel(),
                          .channels = geometry.shape.out_channels,
                          .bias = terms.defined() ? terms.device_ptr() : nullptr,
                          .y = out.device_ptr(),
                          .relu = relu});
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
