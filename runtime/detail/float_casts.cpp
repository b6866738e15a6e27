#include "quanta/runtime/detail/float_casts.h"
// Before any header of Highway.
#include "quanta/runtime/detail/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/runtime/detail/float_casts.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <bit>

#include "quanta/runtime/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::detail::HWY_NAMESPACE {
namespace {

#if QUANTA_VECTORS
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using IntTag = hn::RebindToSigned<FloatTag>;
using FloatVec = hn::Vec<FloatTag>;
using IntVec = hn::Vec<IntTag>;
constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(FloatTag()));

HWY_INLINE IntVec set(std::uint32_t bits) {
  return hn::Set(IntTag(), std::bit_cast<std::int32_t>(bits));
}

// math::encode_float for the lanes of a vector. All numbers are below 2^31.
class Encoder {
 public:
  Encoder(const math::FloatFormat& format, math::Overflow overflow)
      : dropped_(23 - format.mantissa_bits),
        sign_shift_(31 - (format.bits() - 1)),
        has_mantissa_(format.mantissa_bits > 0),
        unsigned_zero_(format.unsigned_zero()),
        min_normal_(set(field(format.min_exponent()))),
        half_(set((1U << (dropped_ - 1)) - 1U)),
        offset_(set(field(-format.bias))),
        aligned_(hn::Set(FloatTag(), math::power_of_two(format.step_exponent() + 23))),
        max_code_(set(format.max_code())),
        beyond_(set(beyond(format, overflow))),
        nan_(set(math::nan_code(false, format))) {}

  HWY_INLINE IntVec operator()(FloatVec x) const {
    const IntTag d;
    const auto bits = hn::BitCast(d, x);
    const auto magnitude = hn::And(bits, set(0x7FFFFFFFU));
    const auto one = set(1);
    // Without a mantissa the significand is the hidden 1, which is odd.
    const auto odd = has_mantissa_ ? hn::And(hn::ShiftRightSame(magnitude, dropped_), one) : one;
    const auto rounded = hn::Add(hn::Add(hn::Sub(magnitude, offset_), half_), odd);
    // Below the normal numbers: adding 2^23 steps aligns the last bits, so that the addition
    // rounds and the sum's last bits hold the number of steps.
    const auto sum = hn::Add(hn::BitCast(FloatTag(), magnitude), aligned_);
    const auto steps = hn::Sub(hn::BitCast(d, sum), hn::BitCast(d, aligned_));
    auto code = hn::IfThenElse(hn::Lt(magnitude, min_normal_), steps,
                               hn::ShiftRightSame(rounded, dropped_));
    code = hn::IfThenElse(hn::Gt(code, max_code_), beyond_, code);
    code = hn::IfThenElse(hn::Gt(magnitude, set(math::detail::kFloatInfinity)), nan_, code);
    const hn::RebindToUnsigned<IntTag> u;
    const auto negative = hn::And(hn::BitCast(u, bits), hn::Set(u, math::detail::kFloatSign));
    const auto sign = hn::BitCast(d, hn::ShiftRightSame(negative, sign_shift_));
    const auto signed_code = hn::Or(code, sign);
    // The code of -0 is NaN there.
    return unsigned_zero_ ? hn::IfThenElse(hn::Eq(code, hn::Zero(d)), code, signed_code)
                          : signed_code;
  }

 private:
  static std::uint32_t field(int exponent) {
    return static_cast<std::uint32_t>(exponent + 127) << 23;
  }
  static std::uint32_t beyond(const math::FloatFormat& format, math::Overflow overflow) {
    if (overflow == math::Overflow::Saturate || !format.has_nan()) return format.max_code();
    return format.has_infinity() ? format.max_code() + 1U : math::nan_code(false, format);
  }

  int dropped_, sign_shift_;
  bool has_mantissa_, unsigned_zero_;
  IntVec min_normal_, half_, offset_;
  FloatVec aligned_;
  IntVec max_code_, beyond_, nan_;
};

// math::decode_float for the lanes of a vector.
class Decoder {
 public:
  explicit Decoder(const math::FloatFormat& format)
      : dropped_(23 - format.mantissa_bits),
        sign_shift_(31 - (format.bits() - 1)),
        unsigned_zero_(format.unsigned_zero()),
        sign_bit_(set(format.sign_bit())),
        magnitude_bits_(set(format.sign_bit() - 1U)),
        // With float32's own exponents the bits of subnormal numbers need no more than the shift,
        // while a product with their step would be slow.
        smallest_normal_(set(format.bias == 127 ? 0U : 1U << format.mantissa_bits)),
        max_code_(set(format.max_code())),
        offset_(set(static_cast<std::uint32_t>(127 - format.bias) << 23)),
        step_(hn::Set(FloatTag(), math::power_of_two(std::max(format.step_exponent(), -126)))),
        special_(
            set(format.has_infinity() ? math::detail::kFloatInfinity : math::detail::kFloatNan)),
        payload_(set(format.has_infinity() ? 0x7FFFFFU : 0U)) {}

