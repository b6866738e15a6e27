#include "quanta/ops/quantize_affine/cuda.h"

#include "quanta/ops/detail/cuda_affine_places.h"
#include "quanta/ops/quantize_affine/cpu_kernels.h"
#include "quanta/ops/quantize_affine/cuda_kernels.h"
#include "quanta/runtime/cuda/memory.h"

namespace quanta::cuda {
namespace {

AffineCallParams params_of(const AffineCall& call, const Tensor& x, const cpu::AffineLayout& layout,
                           const Tensor& scale, const Tensor& dst) {
  AffineCallParams params;
  params.op = call.op;
  params.step = call.step;
  params.is_double = x.dtype() == DType::Float64;
  params.limits = call.limits;
  params.places = detail::affine_places(layout);
  params.src = x.device_ptr();
  params.scale = scale.device_ptr();
  params.dst = dst.device_ptr();
  return params;
}

}  // namespace

void affine_forward(const AffineCall& call, const Tensor& x, const cpu::AffineLayout& layout,
                    const Tensor& scale, const Tensor& offset, const Tensor& y) {
  AffineCallParams params = params_of(call, x, layout, scale, y);
  params.offset = offset.device_ptr();
  apply_affine(x.device(), params);
}

void affine_backward(const AffineCall& call, const Tensor& x, const Tensor& grad,
                     const cpu::AffineLayout& layout, const Tensor& scale, const Tensor& offset,
                     const AffineGradients& gradients) {
  const cpu::AffineRows rows(layout);
  AffineSumsParams params;
  params.call = params_of(call, x, layout, scale, gradients.x);
  params.call.offset = offset.device_ptr();
  params.grad = grad.device_ptr();
  params.rows = rows.count();
  params.length = rows.length();
  params.parts = cpu::gradient_parts(rows, layout.parameters);
  params.scale_grad = gradients.scale.device_ptr();
  params.offset_grad = gradients.offset.device_ptr();
  const auto doubles = [&](std::int64_t count) {
    return Buffer(x.device(), static_cast<std::size_t>(count) * sizeof(double));
  };
  const Buffer sums = doubles(2 * params.parts * layout.parameters);
  params.sums = sums.as<double>();
  Buffer lanes;
  if (cpu::sums_in_lanes(call.op, !params.call.is_double, rows, call.limits.rounding)) {
    lanes = doubles(2 * cpu::GradientLanes::kCount * params.rows);
    params.lanes = lanes.as<double>();
    sum_affine_rows(x.device(), params);
  }
  sum_affine_parts(x.device(), params);
  join_affine_parts(x.device(), params);
}

void affine_spike(const AffineCall& call, const math::AffineSpike<double>& spike, const Tensor& x,
                  const cpu::AffineLayout& layout, const Tensor& scale, const Tensor& x_grad) {
  AffineCallParams params = params_of(call, x, layout, scale, x_grad);
  params.spike = spike;
  spike_affine(x.device(), params);
}

}  // namespace quanta::cuda
