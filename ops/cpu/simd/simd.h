// Private: what the kernel files share inside Highway's foreach_target. Like Highway's own -inl.h
// headers it is included once for each target, hence the guard that toggles.
//
// The targets (highway.h) are AVX2 and up, which all have FMA, and plain code (HWY_SCALAR) that
// calls the scalar functions: SSE would need an emulated fma to give the same integers.

#if defined(QUANTA_OPS_CPU_SIMD_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUANTA_OPS_CPU_SIMD_H_
#undef QUANTA_OPS_CPU_SIMD_H_
#else
#define QUANTA_OPS_CPU_SIMD_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "quanta/ops/cpu/elementwise_kernels.h"
#include "quanta/ops/cpu/simd/target.h"
#include "quanta/runtime/quant_math.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
#if QUANTA_VECTORS

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using IntTag = hn::RebindToSigned<FloatTag>;
inline constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(FloatTag()));

template <bool kStreaming, class D, class V, typename T>
HWY_INLINE void put(D d, V v, T* dst) {
  if constexpr (kStreaming) {
    hn::Stream(v, d, dst);
  } else {
    hn::StoreU(v, d, dst);
  }
}

/// Codes as int32 lanes.
template <typename T>
HWY_INLINE auto load_codes(const T* src) {
  return hn::PromoteTo(IntTag(), hn::LoadU(hn::Rebind<T, FloatTag>(), src));
}

using ByteTag = hn::ScalableTag<std::uint8_t>;
using HalfByteTag = hn::Half<ByteTag>;
using QuarterByteTag = hn::Half<HalfByteTag>;

/// The lowest byte of each 32-bit lane.
HWY_INLINE hn::Vec<QuarterByteTag> low_bytes(hn::Vec<hn::RebindToUnsigned<FloatTag>> x) {
#if QUANTA_AVX512
  // TruncateTo of Highway 1.0.3 permutes words instead of bytes on AVX3_DL.
  return hn::Vec<QuarterByteTag>{_mm512_cvtepi32_epi8(x.raw)};
#else
  return hn::TruncateTo(QuarterByteTag(), x);
#endif
}

enum class NanCode : bool { Max, Any };

/// math::quantize for vectors of floats, but for the zero point: the codes' low bytes without it.
template <NanCode kNan>
class Quantizer8 {
 public:
  explicit Quantizer8(const QuantizeArgs& args)
      : inv_scale_(hn::Set(FloatTag(), args.inv_scale)),
        low_(hn::Set(FloatTag(), static_cast<float>(args.min - args.zero_point))),
        high_(hn::Set(FloatTag(), static_cast<float>(args.max - args.zero_point))),
        nan_(hn::Set(FloatTag(), static_cast<float>(args.nan_code - args.zero_point))) {}

  HWY_INLINE hn::Vec<QuarterByteTag> operator()(hn::Vec<FloatTag> x) const {
    const hn::RebindToUnsigned<FloatTag> bits;
    const auto scaled = hn::Mul(x, inv_scale_);
    // x86's minimum answers its second operand when the first is NaN, so NaN becomes the highest
    // code without a comparison.
    auto clamped = hn::Max(hn::Min(scaled, high_), low_);
    if constexpr (kNan == NanCode::Any) {
      clamped = hn::IfThenElse(hn::Eq(scaled, scaled), clamped, nan_);
    }
    return low_bytes(hn::BitCast(bits, hn::Add(clamped, hn::Set(FloatTag(), kMagic))));
  }

 private:
  // Adding 1.5 * 2^23 leaves the rounded integer in the low bits of the float: the addition itself
  // rounds half to even. The clamped differences are below 2^10, far from its limit of 2^22; the
  // lowest byte of the constant's own bits is 0.
  static constexpr float kMagic = 12582912.0F;

  hn::Vec<FloatTag> inv_scale_, low_, high_, nan_;
};

/// dst[i] = quantized values at i for as many elements as fill vectors; returns how many.
/// `source.at(i)` is the vector of values from i on. Whole cache lines are written at once, which
/// streaming needs to be worth it.
template <NanCode kNan, bool kStreaming, class Source>
HWY_INLINE std::int64_t quantize_all(const Source& source, const QuantizeArgs& args,
                                     std::uint8_t* dst, std::int64_t count) {
  const Quantizer8<kNan> quantizer(args);
  // Bytes wrap around, so the zero point can be added last, to a whole vector of them.
  const auto zero_point = static_cast<std::uint8_t>(args.zero_point);
  const auto zero_points = hn::Set(ByteTag(), zero_point);
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    const auto low =
        hn::Combine(HalfByteTag(), quantizer(source.at(i + kLanes)), quantizer(source.at(i)));
    const auto high = hn::Combine(HalfByteTag(), quantizer(source.at(i + 3 * kLanes)),
                                  quantizer(source.at(i + 2 * kLanes)));
    put<kStreaming>(ByteTag(), hn::Add(hn::Combine(ByteTag(), high, low), zero_points), dst + i);
  }
  if constexpr (kStreaming) hwy::FlushStream();
  for (; i + kLanes <= count; i += kLanes) {
    hn::StoreU(hn::Add(quantizer(source.at(i)), hn::Set(QuarterByteTag(), zero_point)),
               QuarterByteTag(), dst + i);
  }
  return i;
}

#endif  // QUANTA_VECTORS
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
