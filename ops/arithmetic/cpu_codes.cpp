#include "quanta/ops/cpu/elementwise_kernels.h"
// Before any header of Highway.
#include "quanta/ops/cpu/simd/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/arithmetic/cpu_codes.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "quanta/ops/cpu/code_blocks.h"
#include "quanta/ops/cpu/simd/simd.h"
#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/quant_math.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

// Each op makes numbers of the right operand's codes, which can be kept for many left ones, and
// joins them with the left operand's codes, to the result in steps of its scale.

float scalar_join(std::int32_t lhs, std::int32_t rhs, const AddArgs& args) {
  return math::dequantize_fused(lhs, args.lhs_scale, args.lhs_offset) +
         math::dequantize_fused(rhs, args.rhs_scale, args.rhs_offset);
}
float scalar_join(std::int32_t lhs, std::int32_t rhs, const MulArgs& args) {
  return static_cast<float>((lhs - args.lhs_zero_point) * (rhs - args.rhs_zero_point));
}

float scalar_join(std::int32_t lhs, std::int32_t rhs, const PReluArgs& args) {
  const std::int32_t difference = lhs - args.lhs_zero_point;
  return static_cast<float>(difference * (difference > 0 ? args.one : rhs - args.rhs_zero_point));
}

#if QUANTA_VECTORS
template <std::size_t kBytes>
using FloatVector = hn::Vec<Floats<kBytes>>;

// Whether no result is beyond what an int32 holds, before the clamp. The scale of a term that is
// subtracted is negative.
bool fits_int32(const AddArgs& args) {
  const double lhs = 256.0 * std::fabs(args.lhs_scale) + std::fabs(args.lhs_offset);
  const double rhs = 256.0 * std::fabs(args.rhs_scale) + std::fabs(args.rhs_offset);
  return (lhs + rhs) * args.out.inv_scale < 1073741824.0;
}
bool fits_int32(const MulArgs& args) { return 65536.0 * args.out.inv_scale < 1073741824.0; }
bool fits_int32(const PReluArgs& args) { return 65536.0 * args.out.inv_scale < 1073741824.0; }

class AddOp {
 public:
  static constexpr std::size_t kTerms = 1;
  explicit AddOp(const AddArgs& args) : args_(args) {}

  template <std::size_t kBytes>
  HWY_INLINE void right(FloatVector<kBytes> codes, FloatVector<kBytes>* terms) const {
    const Floats<kBytes> d;
    terms[0] = hn::MulAdd(codes, hn::Set(d, args_.rhs_scale), hn::Set(d, args_.rhs_offset));
  }
  template <std::size_t kBytes>
  HWY_INLINE FloatVector<kBytes> join(FloatVector<kBytes> codes,
                                      const FloatVector<kBytes>* terms) const {
    const Floats<kBytes> d;
    const auto left = hn::MulAdd(codes, hn::Set(d, args_.lhs_scale), hn::Set(d, args_.lhs_offset));
    return hn::Mul(hn::Add(left, terms[0]), hn::Set(d, args_.out.inv_scale));
  }

 private:
  AddArgs args_;
};

class MulOp {
 public:
  static constexpr std::size_t kTerms = 2;
  explicit MulOp(const MulArgs& args)
      : lhs_zero_point_(static_cast<float>(args.lhs_zero_point)),
        rhs_zero_point_(static_cast<float>(args.rhs_zero_point)),
        multiplier_(args.out.inv_scale) {}

  // left * right - left_zero * right, with right a difference of codes: products of two numbers of
  // at most 255 and their difference are exact in float32.
  template <std::size_t kBytes>
  HWY_INLINE void right(FloatVector<kBytes> codes, FloatVector<kBytes>* terms) const {
    const Floats<kBytes> d;
    terms[0] = hn::Sub(codes, hn::Set(d, rhs_zero_point_));
    terms[1] = hn::Mul(terms[0], hn::Set(d, -lhs_zero_point_));
  }
  template <std::size_t kBytes>
  HWY_INLINE FloatVector<kBytes> join(FloatVector<kBytes> codes,
                                      const FloatVector<kBytes>* terms) const {
    return hn::Mul(hn::MulAdd(codes, terms[0], terms[1]), hn::Set(Floats<kBytes>(), multiplier_));
  }

