#include "quanta/ops/cpu/gemm/gemv_int8.h"

#include "quanta/ops/cpu/simd/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/cpu/gemm/gemv_int8.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "quanta/ops/cpu/simd/int8_dot_simd.h"
#include "quanta/ops/cpu/simd/reduce_simd.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

#if QUANTA_VECTORS
inline constexpr auto kStep = static_cast<std::int64_t>(hn::MaxLanes(Codes()));

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
    multiply_rows<Product, 1, kBlocks.gemv_weights_of_one>(call, 0, begin, end, sums);
    return;
  }
  // A part of the weight stays in the L1 cache while all rows pass.
  constexpr std::int64_t kCachedBytes = 16384;
  const std::int64_t part =
      std::max<std::int64_t>(kCachedBytes / call.in_features / kBlocks.gemv_weights, 1) *
      kBlocks.gemv_weights;
  for (std::int64_t first = begin; first < end; first += part) {
    const std::int64_t last = std::min(first + part, end);
    // The last part may be smaller than a group, which then starts in the one before.
    const std::int64_t from = std::max(begin, std::min(first, last - kBlocks.gemv_weights));
    std::int64_t row = 0;
    for (; row + kBlocks.gemv_rows <= call.rows; row += kBlocks.gemv_rows) {
      multiply_rows<Product, kBlocks.gemv_rows, kBlocks.gemv_weights>(call, row, from, last, sums);
    }
    if (kBlocks.gemv_rows > 2 && row + 2 <= call.rows) {
      multiply_rows<Product, 2, kBlocks.gemv_weights>(call, row, from, last, sums);
      row += 2;
    }
    if (row < call.rows)
      multiply_rows<Product, 1, kBlocks.gemv_weights>(call, row, from, last, sums);
  }
}

void gemv(const GemvInt8& call, std::int64_t begin, std::int64_t end, std::int32_t* sums) {
  with_product(call.code_bits,
               [&](auto product) { multiply<decltype(product)>(call, begin, end, sums); });
}

#else  // !QUANTA_VECTORS

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

#endif  // QUANTA_VECTORS

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
