#include "quanta/ops/cpu/float_formats.h"
// Before any header of Highway.
#include "quanta/ops/cpu/simd/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/cpu/float_formats.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>

#include "quanta/ops/cpu/simd/format_rounding.h"
#include "quanta/ops/cpu/simd/simd.h"
#include "quanta/ops/cpu/strided_loop.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

#if QUANTA_VECTORS
template <FloatScaling kScaling, bool kOneForAll, bool kStreaming>
HWY_INLINE std::int64_t round_vectors(const RoundingRun& run, const FormatRounding& round) {
  const FloatTag d;
  auto scale = hn::Set(d, *run.scale);
  auto unscale = hn::Set(d, *run.unscale);
  std::int64_t i = 0;
  for (; i + kLanes <= run.count; i += kLanes) {
    if constexpr (!kOneForAll) {
      scale = hn::LoadU(d, run.scale + i);
      unscale = hn::LoadU(d, run.unscale + i);
    }
    const auto x = hn::LoadU(d, run.src + i);
    const auto scaled = kScaling == FloatScaling::Divide ? hn::Div(x, scale) : hn::Mul(x, scale);
    put<kStreaming>(d, hn::Mul(round(scaled), unscale), run.dst + i);
  }
  return i;
}

template <FloatScaling kScaling>
HWY_INLINE std::int64_t round_vectors_of(const RoundingRun& run, const FormatRounding& round,
                                         Store store) {
  if (run.step != 0) return round_vectors<kScaling, false, false>(run, round);
  return store == Store::Streaming ? round_vectors<kScaling, true, true>(run, round)
                                   : round_vectors<kScaling, true, false>(run, round);
}

#endif  // QUANTA_VECTORS

// `rows` rows, whose parameters are `stride` apart.
void round_rows(const RoundingRun& first, std::int64_t rows, std::int64_t stride,
                const FloatRounding& rounding, Store store) {
#if QUANTA_VECTORS
  const FormatRounding round(rounding.format, rounding.overflow, rounding.nan);
#endif
  RoundingRun run = first;
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t i = 0;
#if QUANTA_VECTORS
    i = rounding.scaling == FloatScaling::Divide
            ? round_vectors_of<FloatScaling::Divide>(run, round, store)
            : round_vectors_of<FloatScaling::Multiply>(run, round, store);
#endif
    for (; i < run.count; ++i) {
      const std::int64_t p = i * run.step;
      run.dst[i] = round_scaled(run.src[i], run.scale[p], run.unscale[p], rounding);
    }
    run.src += run.count;
    run.dst += run.count;
    run.scale += stride;
    run.unscale += stride;
  }
#if QUANTA_VECTORS
  if (store == Store::Streaming) hwy::FlushStream();
#else
  static_cast<void>(store);
#endif
}

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::cpu {

HWY_EXPORT(round_rows);

namespace {

// Streaming needs rows of whole cache lines.
Store row_store(const AffineRows& rows, const float* dst) {
  constexpr std::int64_t kCacheLine = 16;
  if (rows.step() != 0 || rows.length() % kCacheLine != 0) return Store::Cached;
  return store_for(static_cast<std::size_t>(rows.count() * rows.length()) * sizeof(float), dst);
}

}  // namespace

void round_to_format(const float* src, const AffineLayout& layout, const FloatRounding& rounding,
                     const float* scale, const float* unscale, float* dst) {
  if (rounding.scaling == FloatScaling::Divide) unscale = scale;
  const AffineRows rows(layout);
  const auto run = HWY_DYNAMIC_DISPATCH(round_rows);
  const Store store = row_store(rows, dst);
  const std::int64_t length = rows.length();
  parallel_for(
      rows.count(), std::max<std::int64_t>(1, kElementGrain / std::max<std::int64_t>(length, 1)),
      [&](std::int64_t begin, std::int64_t end) {
        rows.for_each_run(begin, end, [&](std::int64_t first, std::int64_t count, std::int64_t p) {
          run({src + first * length, length, scale + p, unscale + p, rows.step(),
               dst + first * length},
              count, rows.run_stride(), rounding, store);
        });
      });
}

void pack_pairs(const std::uint8_t* src, std::int64_t pairs, FirstCode first, std::uint8_t* dst) {
  const int low = first == FirstCode::Low ? 0 : 1;
  parallel_elements(pairs, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const unsigned at_low = src[2 * i + low] & 0xFU;
      const unsigned at_high = src[2 * i + 1 - low] & 0xFU;
      dst[i] = static_cast<std::uint8_t>(at_low | at_high << 4);
    }
  });
}

void unpack_pairs(const std::uint8_t* src, std::int64_t pairs, FirstCode first, std::uint8_t* dst) {
  const int low = first == FirstCode::Low ? 0 : 1;
  parallel_elements(pairs, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      dst[2 * i + low] = src[i] & 0xFU;
      dst[2 * i + 1 - low] = src[i] >> 4;
    }
  });
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
