#include "quanta/observers/observer.h"

#include <algorithm>

#include "quanta/ops/quantize.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

template <typename T>
void clamp_codes(T* codes, std::int64_t count, IntRange range) {
  const auto low = static_cast<T>(range.min);
  const auto high = static_cast<T>(range.max);
  for (std::int64_t i = 0; i < count; ++i) codes[i] = std::clamp(codes[i], low, high);
}

void clamp_nibbles(std::uint8_t* bytes, std::int64_t count, IntRange range) {
  const auto low = static_cast<int>(range.min);
  const auto high = static_cast<int>(range.max);
  for (std::int64_t i = 0; i < (count + 1) / 2; ++i) {
    const int first = std::clamp(bytes[i] & 0xF, low, high);
    // The unused half of a last byte stays 0.
    const int second = 2 * i + 1 < count ? std::clamp(bytes[i] >> 4, low, high) : 0;
    bytes[i] = static_cast<std::uint8_t>(first | (second << 4));
  }
}

// An observer's range can be narrower than its dtype's (-127..127); quantizing knows only the
// latter. Codes have just been made, without gaps, so memory order does not matter.
void clamp_to_range(const QTensor& x, IntRange range) {
  const IntRange full = quant_range(x.dtype());
  const IntRange kept{std::max(range.min, full.min), std::min(range.max, full.max)};
  if (kept == full) return;
  const Tensor codes = x.int_repr_view();
  if (x.dtype() == DType::QUInt4x2) {
    clamp_nibbles(codes.mutable_data<std::uint8_t>(), x.numel(), kept);
  } else if (x.dtype() == DType::QInt8) {
    clamp_codes(codes.mutable_data<std::int8_t>(), x.numel(), kept);
  } else if (x.dtype() == DType::QUInt8) {
    clamp_codes(codes.mutable_data<std::uint8_t>(), x.numel(), kept);
  } else {
    clamp_codes(codes.mutable_data<std::int32_t>(), x.numel(), kept);
  }
}

}  // namespace

Tensor Observer::forward(const Tensor& x) {
  update(x);
  return x;
}

QTensor quantize_with(const Tensor& x, const Observer& observer) {
  const DType dtype = observer.dtype();
  QUANTA_SUPPORTED(dtype == DType::QInt8 || dtype == DType::QUInt8 || dtype == DType::QInt32 ||
                       dtype == DType::QUInt4x2,
                   "quantize_with: observer: expected dtype QInt8, QUInt8, QInt32 or QUInt4x2, got "
                   "{} ({})",
                   dtype, observer.name());
  const ObservedQParams qparams = observer.calculate_qparams();
  QUANTA_CHECK(observer.has_data(), "quantize_with: observer: expected a {} that saw data",
               observer.name());
  if (!is_per_channel(observer.qscheme())) {
    const QTensor result = quantize_per_tensor(x, qparams.scale, qparams.zero_point, dtype);
    clamp_to_range(result, {observer.quant_min(), observer.quant_max()});
    return result;
  }
  QUANTA_CHECK(x.defined(), "quantize_with: x: expected a tensor, got an undefined one");
  const std::int64_t axis = wrap_dim(observer.ch_axis(), x.dim(), "quantize_with", "ch_axis");
  const QTensor result = quantize_per_channel(x, qparams.scale, qparams.zero_point, axis, dtype);
  clamp_to_range(result, {observer.quant_min(), observer.quant_max()});
  return result;
}

}  // namespace quanta
