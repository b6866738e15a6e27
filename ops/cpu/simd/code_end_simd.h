// Private: the end of a product whose sums become codes (gemm_codes.h), four vectors at a time,
// inside Highway's foreach_target (hence the guard that toggles).

#if defined(QUANTA_OPS_CPU_CODE_END_SIMD_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUANTA_OPS_CPU_CODE_END_SIMD_H_
#undef QUANTA_OPS_CPU_CODE_END_SIMD_H_
#else
#define QUANTA_OPS_CPU_CODE_END_SIMD_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "quanta/ops/cpu/code_blocks.h"
#include "quanta/ops/cpu/gemm/gemm_codes.h"
#include "quanta/ops/cpu/simd/lookup_simd.h"
#include "quanta/ops/cpu/simd/requantize_simd.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {

inline constexpr std::int64_t kPairColumns = 32;

/// How sums end. The shorter forms are for what is known before a call.
enum class Ending : std::uint8_t {
  Any,
  Bounded,       ///< results before the clamp are within the range of int32
  BoundedPlain,  ///< and zero point and smallest code are 0: packing clamps
  BoundedTable,  ///< and codes are looked up in a table while they are in a register
  Added,         ///< codes of another tensor are added, then looked up if there is a table
  AddedPlain,    ///< added, the sums as those of BoundedPlain
};
constexpr bool adds(Ending ending) {
  return ending == Ending::Added || ending == Ending::AddedPlain;
}

/// Whether sums with the addend become codes by rounding and packing alone.
inline bool is_plain_sum(const AddArgs& args) {
  constexpr float kMostCode = 255.0F;
  const float reach = (kMostCode * (std::fabs(args.lhs_scale) + std::fabs(args.rhs_scale)) +
                       std::fabs(args.lhs_offset) + std::fabs(args.rhs_offset)) *
                      std::fabs(args.out.inv_scale);
  return args.out.zero_point == 0 && args.out.min == 0 && args.out.max == 255 &&
         reach < 1073741824.0F;  // false for NaN
}

inline Ending ending_of(const GemmCodes& call) {
  if (call.addend.codes != nullptr) {
    return call.table == nullptr && is_plain_sum(call.addend.args) ? Ending::AddedPlain
                                                                   : Ending::Added;
  }
  if (!call.requantize.bounded) return Ending::Any;
  if (call.table != nullptr) return Ending::BoundedTable;
  const bool is_plain = call.requantize.zero_point == 0 && call.requantize.min == 0;
  return is_plain ? Ending::BoundedPlain : Ending::Bounded;
}

/// Calls `body` with the ending as a constant.
template <class Body>
HWY_INLINE void with_ending(Ending ending, const Body& body) {
  switch (ending) {
    case Ending::Any:
      return body(std::integral_constant<Ending, Ending::Any>());
    case Ending::Bounded:
      return body(std::integral_constant<Ending, Ending::Bounded>());
    case Ending::BoundedPlain:
      return body(std::integral_constant<Ending, Ending::BoundedPlain>());
    case Ending::BoundedTable:
      return body(std::integral_constant<Ending, Ending::BoundedTable>());
    case Ending::Added:
      return body(std::integral_constant<Ending, Ending::Added>());
    case Ending::AddedPlain:
      return body(std::integral_constant<Ending, Ending::AddedPlain>());
  }
}

/// The columns of a pair of panels that there are.
inline std::int64_t columns_of(const GemmCodes& call, std::int64_t panel) {
  return std::min(kPairColumns, call.weight.out_features - panel * 16);
}

/// Whether what vectors of `width` columns write beyond a row's end lies in the next row: the product
/// has no columns but these, and they fill at least half of the vectors.
inline bool ends_in_next_row(const GemmCodes& call, std::int64_t panel, std::int64_t width) {
  const std::int64_t columns = columns_of(call, panel);
  return columns == call.weight.out_features && 2 * columns >= width;
}