 private:
  float lhs_zero_point_, rhs_zero_point_, multiplier_;
};

class PReluOp {
 public:
  static constexpr std::size_t kTerms = 1;
  explicit PReluOp(const PReluArgs& args)
      : lhs_zero_point_(static_cast<float>(args.lhs_zero_point)),
        rhs_zero_point_(static_cast<float>(args.rhs_zero_point)),
        one_(static_cast<float>(args.one)),
        multiplier_(args.out.inv_scale) {}

  template <std::size_t kBytes>
  HWY_INLINE void right(FloatVector<kBytes> codes, FloatVector<kBytes>* terms) const {
    terms[0] = hn::Sub(codes, hn::Set(Floats<kBytes>(), rhs_zero_point_));
  }
  template <std::size_t kBytes>
  HWY_INLINE FloatVector<kBytes> join(FloatVector<kBytes> codes,
                                      const FloatVector<kBytes>* terms) const {
    const Floats<kBytes> d;
    const auto difference = hn::Sub(codes, hn::Set(d, lhs_zero_point_));
    const auto slope = hn::IfThenElse(hn::Gt(difference, hn::Zero(d)), hn::Set(d, one_), terms[0]);
    return hn::Mul(hn::Mul(difference, slope), hn::Set(d, multiplier_));
  }

 private:
  float lhs_zero_point_, rhs_zero_point_, one_, multiplier_;
};

AddOp op_of(const AddArgs& args) { return AddOp(args); }
MulOp op_of(const MulArgs& args) { return MulOp(args); }
PReluOp op_of(const PReluArgs& args) { return PReluOp(args); }
template <class Args>
using OpOf = decltype(op_of(std::declval<Args>()));

template <class Op, typename T>
struct RowSource {
  HWY_INLINE void move_to(std::int64_t) const {}
  template <std::size_t kBytes>
  HWY_INLINE FloatVector<kBytes> at(std::int64_t i) const {
    FloatVector<kBytes> terms[Op::kTerms];
    op.template right<kBytes>(load_code_floats<kBytes>(rhs + i), terms);
    return op.template join<kBytes>(load_code_floats<kBytes>(lhs + i), terms);
  }
  Op op;
  const T* lhs;
  const T* rhs;
};

template <class Op, typename T>
struct ScalarSource {
  HWY_INLINE void move_to(std::int64_t) const {}
  template <std::size_t kBytes>
  HWY_INLINE FloatVector<kBytes> at(std::int64_t i) const {
    FloatVector<kBytes> terms[Op::kTerms];
    op.template right<kBytes>(hn::Set(Floats<kBytes>(), rhs), terms);
    return op.template join<kBytes>(load_code_floats<kBytes>(lhs + i), terms);
  }
  Op op;
  const T* lhs;
  float rhs;
};

template <class Op, typename T>
struct ChannelSource {
  HWY_INLINE void move_to(std::int64_t i) { position.move_to(i); }
  template <std::size_t kBytes>
  HWY_INLINE FloatVector<kBytes> at(std::int64_t i) const {
    FloatVector<kBytes> terms[Op::kTerms];
    for (std::size_t k = 0; k < Op::kTerms; ++k) terms[k] = position.template at<kBytes>(k, i);
    return op.template join<kBytes>(load_code_floats<kBytes>(lhs + i), terms);
  }
  Op op;
  const T* lhs;
  ChannelPosition<Op::kTerms> position;
};

template <class Op, typename T>
HWY_INLINE void fill_terms(const Op& op, const T* rhs, std::int64_t channels,
                           ChannelTerms<Op::kTerms>& terms) {
  constexpr std::int64_t kStep = kVectorBytes / 4;
  using D = Floats<kVectorBytes>;
  for (std::int64_t c = 0; c < channels; c += kStep) {
    T codes[kStep] = {};
    std::copy(rhs + c, rhs + std::min(c + kStep, channels), codes);
    FloatVector<kVectorBytes> numbers[Op::kTerms];
    op.template right<kVectorBytes>(load_code_floats<kVectorBytes>(codes), numbers);
    for (std::size_t k = 0; k < Op::kTerms; ++k) hn::StoreU(numbers[k], D(), terms.term(k) + c);
  }
  terms.repeat();
}

