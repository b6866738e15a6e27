#include "quanta/ops/detail/amax.h"

#include <string>

#include "quanta/ops/arithmetic.h"
#include "quanta/ops/cpu/float_formats.h"
#include "quanta/ops/cuda/amax.h"
#include "quanta/ops/cuda/range.h"
#include "quanta/ops/reduce.h"
#include "quanta/runtime/check.h"

namespace quanta::detail {
namespace {

bool broadcasts_to(const Dims& from, const Dims& sizes) {
  if (from.size() > sizes.size()) return false;
  const std::size_t skipped = sizes.size() - from.size();
  for (std::size_t d = 0; d < from.size(); ++d) {
    if (from[d] != 1 && from[d] != sizes[d + skipped]) return false;
  }
  return true;
}

template <AmaxStep kStep>
void apply_to_each(const AmaxFunction& function, const Tensor& x, const Tensor& values,
                   float* dst) {
  const auto* src = static_cast<const float*>(x.data_ptr());
  if (!values.defined()) {
    cpu::parallel_elements(x.numel(), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) dst[i] = apply_amax<kStep>(function, src[i], 0.0F);
    });
    return;
  }
  for_each_amax_run(x, values, dst, [&](std::int64_t offset, const cpu::AmaxRun& run) {
    for (std::int64_t i = 0; i < run.count; ++i) {
      dst[offset + i] = apply_amax<kStep>(function, src[offset + i], run.amax[i * run.step]);
    }
  });
}

// kernel(src, cpu::AmaxRun, dst) over the elements.
template <typename Kernel>
void map_runs(const Tensor& x, const Tensor& values, float* dst, Kernel&& kernel) {
  const auto* src = static_cast<const float*>(x.data_ptr());
  for_each_amax_run(x, values, dst, [&](std::int64_t offset, const cpu::AmaxRun& run) {
    kernel(src + offset, run, dst + offset);
  });
}

// `x` and `out` dense Float32 of one memory order.
void map_on_cpu(const AmaxFunction& function, const Tensor& x, const Tensor& values,
                const Tensor& out) {
  auto* dst = static_cast<float*>(out.data_ptr());
  switch (function.step) {
    case AmaxStep::FakeTensorQuant:
      return map_runs(x, values, dst, [&](const float* src, const cpu::AmaxRun& run, float* to) {
        cpu::fake_tensor_quant_run(src, run, function.grid, to);
      });
    case AmaxStep::Codes:
      return map_runs(x, values, dst, [&](const float* src, const cpu::AmaxRun& run, float* to) {
        cpu::tensor_quant_run(src, run, function.grid, to);
      });
    case AmaxStep::ScaledE4M3:
      return map_runs(x, values, dst, cpu::scaled_e4m3_run);
    case AmaxStep::StaticFp4:
      return map_runs(x, values, dst, cpu::static_fp4_run);
    case AmaxStep::CodesInBFloat16:
      return apply_to_each<AmaxStep::CodesInBFloat16>(function, x, values, dst);
    case AmaxStep::Scale:
      return apply_to_each<AmaxStep::Scale>(function, x, values, dst);
    case AmaxStep::Divisor:
      return apply_to_each<AmaxStep::Divisor>(function, x, values, dst);
    case AmaxStep::IntCast:
      return apply_to_each<AmaxStep::IntCast>(function, x, values, dst);
    case AmaxStep::FakeAffine:
      return apply_to_each<AmaxStep::FakeAffine>(function, x, values, dst);
    case AmaxStep::Round:
      return cpu::round_to_format(
          static_cast<const float*>(x.data_ptr()), {.sizes = {x.numel()}, .strides = {0}},
          {function.format, cpu::FloatScaling::Multiply}, &function.scale, &function.unscale, dst);
    case AmaxStep::Inside:
      return apply_to_each<AmaxStep::Inside>(function, x, values, dst);
  }
}

cuda::RangeOfFloats range_on_device(const Tensor& values) {
  return cuda::range_of(values.device(), reinterpret_cast<const float*>(values.device_ptr()),
                        values.numel());
}

// body(y) with `out` or, where that is no Float32, a tensor that is converted to it.
template <typename Body>
void in_float32(const Tensor& out, Body&& body) {
  if (out.dtype() == DType::Float32) return body(out);
  const Tensor y = Tensor::empty(out.sizes(), DType::Float32, out.suggested_format(), out.device());
  body(y);
  copy_result(y.to(out.dtype()), out);
}

}  // namespace

void check_quantizable(std::string_view op, const Tensor& x) {
  QUANTA_CHECK(x.defined(), "{}: x: expected a tensor, got an undefined one", op);
  QUANTA_CHECK(x.dtype() == DType::Float32 || x.dtype() == DType::Float64 ||
                   x.dtype() == DType::Float16 || x.dtype() == DType::BFloat16,
               "{}: x: expected Float32, Float64, Float16 or BFloat16, got {}", op, x.dtype());
}

