#include "quanta/ops/detail/amax.h"

#include <string>

#include "quanta/ops/arithmetic.h"
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

Tensor gradient_within_amax(const Tensor& gradient, const Tensor& seen, const Tensor& amax) {
  const Tensor x = dense_float(seen);
  const Tensor from = dense_float(gradient).contiguous(x.suggested_format());
  const Tensor result = Tensor::empty(x.sizes(), gradient.dtype(), x.suggested_format());
  const auto* data = static_cast<const float*>(from.data_ptr());
  const auto* begin = static_cast<const float*>(x.data_ptr());
  map_amax_runs(x, amax, result, [&](const float* src, const cpu::AmaxRun& run, float* dst) {
    cpu::amax_mask_run(src, data + (src - begin), run, dst);
  });
  return result;
}

void check_bias(std::string_view op, const Tensor& x, const Tensor& bias) {
  QUANTA_CHECK(!bias.defined() || broadcast_sizes(x.sizes(), bias.sizes(), op) == x.sizes(),
               "{}: bias: expected sizes that broadcast to {}, got {}", op, x.sizes(),
               bias.sizes());
}

Tensor without_bias(const Tensor& x, const Tensor& bias) {
  return bias.defined() ? sub(x.to(DType::Float32), bias.to(DType::Float32)) : x;
}

void add_bias(const Tensor& y, const Tensor& bias, const Tensor& out) {
  copy_result(add(y, bias.to(DType::Float32)).to(out.dtype()), out);
}

}  // namespace quanta::detail
