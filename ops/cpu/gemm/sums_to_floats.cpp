#include "quanta/ops/cpu/gemm/sums_to_floats.h"

#include "quanta/ops/cpu/simd/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/cpu/gemm/sums_to_floats.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

// Integers wrap, as the sums do.
std::int32_t full_sum(std::int32_t sum, const SumsToFloats& args, std::int64_t n) {
  auto result = static_cast<std::uint32_t>(sum);
  result -= static_cast<std::uint32_t>(args.src_zero_point) *
            static_cast<std::uint32_t>(args.weight_sums[n]);
  if (args.zero_points != nullptr) {
    result -=
        static_cast<std::uint32_t>(args.src_sum) * static_cast<std::uint32_t>(args.zero_points[n]);
  }
  return static_cast<std::int32_t>(result);
}

/// Channels [begin, end) of one row, in place.
void floats_of_sums(const SumsToFloats& args, std::int64_t begin, std::int64_t end, float* row) {
  std::int64_t n = begin;
#if QUANTA_VECTORS
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> df;
  const hn::RebindToSigned<decltype(df)> di;
  const auto lanes = static_cast<std::int64_t>(hn::MaxLanes(df));
  const auto src_scale = hn::Set(df, args.src_scale);
  const auto zero_point = hn::Set(di, args.src_zero_point);
  const auto src_sum = hn::Set(di, args.src_sum);
  for (; n + lanes <= end; n += lanes) {
    auto sum = hn::BitCast(di, hn::LoadU(df, row + n));
    sum = hn::Sub(sum, hn::Mul(zero_point, hn::LoadU(di, args.weight_sums + n)));
    if (args.zero_points != nullptr) {
      sum = hn::Sub(sum, hn::Mul(src_sum, hn::LoadU(di, args.zero_points + n)));
    }
    auto y = hn::Mul(hn::ConvertTo(df, sum), hn::Mul(src_scale, hn::LoadU(df, args.scales + n)));
    if (args.bias != nullptr) y = hn::Add(y, hn::LoadU(df, args.bias + n));
    if (args.relu) y = hn::IfThenElse(hn::Lt(y, hn::Zero(df)), hn::Zero(df), y);
    hn::StoreU(y, df, row + n);
  }
#endif
  for (; n < end; ++n) {
    std::int32_t sum;
    std::memcpy(&sum, row + n, sizeof(sum));
    float y = static_cast<float>(full_sum(sum, args, n)) * (args.src_scale * args.scales[n]);
    if (args.bias != nullptr) y += args.bias[n];
    row[n] = args.relu && y < 0.0F ? 0.0F : y;
  }
}

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::cpu {

HWY_EXPORT(floats_of_sums);

void sums_to_floats(const SumsToFloats& args, std::int64_t begin, std::int64_t end, float* row) {
  HWY_DYNAMIC_DISPATCH(floats_of_sums)(args, begin, end, row);
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
