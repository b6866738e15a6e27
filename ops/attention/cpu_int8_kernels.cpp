#include "quanta/ops/attention/cpu_int8_kernels.h"

// Before any header of Highway.
#include "quanta/ops/cpu/simd/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/attention/cpu_int8_kernels.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "quanta/ops/attention/cpu_softmax_simd.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

using ByteLanes = hn::Rebind<std::uint8_t, AttentionTag>;

/// The bits of the largest finite float.
constexpr std::int32_t kLargestFinite = 0x7f7fffff;
constexpr float kMostCode = 127.0F;

/// Calls body(place, whether a whole vector begins there) for each vector of [0, count).
template <class Body>
HWY_INLINE void for_vectors(std::int64_t count, const Body& body) {
  std::int64_t i = 0;
  for (; i + kAttentionLanes <= count; i += kAttentionLanes) body(i, std::true_type());
  if (i < count) body(i, std::false_type());
}

/// Floats from `i` on, zeros from `count` on.
template <bool kWhole>
HWY_INLINE AttentionVector load_part(const float* src, std::int64_t i, std::int64_t count) {
  const AttentionTag d;
  if constexpr (kWhole) return hn::LoadU(d, src + i);
  return hn::MaskedLoad(hn::FirstN(d, static_cast<std::size_t>(count - i)), d, src + i);
}
HWY_INLINE AttentionVector load_some(const float* src, std::int64_t count) {
  return count >= kAttentionLanes ? load_part<true>(src, 0, count)
                                  : load_part<false>(src, 0, count);
}

/// Without its sign a float is as large as its bits, and NaN larger than all.
HWY_INLINE hn::Vec<AttentionInts> magnitude(AttentionVector x) {
  const AttentionInts di;
  return hn::And(hn::BitCast(di, x), hn::Set(di, 0x7fffffff));
}

/// Rounds half to even; |x| is below 2^22.
HWY_INLINE hn::Vec<AttentionInts> rounded(AttentionVector x) {
  const AttentionTag d;
  const AttentionInts di;
  const auto magic = hn::Set(d, 12582912.0F);  // 1.5 * 2^23
  return hn::Sub(hn::BitCast(di, hn::Add(x, magic)), hn::BitCast(di, magic));
}

/// The lowest bytes of all lanes, or of the first `count`.
template <bool kWhole>
HWY_INLINE void store_bytes(hn::Vec<AttentionInts> x, std::int64_t count, std::uint8_t* dst) {
#if QUANTA_AVX512
  const hn::Vec<ByteLanes> bytes{_mm512_cvtepi32_epi8(x.raw)};
#else
  const auto bytes = hn::DemoteTo(ByteLanes(), hn::And(x, hn::Set(AttentionInts(), 0xff)));
#endif
  if constexpr (kWhole) {
    hn::StoreU(bytes, ByteLanes(), dst);
  } else {
    std::uint8_t lanes[kAttentionLanes];
    hn::StoreU(bytes, ByteLanes(), lanes);
    std::copy_n(lanes, count, dst);
  }
}

/// The largest step has 127 of them; numbers that are too small for a step of a normal size are 0.
struct Steps {
  float scale = 0.0F;
  float inverse = 0.0F;

  explicit Steps(std::int32_t largest_bits) {
    float largest;
    std::memcpy(&largest, &largest_bits, sizeof(largest));
    const float step = largest / kMostCode;
    if (step < std::numeric_limits<float>::min()) return;
    scale = step;
    inverse = 1.0F / step;
  }
};

/// round(x * inverse), which may be a last digit above 127.
HWY_INLINE hn::Vec<AttentionInts> signed_codes(AttentionVector x, AttentionVector inverse) {
  return rounded(hn::Mul(x, inverse));
}

/// The processor does not see rows come that lie far apart.
constexpr std::int64_t kRowsAhead = 8;
HWY_INLINE void prefetch_row(const SymmetricRows& call, std::int64_t row) {
  if (row >= call.rows) return;
  constexpr std::int64_t kLine = 16;
  const float* src = call.src + row * call.src_row;
  for (std::int64_t i = 0; i < call.width; i += kLine) __builtin_prefetch(src + i);
}