  HWY_INLINE FloatVec operator()(IntVec code) const {
    const IntTag d;
    const auto magnitude = hn::And(code, magnitude_bits_);
    const auto shifted = hn::ShiftLeftSame(magnitude, dropped_);
    const auto subnormal = hn::BitCast(d, hn::Mul(hn::ConvertTo(FloatTag(), magnitude), step_));
    auto bits =
        hn::IfThenElse(hn::Lt(magnitude, smallest_normal_), subnormal, hn::Add(shifted, offset_));
    const auto special = hn::Or(special_, hn::And(shifted, payload_));
    bits = hn::IfThenElse(hn::Gt(magnitude, max_code_), special, bits);
    const auto sign = hn::ShiftLeftSame(hn::And(code, sign_bit_), sign_shift_);
    bits = hn::Or(bits, sign);
    if (unsigned_zero_) {
      const auto minus_zero = hn::Eq(hn::And(code, hn::Or(sign_bit_, magnitude_bits_)), sign_bit_);
      bits =
          hn::IfThenElse(minus_zero, set(math::detail::kFloatNan | math::detail::kFloatSign), bits);
    }
    return hn::BitCast(FloatTag(), bits);
  }

 private:
  int dropped_, sign_shift_;
  bool unsigned_zero_;
  IntVec sign_bit_, magnitude_bits_, smallest_normal_, max_code_, offset_;
  FloatVec step_;
  IntVec special_, payload_;
};

// Codes fit, so that saturating changes nothing.
template <typename T>
HWY_INLINE void store_codes(IntVec codes, T* dst) {
  const hn::Rebind<T, FloatTag> d;
  hn::StoreU(hn::DemoteTo(d, codes), d, dst);
}
#endif  // QUANTA_VECTORS

template <typename T>
void encode_run(const float* src, std::int64_t count, const math::FloatFormat& format,
                math::Overflow overflow, T* dst) {
  std::int64_t i = 0;
#if QUANTA_VECTORS
  const Encoder encode(format, overflow);
  for (; i + kLanes <= count; i += kLanes) {
    store_codes(encode(hn::LoadU(FloatTag(), src + i)), dst + i);
  }
#endif
  for (; i < count; ++i) dst[i] = static_cast<T>(math::encode_float(src[i], format, overflow));
}

void encode_bytes(const float* src, std::int64_t count, const math::FloatFormat& format,
                  math::Overflow overflow, std::uint8_t* dst) {
  encode_run(src, count, format, overflow, dst);
}
void encode_words(const float* src, std::int64_t count, const math::FloatFormat& format,
                  math::Overflow overflow, std::uint16_t* dst) {
  encode_run(src, count, format, overflow, dst);
}

void decode_words(const std::uint16_t* src, std::int64_t count, const math::FloatFormat& format,
                  float* dst) {
  std::int64_t i = 0;
#if QUANTA_VECTORS
  const Decoder decode(format);
  const hn::Rebind<std::uint16_t, FloatTag> d;
  for (; i + kLanes <= count; i += kLanes) {
    hn::StoreU(decode(hn::PromoteTo(IntTag(), hn::LoadU(d, src + i))), FloatTag(), dst + i);
  }
#endif
  for (; i < count; ++i) dst[i] = math::decode_float(src[i], format);
}

}  // namespace
}  // namespace quanta::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::detail {

HWY_EXPORT(decode_words);
HWY_EXPORT(encode_bytes);
HWY_EXPORT(encode_words);

namespace {

constexpr std::int64_t kGrain = 32768;

}  // namespace

void encode_floats(const float* src, std::int64_t count, const math::FloatFormat& format,
                   math::Overflow overflow, std::uint8_t* dst) {
  const auto run = HWY_DYNAMIC_DISPATCH(encode_bytes);
  parallel_for(count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    run(src + begin, end - begin, format, overflow, dst + begin);
  });
}

void encode_floats(const float* src, std::int64_t count, const math::FloatFormat& format,
                   math::Overflow overflow, std::uint16_t* dst) {
  const auto run = HWY_DYNAMIC_DISPATCH(encode_words);
  parallel_for(count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    run(src + begin, end - begin, format, overflow, dst + begin);
  });
}

void decode_floats(const std::uint8_t* src, std::int64_t count, const math::FloatFormat& format,
                   float* dst) {
  std::array<float, 256> table{};
  for (std::size_t code = 0; code < table.size(); ++code) {
    table[code] = math::decode_float(static_cast<std::uint16_t>(code), format);
  }
  parallel_for(count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) dst[i] = table[src[i]];
  });
}

void decode_floats(const std::uint16_t* src, std::int64_t count, const math::FloatFormat& format,
                   float* dst) {
  const auto run = HWY_DYNAMIC_DISPATCH(decode_words);
  parallel_for(count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    run(src + begin, end - begin, format, dst + begin);
  });
}

}  // namespace quanta::detail
#endif  // HWY_ONCE
