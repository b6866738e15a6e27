#include "quanta/ops/conv/gradient.h"

#include "quanta/ops/conv/cpu_gradients.h"
#include "quanta/ops/conv/products.h"
#include "quanta/runtime/autograd.h"

namespace quanta::gradients {
namespace {

using autograd::BackwardContext;
using detail::ConvGeometry;

struct Gradients {
  Tensor x, weight, bias;
};

Tensor batched(const ConvGeometry& geometry, const Tensor& x) {
  return x.dim() == geometry.spatial + 1 ? x.unsqueeze(0) : x;
}

Gradients in_float32(const ConvGeometry& geometry, const cpu::ConvShape& shape, const Tensor& x,
                     const Tensor& weight, const Tensor& gradient, const BackwardContext& context) {
  Gradients result;
  const Tensor diff_dst = detail::conv_input(geometry, gradient);
  const auto* diff = static_cast<const float*>(diff_dst.data_ptr());
  if (context.needs(0)) {
    result.x =
        Tensor::empty(batched(geometry, x).sizes(), DType::Float32, MemoryFormat::ChannelsLast);
    cpu::conv_backward_data(shape, geometry.kernel_rank(), diff,
                            static_cast<const float*>(weight.contiguous().data_ptr()),
                            result.x.mutable_data<float>());
  }
  if (context.needs(1) || context.needs(2)) {
    const Tensor src = detail::conv_input(geometry, x);
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
  Gradients result{Tensor::zeros(batched(geometry, x).sizes(), DType::Float64),
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
  result.bias =
      autograd::sum_to_size(batched(geometry, gradient), channels).view({shape.out_channels});
  return result;
}

std::vector<Tensor> backward(const ConvGeometry& geometry, const BackwardContext& context) {
  const Tensor x = context.saved(0);
  const Tensor weight = context.saved(1);
  const cpu::ConvShape shape = detail::conv_shape(geometry, x.sizes());
  if (x.numel() == 0) {
    return {Tensor::zeros(x.sizes(), x.dtype()), Tensor::zeros(weight.sizes(), x.dtype()),
            context.needs(2) ? Tensor::zeros({shape.out_channels}, x.dtype()) : Tensor()};
  }
  Gradients result = x.dtype() == DType::Float64
                         ? in_float64(geometry, shape, x, weight, context.grad())
                         : in_float32(geometry, shape, x, weight, context.grad(), context);
  if (result.x.defined() && result.x.dim() != x.dim()) result.x = result.x.squeeze(0);
  return {result.x, result.weight, result.bias};
}

}  // namespace

Tensor record_conv(Tensor y, const Tensor& x, const Tensor& weight, const Tensor& bias,
                   const ConvGeometry& geometry) {
  return autograd::record(
      geometry.op, {x, weight, bias}, std::move(y), {x, weight},
      [geometry](const BackwardContext& context) { return backward(geometry, context); });
}

}  // namespace quanta::gradients