bool QuantizeEachRow(const SymmetricRows& call, std::int32_t* sums) {
  const AttentionInts di;
  const AttentionTag d;
  const auto offset = hn::Set(di, call.offset);
  for (std::int64_t r = 0; r < call.rows; ++r) {
    const float* src = call.src + r * call.src_row;
    prefetch_row(call, r + kRowsAhead);
    auto largest = hn::Zero(di);
    for_vectors(call.width, [&](std::int64_t i, auto whole) QUANTA_INLINED {
      largest = hn::Max(largest, magnitude(load_part<decltype(whole)::value>(src, i, call.width)));
    });
    const std::int32_t most = hn::GetLane(hn::MaxOfLanes(di, largest));
    if (most > kLargestFinite) return false;
    const Steps steps(most);
    call.scales[r] = steps.scale;
    const auto inverse = hn::Set(d, steps.inverse);
    std::uint8_t* codes = call.codes + r * call.codes_row;
    auto sum = hn::Zero(di);
    for_vectors(call.width, [&](std::int64_t i, auto whole) QUANTA_INLINED {
      constexpr bool kWhole = decltype(whole)::value;
      const auto code = signed_codes(load_part<kWhole>(src, i, call.width), inverse);
      sum = hn::Add(sum, code);
      store_bytes<kWhole>(hn::Add(code, offset), call.width - i, codes + i);
    });
    std::fill(codes + call.width, codes + call.codes_row, std::uint8_t{0});
    sums[r] = hn::GetLane(hn::SumOfLanes(di, sum));
  }
  return true;
}

/// Columns from `first` on, as many as a vector has.
HWY_INLINE bool quantize_columns(const SymmetricRows& call, std::int64_t first) {
  const AttentionInts di;
  const AttentionTag d;
  const std::int64_t count = call.width - first;
  auto largest = hn::Zero(di);
  for (std::int64_t r = 0; r < call.rows; ++r) {
    if (first == 0) prefetch_row(call, r + kRowsAhead);
    largest = hn::Max(largest, magnitude(load_some(call.src + r * call.src_row + first, count)));
  }
  std::int32_t most[kAttentionLanes];
  hn::StoreU(largest, di, most);
  float inverses[kAttentionLanes];
  for (std::int64_t i = 0; i < kAttentionLanes; ++i) {
    if (most[i] > kLargestFinite) return false;
    const Steps steps(most[i]);
    inverses[i] = steps.inverse;
    if (i < count) call.scales[first + i] = steps.scale;
  }
  const auto inverse = hn::LoadU(d, inverses);
  const auto offset = hn::Set(di, call.offset);
  for (std::int64_t r = 0; r < call.rows; ++r) {
    const auto code = signed_codes(load_some(call.src + r * call.src_row + first, count), inverse);
    std::uint8_t* codes = call.codes + r * call.codes_row + first;
    const auto bytes = hn::Add(code, offset);
    if (count >= kAttentionLanes) {
      store_bytes<true>(bytes, count, codes);
    } else {
      store_bytes<false>(bytes, count, codes);
    }
  }
  return true;
}

bool QuantizeEachColumn(const SymmetricRows& call) {
  for (std::int64_t first = 0; first < call.width; first += kAttentionLanes) {
    if (!quantize_columns(call, first)) return false;
  }
  for (std::int64_t r = 0; r < call.rows; ++r) {
    std::uint8_t* codes = call.codes + r * call.codes_row;
    std::fill(codes + call.width, codes + call.codes_row, std::uint8_t{0});
  }
  return true;
}

