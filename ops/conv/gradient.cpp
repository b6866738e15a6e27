#include "quanta/ops/conv/gradient.h"

#include "quanta/ops/conv/cpu_gradients.h"
#include "quanta/ops/conv/cuda_float.h"
#include "quanta/ops/conv/products.h"
#include "quanta/runtime/autograd.h"

namespace quanta::conv {
namespace {

using autograd::BackwardContext;
using detail::ConvGeometry;

struct Gradients {
  Tensor x, weight, bias;
};

Gradients in_float32(const ConvGeometry& geometry, const cpu::ConvShape& shape, const Tensor& x,
                     const Tensor& weight, const Tensor& gradient, const BackwardContext& context) {
  Gradients result;
  const Tensor diff_dst = gradient.contiguous(MemoryFormat::ChannelsLast);
  const auto* diff = static_cast<const float*>(diff_dst.data_ptr());
  if (context.needs(0)) {
    result.x = Tensor::empty(x.sizes(), DType::Float32, MemoryFormat::ChannelsLast);
    cpu::conv_backward_data(shape, geometry.kernel_rank(), diff,
                            static_cast<const float*>(weight.contiguous().data_ptr()),
                            result.x.mutable_data<float>());
  }
  if (context.needs(1) || context.needs(2)) {
    const Tensor src = x.contiguous(MemoryFormat::ChannelsLast);
    result.weight = Tensor::empty(weight.sizes());
    if (context.needs(2)) result.bias = Tensor::empty({shape.out_channels});
    cpu::conv_backward_weights(shape, geometry.kernel_rank(),
                               static_cast<const float*>(src.data_ptr()), diff,
                               result.weight.mutable_data<float>(),
                               context.needs(2) ? result.bias.mutable_data<float>() : nullptr);
  }
  return result;
}

Gradients in_float64(const ConvGeometry& geometry, const cpu::ConvShape& shape, const Tensor& x,
                     const Tensor& weight, const Tensor& gradient) {
  Gradients result{Tensor::zeros(x.sizes(), DType::Float64),
                   Tensor::zeros(weight.sizes(), DType::Float64), Tensor()};
  const Tensor src = x.contiguous();
  const Tensor weights = weight.contiguous();
  const Tensor diff = gradient.contiguous();
  double* diff_src = result.x.mutable_data<double>();
  double* diff_weight = result.weight.mutable_data<double>();
  detail::for_each_conv_product(shape, [&](std::int64_t s, std::int64_t w, std::int64_t d) {
    diff_src[s] += diff.data<double>()[d] * weights.data<double>()[w];
    diff_weight[w] += diff.data<double>()[d] * src.data<double>()[s];
  });
  Dims channels = Dims::filled(static_cast<std::size_t>(geometry.spatial) + 1, 1);
  channels[0] = shape.out_channels;
  result.bias = autograd::sum_to_size(gradient, channels).view({shape.out_channels});
  return result;
}

Gradients on_cuda(const ConvGeometry& geometry, const Tensor& x, const Tensor& weight,
                  const Tensor& gradient, const BackwardContext& context) {
  Gradients result;
  const Tensor diff_dst = gradient.contiguous(MemoryFormat::ChannelsLast);
  if (context.needs(0)) result.x = cuda::conv_input_gradient(geometry, weight, diff_dst, x.sizes());
  if (context.needs(1)) {
    result.weight = cuda::conv_weight_gradient(geometry, x.contiguous(MemoryFormat::ChannelsLast),
                                               diff_dst, weight.sizes());
  }
  if (context.needs(2)) result.bias = cuda::channel_sums(diff_dst);
  return result;
}

Tensor zeros(const Dims& sizes, const Tensor& like) {
  const Tensor result = Tensor::empty(sizes, like.dtype(), MemoryFormat::Contiguous, like.device());
  result.fill_(0.0);
  return result;
}

}  // namespace

std::vector<Tensor> conv_gradient(const ConvGeometry& geometry, const Tensor& gradient,
                                  const BackwardContext& context) {
  const Tensor x = context.input(0);
  const Tensor weight = context.input(1);
  const cpu::ConvShape shape = detail::conv_shape(geometry, x.sizes());
  if (x.numel() == 0) {
    return {zeros(x.sizes(), x), zeros(weight.sizes(), x),
            context.needs(2) ? zeros({shape.out_channels}, x) : Tensor()};
  }
  const Gradients result = x.device().is_cuda() ? on_cuda(geometry, x, weight, gradient, context)
                           : x.dtype() == DType::Float64
                               ? in_float64(geometry, shape, x, weight, gradient)
                               : in_float32(geometry, shape, x, weight, gradient, context);
  return {result.x, result.weight, result.bias};
}

}  // namespace quanta::conv
