// Private: tiles of sums of products, for the kernels of attention inside Highway's foreach_target
// (hence the guard that toggles).

#if defined(QUANTA_OPS_ATTENTION_PRODUCTS_SIMD_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUANTA_OPS_ATTENTION_PRODUCTS_SIMD_H_
#undef QUANTA_OPS_ATTENTION_PRODUCTS_SIMD_H_
#else
#define QUANTA_OPS_ATTENTION_PRODUCTS_SIMD_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "quanta/ops/attention/cpu_softmax_simd.h"
#include "quanta/ops/cpu/simd/fused_simd.h"
#include "quanta/runtime/detail/ceil_div.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

/// Vectors and rows of a tile of sums: with what they are multiplied with they fill the registers.
#if QUANTA_AVX512
constexpr int kTileVectors = 4;
constexpr int tile_rows(int vectors) { return vectors <= 2 ? 12 : vectors == 3 ? 8 : 6; }
#else
constexpr int kTileVectors = 2;
constexpr int tile_rows(int) { return 6; }
#endif
/// What rows are left in after tiles of so many.
constexpr int fewer_rows(int rows) { return rows == 12 ? 8 : rows == 6 ? 4 : rows / 2; }

/// Numbers of kRows rows that are broadcast, `stride` apart: three rows to a pointer, as there are
/// fewer pointers than rows.
template <int kRows>
class Broadcasts {
 public:
  Broadcasts(const float* first, std::int64_t stride) : stride_(stride) {
    for (int i = 0; i < kPointers; ++i) at_[i] = first + i * kRowsOfOne * stride;
  }
  HWY_INLINE AttentionVector operator[](int r) const {
    return hn::Set(AttentionTag(), at_[r / kRowsOfOne][r % kRowsOfOne * stride_]);
  }
  HWY_INLINE void advance(std::int64_t step) {
#pragma GCC unroll 8
    for (int i = 0; i < kPointers; ++i) {
      at_[i] += step;
      // Keeps the compiler from making pointers of its own for every row.
      asm("" : "+r"(at_[i]));
    }
  }

 private:
  static constexpr int kRowsOfOne = 3;
  static constexpr int kPointers = ceil_div(kRows, kRowsOfOne);
  const float* at_[kPointers];
  std::int64_t stride_;
};

/// Numbers that are neighbours.
class Neighbours {
 public:
  explicit Neighbours(const float* first) : at_(first) {}
  HWY_INLINE AttentionVector operator[](int r) const { return hn::Set(AttentionTag(), at_[r]); }
  HWY_INLINE void advance(std::int64_t step) { at_ += step; }

 private:
  const float* at_;
};

/// sums[r][v] += a broadcast number times a vector of `vectors`, for `count` steps.
template <int kRows, int kVectors, class Rows>
HWY_INLINE void add_products(AttentionVector (&sums)[kRows][kVectors], Rows rows,
                             std::int64_t row_step, const float* vectors, std::int64_t vector_step,
                             std::int64_t count) {
  for (; count > 0; --count, vectors += vector_step) {
    AttentionVector x[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      x[v] = hn::LoadU(AttentionTag(), vectors + v * kAttentionLanes);
    }
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      const auto y = rows[r];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = fused_add(AttentionTag(), y, x[v], sums[r][v]);
      }
    }
    rows.advance(row_step);
  }
}

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