/// Keys [j, j + lanes) of a row. Products first, then the mask.
HWY_INLINE AttentionVector scores_at(const ScoreRow& row, std::int64_t j) {
  const AttentionInts di;
  const AttentionTag d;
  const auto sum =
      hn::Sub(hn::LoadU(di, row.sums + j), hn::ShiftLeft<7>(hn::LoadU(di, row.code_sums + j)));
  auto score =
      hn::Mul(hn::Mul(hn::ConvertTo(d, sum), hn::LoadU(d, row.scales + j)), hn::Set(d, row.scale));
  if (row.mask != nullptr) score = hn::Add(score, load_some(row.mask + j, row.keys - j));
  if (j + kAttentionLanes <= row.visible) return score;
  const auto key = hn::Iota(di, static_cast<std::int32_t>(j));
  const auto hidden = hn::Not(hn::Lt(key, hn::Set(di, static_cast<std::int32_t>(row.visible))));
  return hn::IfThenElse(hn::RebindMask(d, hidden),
                        hn::Set(d, -std::numeric_limits<float>::infinity()), score);
}

WeightSum WeightsOfRow(const ScoreRow& row) {
  const AttentionInts di;
  const AttentionTag d;
  constexpr float kNothing = -std::numeric_limits<float>::infinity();
  auto best = hn::Set(d, kNothing);
  for (std::int64_t j = 0; j < row.visible; j += kAttentionLanes) {
    const auto score = scores_at(row, j);
    hn::StoreU(score, d, row.scores + j);
    best = hn::Max(best, score);
  }
  const float top = hn::GetLane(hn::MaxOfLanes(d, best));
  const auto tops = hn::Set(d, top == kNothing ? 0.0F : top);
  auto sum = hn::Zero(di);
  auto weights = hn::Zero(d);  // NaN where one is
  std::int64_t j = 0;
  for (; j < row.visible; j += kAttentionLanes) {
    const auto weight = exp_normal(hn::Sub(hn::LoadU(d, row.scores + j), tops));
    weights = hn::Add(weights, weight);
    const auto code = rounded(hn::Mul(weight, hn::Set(d, 255.0F)));
    sum = hn::Add(sum, code);
    // There is room for whole vectors: codes_row is a multiple of 64.
    store_bytes<true>(code, kAttentionLanes, row.codes + j);
  }
  if (j < row.codes_row) std::fill(row.codes + j, row.codes + row.codes_row, std::uint8_t{0});
  const bool is_nan = !hn::AllTrue(d, hn::Eq(weights, weights));
  return {hn::GetLane(hn::SumOfLanes(di, sum)), is_nan};
}

void SumsToOutput(const std::int32_t* sums, const float* scales, float factor, std::int64_t count,
                  float* dst) {
  const AttentionInts di;
  const AttentionTag d;
  const auto factors = hn::Set(d, factor);
  std::int64_t i = 0;
  for (; i + kAttentionLanes <= count; i += kAttentionLanes) {
    const auto sum = hn::ConvertTo(d, hn::LoadU(di, sums + i));
    hn::StoreU(hn::Mul(hn::Mul(sum, hn::LoadU(d, scales + i)), factors), d, dst + i);
  }
  for (; i < count; ++i) dst[i] = static_cast<float>(sums[i]) * scales[i] * factor;
}

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::cpu {

HWY_EXPORT(QuantizeEachRow);
HWY_EXPORT(QuantizeEachColumn);
HWY_EXPORT(WeightsOfRow);
HWY_EXPORT(SumsToOutput);

bool quantize_each_row(const SymmetricRows& call, std::int32_t* sums) {
  return HWY_DYNAMIC_DISPATCH(QuantizeEachRow)(call, sums);
}
bool quantize_each_column(const SymmetricRows& call) {
  return HWY_DYNAMIC_DISPATCH(QuantizeEachColumn)(call);
}
WeightSum weights_of_row(const ScoreRow& row) { return HWY_DYNAMIC_DISPATCH(WeightsOfRow)(row); }
void sums_to_output(const std::int32_t* sums, const float* scales, float factor, std::int64_t count,
                    float* dst) {
  HWY_DYNAMIC_DISPATCH(SumsToOutput)(sums, scales, factor, count, dst);
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