void check_amax(std::string_view op, const Dims& sizes, const Tensor& amax) {
  QUANTA_CHECK(amax.defined(), "{}: amax: expected a tensor, got an undefined one", op);
  QUANTA_CHECK(amax.is_floating_point() && item_bits(amax.dtype()) >= 16,
               "{}: amax: expected Float32, Float64, Float16 or BFloat16, got {}", op,
               amax.dtype());
  QUANTA_CHECK(broadcasts_to(amax.sizes(), sizes),
               "{}: amax: expected sizes that broadcast to {}, got {}", op, sizes, amax.sizes());
}

Tensor amax_values(std::string_view op, const Tensor& amax) {
  Tensor values = amax.detach().to(DType::Float32).contiguous();
  if (!values.device().is_cpu()) {
    const float lowest = cuda::lowest_negative(values);
    QUANTA_CHECK(!(lowest < 0.0F), "{}: amax: expected no negative values, got {}", op, lowest);
    return values;
  }
  const auto* data = static_cast<const float*>(values.data_ptr());
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    QUANTA_CHECK(!(data[i] < 0.0F), "{}: amax: expected no negative values, got {}", op, data[i]);
  }
  return values;
}

Tensor dense_float(const Tensor& x) {
  const Tensor values = x.detach().to(DType::Float32);
  return values.contiguous(values.suggested_format());
}

void map_amax(const AmaxFunction& function, const Tensor& x, const Tensor& values,
              const Tensor& out) {
  const Tensor seen = dense_float(x);
  in_float32(out, [&](const Tensor& y) {
    seen.device().is_cpu() ? map_on_cpu(function, seen, values, y)
                           : cuda::map_amax(function, seen, values, y);
  });
}

float smallest_of(const Tensor& values) {
  return values.device().is_cpu() ? static_cast<float>(min(values).item())
                                  : range_on_device(values).min;
}
float largest_of(const Tensor& values) {
  return values.device().is_cpu() ? static_cast<float>(max(values).item())
                                  : range_on_device(values).max;
}

Tensor gradient_within_amax(const Tensor& gradient, const Tensor& seen, const Tensor& amax) {
  const Tensor x = dense_float(seen);
  const Tensor from = dense_float(gradient).contiguous(x.suggested_format());
  const Tensor result =
      Tensor::empty(x.sizes(), gradient.dtype(), x.suggested_format(), x.device());
  in_float32(result, [&](const Tensor& y) {
    if (!x.device().is_cpu()) return cuda::mask_by_amax(x, from, amax, y);
    const auto* grad = static_cast<const float*>(from.data_ptr());
    const auto* begin = static_cast<const float*>(x.data_ptr());
    map_runs(x, amax, static_cast<float*>(y.data_ptr()),
             [&](const float* src, const cpu::AmaxRun& run, float* dst) {
               cpu::amax_mask_run(src, grad + (src - begin), run, dst);
             });
  });
  return result;
}

Tensor gradient_of_amax(const Tensor& gradient, const Tensor& seen, const Tensor& amax,
                        DType dtype) {
  const Tensor x = dense_float(seen);
  const Tensor from = dense_float(gradient).contiguous(x.suggested_format());
  const Tensor each = Tensor::empty(x.sizes(), DType::Float32, x.suggested_format(), x.device());
  if (!x.device().is_cpu()) {
    cuda::gradients_of_amax(x, from, amax, each);
  } else {
    const auto* grad = static_cast<const float*>(from.data_ptr());
    const auto* begin = static_cast<const float*>(x.data_ptr());
    map_runs(x, amax, static_cast<float*>(each.data_ptr()),
             [&](const float* src, const cpu::AmaxRun& run, float* dst) {
               const float* upstream = grad + (src - begin);
               for (std::int64_t i = 0; i < run.count; ++i) {
                 dst[i] = math::gradient_of_amax(src[i], upstream[i], run.amax[i * run.step]);
               }
             });
  }
  return autograd::sum_to_size(each, amax.sizes()).to(dtype);
}

void check_bias(std::string_view op, const Tensor& x, const Tensor& bias) {
  QUANTA_CHECK(!bias.defined() || broadcast_sizes(x.sizes(), bias.sizes(), op) == x.sizes(),
               "{}: bias: expected sizes that broadcast to {}, got {}", op, x.sizes(),
               bias.sizes());
}

namespace {

// As tensors of `dtype` would be: what half types calculate is rounded to them.
Tensor rounded(const Tensor& x, DType dtype) {
  const bool is_half = dtype == DType::Float16 || dtype == DType::BFloat16;
  return is_half ? x.to(dtype).to(DType::Float32) : x;
}

}  // namespace

Tensor without_bias(const Tensor& x, const Tensor& bias) {
  if (!bias.defined()) return x;
  return rounded(sub(x.to(DType::Float32), bias.to(DType::Float32)), x.dtype());
}

void add_bias(const Tensor& y, const Tensor& bias, const Tensor& out) {
  copy_result(add(rounded(y, out.dtype()), bias.to(DType::Float32)).to(out.dtype()), out);
}

}  // namespace quanta::detail
