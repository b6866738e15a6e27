#include "quanta/ops/cpu/elementwise_kernels.h"
// Before any header of Highway.
#include "quanta/ops/cpu/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/cpu/arithmetic_kernels.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "quanta/ops/cpu/simd.h"
#include "quanta/runtime/quant_math.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

#if HWY_TARGET != HWY_SCALAR
class AddVector {
 public:
  explicit AddVector(const AddArgs& args)
      : lhs_scale_(hn::Set(FloatTag(), args.lhs_scale)),
        lhs_offset_(hn::Set(FloatTag(), args.lhs_offset)),
        rhs_scale_(hn::Set(FloatTag(), args.rhs_scale)),
        rhs_offset_(hn::Set(FloatTag(), args.rhs_offset)) {}

  HWY_INLINE hn::Vec<FloatTag> left(hn::Vec<IntTag> codes) const {
    return hn::MulAdd(hn::ConvertTo(FloatTag(), codes), lhs_scale_, lhs_offset_);
  }
  HWY_INLINE hn::Vec<FloatTag> right(hn::Vec<IntTag> codes) const {
    return hn::MulAdd(hn::ConvertTo(FloatTag(), codes), rhs_scale_, rhs_offset_);
  }
  HWY_INLINE hn::Vec<FloatTag> join(hn::Vec<FloatTag> lhs, hn::Vec<FloatTag> rhs) const {
    return hn::Add(lhs, rhs);
  }

 private:
  hn::Vec<FloatTag> lhs_scale_, lhs_offset_, rhs_scale_, rhs_offset_;
};

class MulVector {
 public:
  explicit MulVector(const MulArgs& args)
      : lhs_zero_point_(hn::Set(IntTag(), args.lhs_zero_point)),
        rhs_zero_point_(hn::Set(IntTag(), args.rhs_zero_point)) {}

  // The product of two differences of at most 255 is exact in float32.
  HWY_INLINE hn::Vec<FloatTag> left(hn::Vec<IntTag> codes) const {
    return hn::ConvertTo(FloatTag(), hn::Sub(codes, lhs_zero_point_));
  }
  HWY_INLINE hn::Vec<FloatTag> right(hn::Vec<IntTag> codes) const {
    return hn::ConvertTo(FloatTag(), hn::Sub(codes, rhs_zero_point_));
  }
  HWY_INLINE hn::Vec<FloatTag> join(hn::Vec<FloatTag> lhs, hn::Vec<FloatTag> rhs) const {
    return hn::Mul(lhs, rhs);
  }

 private:
  hn::Vec<IntTag> lhs_zero_point_, rhs_zero_point_;
};

template <Rhs kRhs, class Op, typename T>
class BinarySource {
 public:
  template <class Args>
  BinarySource(const T* lhs, const T* rhs, const Args& args)
      : op_(args),
        one_(op_.right(hn::Set(IntTag(), static_cast<std::int32_t>(*rhs)))),
        lhs_(lhs),
        rhs_(rhs) {}

  HWY_INLINE hn::Vec<FloatTag> at(std::int64_t i) const {
    const auto left = op_.left(load_codes(lhs_ + i));
    if constexpr (kRhs == Rhs::Row) {
      return op_.join(left, op_.right(load_codes(rhs_ + i)));
    } else {
      return op_.join(left, one_);
    }
  }

 private:
  Op op_;
  hn::Vec<FloatTag> one_;
  const T* lhs_;
  const T* rhs_;
};