template <class Op, Reach kReach, typename T, class Args>
std::int64_t binary_codes(const T* lhs, const T* rhs, T* dst, std::int64_t count, const Args& args,
                          Rhs kind) {
  const Op op(args);
  if (kind == Rhs::Row) {
    return write_codes<kReach>(RowSource<Op, T>{op, lhs, rhs}, args.out, dst, count);
  }
  return write_codes<kReach>(ScalarSource<Op, T>{op, lhs, static_cast<float>(*rhs)}, args.out, dst,
                             count);
}

// At most kMaxTermChannels channels; a row ends `row_step` elements after its begin.
template <class Op, Reach kReach, typename T, class Args>
void channel_codes(const T* lhs, const T* rhs, T* dst, std::int64_t rows, std::int64_t channels,
                   std::int64_t row_step, const Args& args) {
  const Op op(args);
  ChannelTerms<Op::kTerms> terms(channels);
  fill_terms(op, rhs, channels, terms);
  const ChannelPosition<Op::kTerms> position(terms);
  if (row_step == channels) {
    write_codes<kReach>(ChannelSource<Op, T>{op, lhs, position}, args.out, dst, rows * channels);
    return;
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t at = row * row_step;
    write_codes<kReach>(ChannelSource<Op, T>{op, lhs + at, position}, args.out, dst + at, channels);
  }
}

template <bool kStreaming, typename T>
std::int64_t clamp_vectors(const T* src, T* dst, std::int64_t count, T low, T high) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto low_vector = hn::Set(d, low);
  const auto high_vector = hn::Set(d, high);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    put<kStreaming>(d, hn::Min(hn::Max(hn::LoadU(d, src + i), low_vector), high_vector), dst + i);
  }
  if constexpr (kStreaming) hwy::FlushStream();
  return i;
}
#endif

template <typename T, class Args>
T scalar_code(T lhs, T rhs, const Args& args) {
  const QuantizeArgs& out = args.out;
  return static_cast<T>(math::quantize(scalar_join(lhs, rhs, args), out.inv_scale, out.zero_point,
                                       out.min, out.max, out.nan_code));
}

template <typename T, class Args>
void binary_row(const T* lhs, const T* rhs, T* dst, std::int64_t count, const Args& args,
                Rhs kind) {
  std::int64_t i = 0;
#if QUANTA_VECTORS
  using Op = OpOf<Args>;
  i = fits_int32(args) ? binary_codes<Op, Reach::Int32>(lhs, rhs, dst, count, args, kind)
                       : binary_codes<Op, Reach::Any>(lhs, rhs, dst, count, args, kind);
#endif
  const std::int64_t step = kind == Rhs::Row ? 1 : 0;
  for (; i < count; ++i) dst[i] = scalar_code(lhs[i], rhs[i * step], args);
}

template <typename T, class Args>
void binary_channels(const T* lhs, const T* rhs, T* dst, std::int64_t rows, std::int64_t channels,
                     const Args& args) {
#if QUANTA_VECTORS
  using Op = OpOf<Args>;
  if (rows * channels >= 16) {
    const std::int64_t parts = ceil_div(channels, kMaxTermChannels);
    const std::int64_t width = ceil_div(channels, parts);
    for (std::int64_t c = 0; c < channels; c += width) {
      const std::int64_t count = std::min(width, channels - c);
      if (fits_int32(args)) {
        channel_codes<Op, Reach::Int32>(lhs + c, rhs + c, dst + c, rows, count, channels, args);
      } else {
        channel_codes<Op, Reach::Any>(lhs + c, rhs + c, dst + c, rows, count, channels, args);
      }
    }
    return;
  }
#endif
  for (std::int64_t i = 0; i < rows * channels; ++i) {
    dst[i] = scalar_code(lhs[i], rhs[i % channels], args);
  }
}