inline void copy_columns(const std::uint8_t* codes, std::int64_t columns, std::uint8_t* dst) {
  std::int64_t i = 0;
  for (; i + 8 <= columns; i += 8) std::memcpy(dst + i, codes + i, 8);
  for (; i < columns; ++i) dst[i] = codes[i];
}

/// Rows of codes, and how far they are apart.
template <typename Code>
struct CodeLines {
  Code* first;
  std::int64_t stride;
};

/// Not a member: what the sums' end needs could not stay in registers.
HWY_NOINLINE inline void copy_rows(CodeLines<const std::uint8_t> from, std::int64_t columns,
                                   int rows, CodeLines<std::uint8_t> to) {
  for (int r = 0; r < rows; ++r) {
    copy_columns(from.first + r * from.stride, columns, to.first + r * to.stride);
  }
}

#if QUANTA_VECTORS

inline RequantizeParams params_of(const PanelRequantize& requantize) {
  return {nullptr,        nullptr,        requantize.zero_point,
          requantize.min, requantize.max, requantize.bias_factor};
}

/// Sums of kVectors vectors of a pair of panels to codes, written to a call's result.
template <Ending kEnding, int kVectors>
class CodeEnd {
 public:
  static constexpr std::size_t kBytes = kVectorBytes;
  static constexpr auto kLanes = static_cast<std::int64_t>(kBytes / 4);
  static constexpr std::int64_t kWidth = kVectors * kLanes;
  /// Rows that fill a vector of codes.
  static constexpr int kGroup = 4 / kVectors;