template <class Op, typename T, class Args>
std::int64_t binary_vectors(const T* lhs, const T* rhs, T* dst, std::int64_t count,
                            const Args& args, Rhs kind) {
  if (count < kLanes) return 0;
  auto* bytes = reinterpret_cast<std::uint8_t*>(dst);
  if (kind == Rhs::Scalar) {
    return quantize_all<NanCode::Max, false>(BinarySource<Rhs::Scalar, Op, T>(lhs, rhs, args),
                                             args.out, bytes, count);
  }
  return quantize_all<NanCode::Max, false>(BinarySource<Rhs::Row, Op, T>(lhs, rhs, args), args.out,
                                           bytes, count);
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

template <typename T>
void add_row(const T* lhs, const T* rhs, T* dst, std::int64_t count, const AddArgs& args,
             Rhs kind) {
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  i = binary_vectors<AddVector>(lhs, rhs, dst, count, args, kind);
#endif
  const std::int64_t step = kind == Rhs::Row ? 1 : 0;
  const QuantizeArgs& out = args.out;
  for (; i < count; ++i) {
    const float sum = math::dequantize_fused(lhs[i], args.lhs_scale, args.lhs_offset) +
                      math::dequantize_fused(rhs[i * step], args.rhs_scale, args.rhs_offset);
    dst[i] = static_cast<T>(
        math::quantize(sum, out.inv_scale, out.zero_point, out.min, out.max, out.nan_code));
  }
}

template <typename T>
void mul_row(const T* lhs, const T* rhs, T* dst, std::int64_t count, const MulArgs& args,
             Rhs kind) {
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  i = binary_vectors<MulVector>(lhs, rhs, dst, count, args, kind);
#endif
  const std::int64_t step = kind == Rhs::Row ? 1 : 0;
  const QuantizeArgs& out = args.out;
  for (; i < count; ++i) {
    const std::int32_t product =
        (lhs[i] - args.lhs_zero_point) * (rhs[i * step] - args.rhs_zero_point);
    dst[i] = static_cast<T>(math::quantize(static_cast<float>(product), out.inv_scale,
                                           out.zero_point, out.min, out.max, out.nan_code));
  }
}

template <typename T>
void clamp_row(const T* src, T* dst, std::int64_t count, T low, T high, Store store) {
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  i = store == Store::Streaming ? clamp_vectors<true>(src, dst, count, low, high)
                                : clamp_vectors<false>(src, dst, count, low, high);
#else
  static_cast<void>(store);
#endif
  for (; i < count; ++i) dst[i] = math::clamp(src[i], low, high);
}

void add_u8(const std::uint8_t* lhs, const std::uint8_t* rhs, std::uint8_t* dst, std::int64_t count,
            const AddArgs& args, Rhs kind) {
  add_row(lhs, rhs, dst, count, args, kind);
}
void add_i8(const std::int8_t* lhs, const std::int8_t* rhs, std::int8_t* dst, std::int64_t count,
            const AddArgs& args, Rhs kind) {
  add_row(lhs, rhs, dst, count, args, kind);
}
void mul_u8(const std::uint8_t* lhs, const std::uint8_t* rhs, std::uint8_t* dst, std::int64_t count,
            const MulArgs& args, Rhs kind) {
  mul_row(lhs, rhs, dst, count, args, kind);
}
void mul_i8(const std::int8_t* lhs, const std::int8_t* rhs, std::int8_t* dst, std::int64_t count,
            const MulArgs& args, Rhs kind) {
  mul_row(lhs, rhs, dst, count, args, kind);
}
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

HWY_EXPORT(add_u8);
HWY_EXPORT(add_i8);
HWY_EXPORT(mul_u8);
HWY_EXPORT(mul_i8);
HWY_EXPORT(clamp_u8);
HWY_EXPORT(clamp_i8);

void add(const std::uint8_t* lhs, const std::uint8_t* rhs, std::uint8_t* dst, std::int64_t count,
         const AddArgs& args, Rhs kind) {
  HWY_DYNAMIC_DISPATCH(add_u8)(lhs, rhs, dst, count, args, kind);
}
void add(const std::int8_t* lhs, const std::int8_t* rhs, std::int8_t* dst, std::int64_t count,
         const AddArgs& args, Rhs kind) {
  HWY_DYNAMIC_DISPATCH(add_i8)(lhs, rhs, dst, count, args, kind);
}
void mul(const std::uint8_t* lhs, const std::uint8_t* rhs, std::uint8_t* dst, std::int64_t count,
         const MulArgs& args, Rhs kind) {
  HWY_DYNAMIC_DISPATCH(mul_u8)(lhs, rhs, dst, count, args, kind);
}
void mul(const std::int8_t* lhs, const std::int8_t* rhs, std::int8_t* dst, std::int64_t count,
         const MulArgs& args, Rhs kind) {
  HWY_DYNAMIC_DISPATCH(mul_i8)(lhs, rhs, dst, count, args, kind);
}
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
