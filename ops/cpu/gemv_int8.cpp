#include "quanta/ops/cpu/gemv_int8.h"

#include "quanta/ops/cpu/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/cpu/gemv_int8.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "quanta/ops/cpu/reduce_simd.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

#if HWY_TARGET != HWY_SCALAR
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET <= HWY_AVX3
using Codes = hn::FixedTag<std::uint8_t, 64>;
/// Rows of codes, and of the weight, that are multiplied at a time: what the registers hold.
inline constexpr int kMaxRows = 4;
inline constexpr int kWeightRows = 4;
inline constexpr int kWeightRowsOfOne = 8;
#else
using Codes = hn::FixedTag<std::uint8_t, 32>;
inline constexpr int kMaxRows = 2;
inline constexpr int kWeightRows = 4;
inline constexpr int kWeightRowsOfOne = 4;
#endif
using Weights = hn::RebindToSigned<Codes>;
using Words = hn::RepartitionToWide<Weights>;
using Sums = hn::RepartitionToWide<Words>;
using HalfCodes = hn::Half<Codes>;
using HalfWeights = hn::Half<Weights>;
inline constexpr auto kStep = static_cast<std::int64_t>(hn::MaxLanes(Codes()));

// One step of a sum: the products of kStep codes and weights, added up in lanes of 32 bits.

/// vpdpbusd adds four products to a lane.
struct Vnni {
  using Operand = hn::Vec<Codes>;
  static HWY_INLINE Operand prepare(hn::Vec<Codes> x) { return x; }
  static HWY_INLINE hn::Vec<Sums> add(hn::Vec<Sums> sum, const Operand& x, hn::Vec<Weights> w) {
    // Highway does not let the compiler use these instructions.
#if HWY_TARGET <= HWY_AVX3
    asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(x.raw), "v"(w.raw));
#else
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum.raw) : "x"(x.raw), "x"(w.raw));
#endif
    return sum;
  }
};

/// vpmaddubsw adds two products in 16 bits. Codes are at most 128 here and weights lie in
/// -128..127, so that the lowest sum is -32768 and the highest 32512: none saturates.
struct Pairs {
  using Operand = hn::Vec<Codes>;
  static HWY_INLINE Operand prepare(hn::Vec<Codes> x) { return x; }
  static HWY_INLINE hn::Vec<Sums> add(hn::Vec<Sums> sum, const Operand& x, hn::Vec<Weights> w) {
#if HWY_TARGET <= HWY_AVX3
    const hn::Vec<Words> pairs{_mm512_maddubs_epi16(x.raw, w.raw)};
    const hn::Vec<Sums> quads{_mm512_madd_epi16(pairs.raw, hn::Set(Words(), 1).raw)};
#else
    const hn::Vec<Words> pairs{_mm256_maddubs_epi16(x.raw, w.raw)};
    const hn::Vec<Sums> quads{_mm256_madd_epi16(pairs.raw, hn::Set(Words(), 1).raw)};
#endif
    return hn::Add(sum, quads);
  }
};

/// Everything in 16 bits first: no sum of two products overflows 32 bits.
struct Wide {
  struct Operand {
    hn::Vec<Words> low, high;
  };
  static HWY_INLINE hn::Vec<Sums> products(hn::Vec<Words> a, hn::Vec<Words> b) {
#if HWY_TARGET <= HWY_AVX3
    return hn::Vec<Sums>{_mm512_madd_epi16(a.raw, b.raw)};
#else
    return hn::Vec<Sums>{_mm256_madd_epi16(a.raw, b.raw)};
#endif
  }
  static HWY_INLINE Operand prepare(hn::Vec<Codes> x) {
    return {hn::PromoteTo(Words(), hn::LowerHalf(HalfCodes(), x)),
            hn::PromoteTo(Words(), hn::UpperHalf(HalfCodes(), x))};
  }
  static HWY_INLINE hn::Vec<Sums> add(hn::Vec<Sums> sum, const Operand& x, hn::Vec<Weights> w) {
    const auto low = hn::PromoteTo(Words(), hn::LowerHalf(HalfWeights(), w));
    const auto high = hn::PromoteTo(Words(), hn::UpperHalf(HalfWeights(), w));
    return hn::Add(sum, hn::Add(products(x.low, low), products(x.high, high)));
  }
};

/// The last `count` weights of rows that are `stride` apart, each filled up to a step. With what
/// does not matter: codes are zeros there.
HWY_INLINE void copy_rest(const std::int8_t* src, std::int64_t stride, std::int64_t count, int rows,
                          std::int8_t* dst) {
  std::memset(dst, 0, static_cast<std::size_t>(rows * kStep));
  for (int r = 0; r < rows; ++r) {
    std::memcpy(dst + r * kStep, src + r * stride, static_cast<std::size_t>(count));
  }
}