template <typename T>
void clamp_row(const T* src, T* dst, std::int64_t count, T low, T high, Store store) {
  std::int64_t i = 0;
#if QUANTA_VECTORS
  i = store == Store::Streaming ? clamp_vectors<true>(src, dst, count, low, high)
                                : clamp_vectors<false>(src, dst, count, low, high);
#else
  static_cast<void>(store);
#endif
  for (; i < count; ++i) dst[i] = math::clamp(src[i], low, high);
}

// Names for the dispatch table, which takes no templates.
#define QUANTA_BINARY(op, suffix, T, Args)                                                     \
  void op##_##suffix(const T* lhs, const T* rhs, T* dst, std::int64_t count, const Args& args, \
                     Rhs kind) {                                                               \
    binary_row(lhs, rhs, dst, count, args, kind);                                              \
  }                                                                                            \
  void op##_channels_##suffix(const T* lhs, const T* rhs, T* dst, std::int64_t rows,           \
                              std::int64_t channels, const Args& args) {                       \
    binary_channels(lhs, rhs, dst, rows, channels, args);                                      \
  }
QUANTA_BINARY(add, u8, std::uint8_t, AddArgs)
QUANTA_BINARY(add, i8, std::int8_t, AddArgs)
QUANTA_BINARY(mul, u8, std::uint8_t, MulArgs)
QUANTA_BINARY(mul, i8, std::int8_t, MulArgs)
QUANTA_BINARY(prelu, u8, std::uint8_t, PReluArgs)
QUANTA_BINARY(prelu, i8, std::int8_t, PReluArgs)
#undef QUANTA_BINARY

void clamp_u8(const std::uint8_t* src, std::uint8_t* dst, std::int64_t count, std::uint8_t low,
              std::uint8_t high, Store store) {
  clamp_row(src, dst, count, low, high, store);
}
void clamp_i8(const std::int8_t* src, std::int8_t* dst, std::int64_t count, std::int8_t low,
              std::int8_t high, Store store) {
  clamp_row(src, dst, count, low, high, store);
}

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::cpu {

HWY_EXPORT(clamp_u8);
HWY_EXPORT(clamp_i8);

#define QUANTA_BINARY(op, suffix, T, Args)                                                         \
  HWY_EXPORT(op##_##suffix);                                                                       \
  HWY_EXPORT(op##_channels_##suffix);                                                              \
  void op(const T* lhs, const T* rhs, T* dst, std::int64_t count, const Args& args, Rhs kind) {    \
    HWY_DYNAMIC_DISPATCH(op##_##suffix)(lhs, rhs, dst, count, args, kind);                         \
  }                                                                                                \
  void op##_channels(const T* lhs, const T* rhs, T* dst, std::int64_t rows, std::int64_t channels, \
                     const Args& args) {                                                           \
    HWY_DYNAMIC_DISPATCH(op##_channels_##suffix)(lhs, rhs, dst, rows, channels, args);             \
  }
QUANTA_BINARY(add, u8, std::uint8_t, AddArgs)
QUANTA_BINARY(add, i8, std::int8_t, AddArgs)
QUANTA_BINARY(mul, u8, std::uint8_t, MulArgs)
QUANTA_BINARY(mul, i8, std::int8_t, MulArgs)
QUANTA_BINARY(prelu, u8, std::uint8_t, PReluArgs)
QUANTA_BINARY(prelu, i8, std::int8_t, PReluArgs)
#undef QUANTA_BINARY

void clamp_codes(const std::uint8_t* src, std::uint8_t* dst, std::int64_t count, std::uint8_t low,
                 std::uint8_t high, Store store) {
  HWY_DYNAMIC_DISPATCH(clamp_u8)(src, dst, count, low, high, store);
}
void clamp_codes(const std::int8_t* src, std::int8_t* dst, std::int64_t count, std::int8_t low,
                 std::int8_t high, Store store) {
  HWY_DYNAMIC_DISPATCH(clamp_i8)(src, dst, count, low, high, store);
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
