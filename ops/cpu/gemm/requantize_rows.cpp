#include "quanta/ops/cpu/gemm/requantize_rows.h"

#include "quanta/ops/cpu/simd/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/cpu/gemm/requantize_rows.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>

#include "quanta/ops/cpu/simd/requantize_simd.h"
#include "quanta/runtime/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

void requantize_row_range(const std::int32_t* acc, const std::int32_t* compensation,
                          std::int64_t rows, std::int64_t channels, const RequantizeParams& params,
                          std::uint8_t* dst) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const RequantizeSpan span{acc + row * channels, compensation, params.bias, params.multiplier};
    requantize_channels(span, channels, params, dst + row * channels);
  }
}

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::cpu {

HWY_EXPORT(requantize_row_range);

void requantize_rows(const std::int32_t* acc, const std::int32_t* compensation, std::int64_t rows,
                     std::int64_t channels, const RequantizeParams& requantize, std::uint8_t* dst) {
  if (channels == 0) return;
  constexpr std::int64_t kGrain = 32768;
  const std::int64_t grain = std::max<std::int64_t>(kGrain / channels, 1);
  const auto run = HWY_DYNAMIC_DISPATCH(requantize_row_range);
  parallel_for(rows, grain, [&](std::int64_t begin, std::int64_t end) {
    run(acc + begin * channels, compensation, end - begin, channels, requantize,
        dst + begin * channels);
  });
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