/// kRows rows of codes times kCount rows of the weight, a multiple of four or one.
template <class Product, int kRows, int kCount>
HWY_INLINE void multiply_block(const GemvInt8& call, std::int64_t row, std::int64_t n,
                               std::int32_t* sums) {
  // One row is bound by memory. The hardware's prefetcher stops at the end of each page, this does
  // not; lines beyond the weight's end do no harm.
  constexpr std::int64_t kPrefetch = 4096;
  const std::int64_t depth = call.in_features;
  const std::uint8_t* src = call.src + row * call.src_stride;
  const std::int8_t* weight = call.weight + n * depth;
  hn::Vec<Sums> acc[kRows][kCount];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int c = 0; c < kCount; ++c) acc[r][c] = hn::Zero(Sums());
  }
  // Whole steps, then a copy of what is left, in one loop without branches: GCC keeps the sums in
  // memory otherwise.
  struct Part {
    const std::int8_t* weight;
    std::int64_t stride, begin, end;
  };
  alignas(64) std::int8_t rest[kCount * kStep];
  const std::int64_t whole = depth / kStep * kStep;
  if (whole < depth) copy_rest(weight + whole, depth, depth - whole, kCount, rest);
  for (const Part& part : {Part{weight, depth, 0, whole}, Part{rest, kStep, whole, depth}}) {
    const std::int8_t* w_at = part.weight;
    for (std::int64_t k = part.begin; k < part.end; k += kStep, w_at += kStep) {
      hn::Vec<Weights> w[kCount];
#pragma GCC unroll 8
      for (int c = 0; c < kCount; ++c) {
        hwy::Prefetch(w_at + c * part.stride + kPrefetch);
        w[c] = hn::LoadU(Weights(), w_at + c * part.stride);
      }
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const auto x = Product::prepare(hn::Load(Codes(), src + r * call.src_stride + k));
#pragma GCC unroll 8
        for (int c = 0; c < kCount; ++c) acc[r][c] = Product::add(acc[r][c], x, w[c]);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    std::int32_t* dst = sums + (row + r) * call.out_features + n;
    if constexpr (kCount == 1) {
      *dst = hn::GetLane(hn::SumOfLanes(Sums(), acc[r][0]));
    } else {
#pragma GCC unroll 2
      for (int c = 0; c < kCount; c += 4) {
        hn::StoreU(sum_lanes_of_four(acc[r][c], acc[r][c + 1], acc[r][c + 2], acc[r][c + 3]),
                   hn::FixedTag<std::int32_t, 4>(), dst + c);
      }
    }
  }
}

/// kRows rows times [begin, end) of the weight, kCount at a time; the last group is moved back.
template <class Product, int kRows, int kCount>
HWY_INLINE void multiply_rows(const GemvInt8& call, std::int64_t row, std::int64_t begin,
                              std::int64_t end, std::int32_t* sums) {
  if (end - begin < kCount) {
    for (std::int64_t n = begin; n < end; ++n) {
      multiply_block<Product, kRows, 1>(call, row, n, sums);
    }
    return;
  }
  for (std::int64_t n = begin; n < end; n += kCount) {
    multiply_block<Product, kRows, kCount>(call, row, std::min(n, end - kCount), sums);
  }
}

template <class Product>
void multiply(const GemvInt8& call, std::int64_t begin, std::int64_t end, std::int32_t* sums) {
  if (call.rows == 1) {
    multiply_rows<Product, 1, kWeightRowsOfOne>(call, 0, begin, end, sums);
    return;
  }
  // A part of the weight stays in the L1 cache while all rows pass.
  constexpr std::int64_t kCachedBytes = 16384;
  const std::int64_t part =
      std::max<std::int64_t>(kCachedBytes / call.in_features / kWeightRows, 1) * kWeightRows;
  for (std::int64_t first = begin; first < end; first += part) {
    const std::int64_t last = std::min(first + part, end);
    // The last part may be smaller than a group, which then starts in the one before.
    const std::int64_t from = std::max(begin, std::min(first, last - kWeightRows));
    std::int64_t row = 0;
    for (; row + kMaxRows <= call.rows; row += kMaxRows) {
      multiply_rows<Product, kMaxRows, kWeightRows>(call, row, from, last, sums);
    }
#if HWY_TARGET <= HWY_AVX3
    if (row + 2 <= call.rows) {
      multiply_rows<Product, 2, kWeightRows>(call, row, from, last, sums);
      row += 2;
    }
#endif
    if (row < call.rows) multiply_rows<Product, 1, kWeightRows>(call, row, from, last, sums);
  }
}

/// Whether this target's form of vpdpbusd is there: short vectors have one of their own, which some
/// machines with AVX-512's lack.
bool has_dot_product(const GemvInt8& call) {
#if HWY_TARGET <= HWY_AVX3
  return call.vnni;
#else
  static const bool avx_vnni = __builtin_cpu_supports("avxvnni") != 0;
  return call.vnni && avx_vnni;
#endif
}

void gemv(const GemvInt8& call, std::int64_t begin, std::int64_t end, std::int32_t* sums) {
  if (has_dot_product(call)) return multiply<Vnni>(call, begin, end, sums);
  if (call.code_bits == CodeBits::Seven) return multiply<Pairs>(call, begin, end, sums);
  multiply<Wide>(call, begin, end, sums);
}

#else  // HWY_TARGET == HWY_SCALAR

void gemv(const GemvInt8& call, std::int64_t begin, std::int64_t end, std::int32_t* sums) {
  for (std::int64_t row = 0; row < call.rows; ++row) {
    const std::uint8_t* src = call.src + row * call.src_stride;
    for (std::int64_t n = begin; n < end; ++n) {
      const std::int8_t* weight = call.weight + n * call.in_features;
      std::uint32_t sum = 0;
      for (std::int64_t k = 0; k < call.in_features; ++k) {
        sum += static_cast<std::uint32_t>(src[k] * weight[k]);
      }
      sums[row * call.out_features + n] = static_cast<std::int32_t>(sum);
    }
  }
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::cpu {

HWY_EXPORT(gemv);

void gemv_int8(const GemvInt8& call, std::int64_t begin, std::int64_t end, std::int32_t* sums) {
  HWY_DYNAMIC_DISPATCH(gemv)(call, begin, end, sums);
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