  HWY_INLINE CodeEnd(const GemmCodes& call, std::int64_t panel)
      : requantizer_(params_of(call.requantize)),
        packer_(call.addend.args.out),
        args_(call.addend.args),
        low_(static_cast<float>(call.requantize.min - call.requantize.zero_point)),
        high_(static_cast<float>(call.requantize.max - call.requantize.zero_point)),
        zero_point_(static_cast<float>(call.requantize.zero_point)),
        table_(call.table),
        stride_(call.weight.out_features),
        columns_(columns_of(call, panel)),
        first_(panel * 16),
        dst_(call.dst + first_),
        addend_(call.addend.codes + (adds(kEnding) ? first_ : 0)) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t at = first_ + v * kLanes;
      bias_[v] = hn::LoadU(Floats<kBytes>(), call.requantize.bias.data() + at);
      multiplier_[v] = hn::LoadU(Floats<kBytes>(), call.requantize.multiplier.data() + at);
    }
  }

  /// Whether rows have all columns of the vectors.
  HWY_INLINE bool is_whole() const { return columns_ >= kWidth; }

  /// A group of rows from `row` on; `sum(i)` is vector i of its four. For whole rows; or, where
  /// ends_in_next_row(), for rows behind which others are still to be written.
  template <class Sum>
  HWY_INLINE void write(const Sum& sum, std::int64_t row) const {
    const auto all = codes(sum, [&](int i) QUANTA_INLINED {
      return addend_ + (row + i / kVectors) * stride_ + i % kVectors * kLanes;
    });
    std::uint8_t* dst = dst_ + row * stride_;
    if constexpr (kGroup == 1) {
      hn::StoreU(all, Bytes<kBytes>(), dst);
    } else {
      alignas(64) std::uint8_t rows[kBytes];
      hn::Store(all, Bytes<kBytes>(), rows);
      const hn::FixedTag<std::uint8_t, kWidth> d;
#pragma GCC unroll 4
      for (int r = 0; r < kGroup; ++r)
        hn::StoreU(hn::Load(d, rows + r * kWidth), d, dst + r * stride_);
    }
  }

  /// The same for any rows, `there` of them.
  template <class Sum>
  HWY_INLINE void write_some(const Sum& sum, std::int64_t row, int there) const {
    alignas(64) std::uint8_t added[4 * kLanes];
    const std::int64_t columns = std::min(columns_, kWidth);
    if constexpr (adds(kEnding)) {
      std::fill_n(added, 4 * kLanes, std::uint8_t{0});
      copy_rows({addend_ + row * stride_, stride_}, columns, there, {added, kWidth});
    }
    const auto all = codes(sum, [&](int i) QUANTA_INLINED { return added + i * kLanes; });
    alignas(64) std::uint8_t rows[kBytes];
    hn::Store(all, Bytes<kBytes>(), rows);
    copy_rows({rows, kWidth}, columns, there, {dst_ + row * stride_, stride_});
  }

 private:
  using FloatVector = hn::Vec<Floats<kBytes>>;

  /// Four vectors of sums to codes in their order; `other(i)` is where the addends of vector i are.
  template <class Sum, class Other>
  HWY_INLINE hn::Vec<Bytes<kBytes>> codes(const Sum& sum, const Other& other) const {
    hn::Vec<Ints<kBytes>> part[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const int v = i % kVectors;
      if constexpr (adds(kEnding)) {
        part[i] = sum_with(requantizer_.value(sum(i), bias_[v], multiplier_[v]), other(i));
      } else if constexpr (kEnding == Ending::Any) {
        part[i] = requantizer_.scaled(sum(i), bias_[v], multiplier_[v]);
      } else {
        part[i] = requantizer_.scaled_bounded(sum(i), bias_[v], multiplier_[v]);
      }
    }
    if constexpr (kEnding == Ending::Added) {
      const auto result = packer_.codes(part[0], part[1], part[2], part[3]);
      return table_ != nullptr ? TableVectors(*table_)(result) : result;
    } else if constexpr (kEnding == Ending::BoundedPlain || kEnding == Ending::AddedPlain) {
      return in_order<kBytes>(
          pack_bytes(pack_words(part[0], part[1]), pack_words(part[2], part[3])));
    } else {
      const auto result = in_order<kBytes>(requantizer_.codes(part[0], part[1], part[2], part[3]));
      if constexpr (kEnding == Ending::BoundedTable) return TableVectors(*table_)(result);
      return result;
    }
  }

  /// The code of `scaled` joined with that of the addend, before it is packed. A code is rounded by
  /// adding a number so large that its unit is 1, which gives ties to even as a conversion does.
  HWY_INLINE hn::Vec<Ints<kBytes>> sum_with(FloatVector scaled, const std::uint8_t* other) const {
    const Floats<kBytes> d;
    constexpr float kUnits = 12582912.0F;  // 1.5 * 2^23
    // The order of operands matters for NaN: it becomes the highest code.
    const auto clamped = hn::Max(hn::Min(scaled, hn::Set(d, high_)), hn::Set(d, low_));
    const auto code =
        hn::Sub(hn::Add(clamped, hn::Set(d, kUnits)), hn::Set(d, kUnits - zero_point_));
    const auto left = hn::MulAdd(code, hn::Set(d, args_.lhs_scale), hn::Set(d, args_.lhs_offset));
    const auto right = hn::MulAdd(load_code_floats<kBytes>(other), hn::Set(d, args_.rhs_scale),
                                  hn::Set(d, args_.rhs_offset));
    constexpr Reach kReach = kEnding == Ending::AddedPlain ? Reach::Int32 : Reach::Any;
    return packer_.template rounded<kReach>(
        hn::Mul(hn::Add(left, right), hn::Set(d, args_.out.inv_scale)));
  }

  Requantizer<kBytes> requantizer_;
  CodePacker<std::uint8_t, kBytes> packer_;
  AddArgs args_;
  float low_, high_, zero_point_;
  const CodeTable* table_;
  std::int64_t stride_, columns_, first_;
  std::uint8_t* dst_;
  const std::uint8_t* addend_;
  FloatVector bias_[kVectors], multiplier_[kVectors];
};

#endif  // QUANTA_VECTORS

}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
