// Private: rows of codes that take turns in a product, inside Highway's foreach_target (hence the
// guard that toggles).

#if defined(QUANTA_OPS_CPU_CODE_ROWS_SIMD_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUANTA_OPS_CPU_CODE_ROWS_SIMD_H_
#undef QUANTA_OPS_CPU_CODE_ROWS_SIMD_H_
#else
#define QUANTA_OPS_CPU_CODE_ROWS_SIMD_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

#include "quanta/ops/cpu/gemm/panels.h"
#include "quanta/ops/cpu/simd/int8_dot_simd.h"
#include "quanta/runtime/detail/ceil_div.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
#if QUANTA_VECTORS

/// The rows of the block that takes what blocks of `rows` rows leave. Lines of 7, 14 or 28 pixels are
/// common.
constexpr int fewer_rows(int rows) {
  if (rows == 14) return 8;
  if (rows == 8) return 7;
  return rows == 7 ? 4 : rows / 2;
}

/// Rows of codes at one distance, three to a pointer: a register for each row may be more than
/// there are.
template <int kRows>
class RowPointers {
 public:
  HWY_INLINE RowPointers(const std::uint8_t* src, std::int64_t stride) : stride_(stride) {
#pragma GCC unroll 8
    for (int i = 0; i < kPointers; ++i) at_[i] = src + i * kRowsOfOne * stride_;
  }
  /// The four codes of row r, `group` groups on.
  HWY_INLINE hn::Vec<Codes> four(int r, int group) const {
    const std::uint8_t* at = at_[r / kRowsOfOne] + r % kRowsOfOne * stride_ + group * kPanelDepth;
    std::int32_t codes;
    std::memcpy(&codes, at, sizeof(codes));
    return hn::BitCast(Codes(), hn::Set(Sums(), codes));
  }
  HWY_INLINE void advance(int groups) {
#pragma GCC unroll 8
    for (int i = 0; i < kPointers; ++i) {
      at_[i] += groups * kPanelDepth;
      // Keeps the compiler from making pointers of its own for every row.
      asm("" : "+r"(at_[i]));
    }
  }

 private:
  static constexpr int kRowsOfOne = 3;
  static constexpr int kPointers = ceil_div(kRows, kRowsOfOne);
  const std::uint8_t* at_[kPointers];
  std::int64_t stride_;
};

/// Adds to the sums of kRows rows and kVectors vectors of channels the products of the four codes
/// `group` groups on; `weight` is where those of the first panel are, the next one `panel_bytes`
/// behind it.
template <class Product, int kRows, int kVectors>
HWY_INLINE void add_group(const RowPointers<kRows>& codes, int group, const std::int8_t* weight,
                          std::int64_t panel_bytes, hn::Vec<Sums> (&acc)[kRows][kVectors]) {
  constexpr int kPanelVectors = static_cast<int>(kPanelGroup / kVectorBytes);
  hn::Vec<Weights> w[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    w[v] = hn::LoadU(Weights(), weight + v / kPanelVectors * panel_bytes +
                                    v % kPanelVectors * static_cast<std::int64_t>(kVectorBytes));
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    const auto x = Product::prepare(codes.four(r, group));
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) acc[r][v] = Product::add(acc[r][v], x, w[v]);
  }
}

/// Groups that are added from one call of add_groups's `each` to the next.
inline constexpr int kGroupsTogether = 4;

/// add_group for the next `groups` groups of `codes`; returns where the weight goes on. `each` asks for
/// what is wanted later.
template <class Product, int kRows, int kVectors, class Each>
HWY_INLINE const std::int8_t* add_groups(RowPointers<kRows>& codes, std::int64_t groups,
                                         const std::int8_t* weight, std::int64_t panel_bytes,
                                         hn::Vec<Sums> (&acc)[kRows][kVectors], const Each& each) {
  for (; groups >= kGroupsTogether; groups -= kGroupsTogether) {
    each();
#pragma GCC unroll 4
    for (int group = 0; group < kGroupsTogether; ++group) {
      add_group<Product, kRows, kVectors>(codes, group, weight + group * kPanelGroup, panel_bytes,
                                          acc);
    }
    codes.advance(kGroupsTogether);
    weight += kGroupsTogether * kPanelGroup;
  }
  for (; groups > 0; --groups) {
    add_group<Product, kRows, kVectors>(codes, 0, weight, panel_bytes, acc);
    codes.advance(1);
    weight += kPanelGroup;
  }
  return weight;
}

/// Dense rows that come after a block of kRows rows, asked for as fast as the block reads its own. Rows
/// are read side by side: the processor does not see which come. A few are streams that it follows.
template <int kRows>
class DenseRowsAhead {
 public:
  /// Blocks of so many rows ask, the largest ones.
  static constexpr bool kPays = kRows >= 8;

  /// `first` is the block's own first row, of `bytes` bytes; there may be no rows behind the block. Long
  /// rows are not asked for: they would be gone from the L1 cache before their turn.
  HWY_INLINE DenseRowsAhead(const std::uint8_t* first, std::int64_t bytes, bool dense) {
    constexpr std::int64_t kL1Share = 16384;
    const bool asks = dense && kRows * bytes <= kL1Share;
    at_ = reinterpret_cast<std::uintptr_t>(first) +
          static_cast<std::uintptr_t>(asks ? kRows * bytes : 0);
    step_ = asks ? kStep : 0;
  }
  HWY_INLINE void fetch() {
#pragma GCC unroll 4
    for (std::uintptr_t line = 0; line < kStep; line += 64) {
      __builtin_prefetch(reinterpret_cast<const void*>(at_ + line));
    }
    at_ += step_;
  }

 private:
  static constexpr std::uintptr_t kStep = kRows * kGroupsTogether * kPanelDepth;

  std::uintptr_t at_, step_;
};

#endif  // QUANTA_VECTORS
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
