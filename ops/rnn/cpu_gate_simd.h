// Private: sigmoid and tanh in vectors, and rows of floats that end within one, for the kernel
// files inside Highway's foreach_target. Like Highway's own -inl.h headers it is included once for
// each target, hence the guard that toggles. The floats are the same on every instruction set.

#if defined(QUANTA_OPS_CPU_GATE_SIMD_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUANTA_OPS_CPU_GATE_SIMD_H_
#undef QUANTA_OPS_CPU_GATE_SIMD_H_
#else
#define QUANTA_OPS_CPU_GATE_SIMD_H_
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstdint>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using GateTag = hn::ScalableTag<float>;
using GateVector = hn::Vec<GateTag>;
inline constexpr auto kGateLanes = static_cast<std::int64_t>(hn::MaxLanes(GateTag()));

// One vector, or two whose operations alternate: each of these functions is a long chain, and one
// chain leaves the processor waiting.
struct GatePair {
  GateVector a, b;
};
template <class V>
inline constexpr bool kIsPair = std::is_same_v<V, GatePair>;

/// The larger and the smaller of both, or x if it is NaN: x86 answers its second operand then,
/// Highway's plain code the first.
HWY_INLINE GateVector at_least(GateVector limit, GateVector x) {
#if !QUANTA_VECTORS
  return hn::IfThenElse(hn::Lt(x, limit), limit, x);
#else
  return hn::Max(limit, x);
#endif
}
HWY_INLINE GateVector at_most(GateVector limit, GateVector x) {
#if !QUANTA_VECTORS
  return hn::IfThenElse(hn::Lt(limit, x), limit, x);
#else
  return hn::Min(limit, x);
#endif
}

/// op(x...) for each vector.
template <class V, class Op, class... Rest>
HWY_INLINE V each(const Op& op, V x, Rest... rest) {
  if constexpr (kIsPair<V>) {
    return {op(x.a, rest.a...), op(x.b, rest.b...)};
  } else {
    return op(x, rest...);
  }
}
template <class V>
HWY_INLINE V constant(float x) {
  const auto v = hn::Set(GateTag(), x);
  if constexpr (kIsPair<V>) {
    return {v, v};
  } else {
    return v;
  }
}
template <class V>
HWY_INLINE V add(V x, V y) {
  return each([](auto p, auto q) QUANTA_INLINED { return hn::Add(p, q); }, x, y);
}
template <class V>
HWY_INLINE V sub(V x, V y) {
  return each([](auto p, auto q) QUANTA_INLINED { return hn::Sub(p, q); }, x, y);
}
template <class V>
HWY_INLINE V mul(V x, V y) {
  return each([](auto p, auto q) QUANTA_INLINED { return hn::Mul(p, q); }, x, y);
}
template <class V>
HWY_INLINE V div(V x, V y) {
  return each([](auto p, auto q) QUANTA_INLINED { return hn::Div(p, q); }, x, y);
}
/// x * y + z, rounded once.
template <class V>
HWY_INLINE V mul_add(V x, V y, V z) {
  const auto one = [](auto p, auto q, auto r) QUANTA_INLINED {
#if !QUANTA_VECTORS
    return GateVector(std::fma(p.raw, q.raw, r.raw));
#else
    return hn::MulAdd(p, q, r);
#endif
  };
  return each(one, x, y, z);
}
/// A polynomial of x, the highest power's coefficient first.
template <class V, class... Rest>
HWY_INLINE V polynomial(V x, float highest, Rest... rest) {
  auto sum = constant<V>(highest);
  ((sum = mul_add(sum, x, constant<V>(rest))), ...);
  return sum;
}

/// y * 2^power for y in 0.5..2 and whole numbers down to -220.
template <class V>
HWY_INLINE V scaled(V y, V power) {
  const auto one = [](auto p, auto q) QUANTA_INLINED {
#if QUANTA_AVX512
    // With a mask of all lanes: GCC 12 warns of what _mm512_scalef_ps leaves uninitialized.
    return GateVector{_mm512_maskz_scalef_ps(0xFFFF, p.raw, q.raw)};
#else
    // Two factors, because 2^power alone may be too small for a normal float.
    const GateTag d;
    const hn::RebindToSigned<GateTag> d32;
#if !QUANTA_VECTORS
    // Converting NaN is undefined in plain code. p is NaN as well, and stays it.
    q = hn::IfThenElse(hn::Eq(q, q), q, hn::Zero(d));
#endif
    const auto exponent = hn::ConvertTo(d32, q);
    const auto half = hn::ShiftRight<1>(exponent);
    const auto bias = hn::Set(d32, 127);
    const auto first = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
    const auto second = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(exponent, half), bias)));
    return hn::Mul(hn::Mul(p, first), second);
#endif
  };
  return each(one, y, power);
}

/// math::exp_of_minus_size in vectors.
template <class V>
HWY_INLINE V exp_of_minus_size(V x) {
  // exp(-150) is 0 in float32.
  const auto negative = [](auto p) QUANTA_INLINED {
    const GateTag d;
    return at_least(hn::Set(d, -150.0F), hn::Or(p, hn::SignBit(d)));
  };
  const V limited = each(negative, x);
  const V power = each([](auto p) QUANTA_INLINED { return hn::Round(p); },
                       mul(limited, constant<V>(1.44269504088896341F)));
  // ln 2 in two parts, the first of so few bits that its product with `power` is exact.
  V r = mul_add(power, constant<V>(-0.693359375F), limited);
  r = mul_add(power, constant<V>(2.12194440e-4F), r);
  // Cephes' polynomial for |r| <= ln(2) / 2.
  const V p = polynomial(r, 1.9875691500e-4F, 1.3981999507e-3F, 8.3334519073e-3F, 4.1665795894e-2F,
                         1.6666665459e-1F, 5.0000001201e-1F);
  return scaled(add(mul_add(p, mul(r, r), r), constant<V>(1.0F)), power);
}

/// A function as a quotient: divisions take longest, and a product of two functions needs but one.
template <class V>
struct Quotient {
  V top, bottom;
  HWY_INLINE V value() const { return div(top, bottom); }
};
template <class V>
HWY_INLINE V product(const Quotient<V>& x, const Quotient<V>& y) {
  return div(mul(x.top, y.top), mul(x.bottom, y.bottom));
}

// With exp of -|x| nothing overflows, and both tails keep their digits.
template <class V>
HWY_INLINE Quotient<V> sigmoid(V x) {
  const V e = exp_of_minus_size(x);
  const auto top = [](auto p, auto q) QUANTA_INLINED {
    const GateTag d;
    return hn::IfThenElse(hn::Lt(p, hn::Zero(d)), q, hn::Set(d, 1.0F));
  };
  return {each(top, x, e), add(constant<V>(1.0F), e)};
}

// The rational function of Eigen's tanh. From the limit on it gives 1, and nothing above.
template <class V>
HWY_INLINE Quotient<V> tanh(V x) {
  const auto limit = [](auto p) QUANTA_INLINED {
    const auto most = hn::Set(GateTag(), 8.05359364F);
    return at_least(hn::Neg(most), at_most(most, p));
  };
  const V limited = each(limit, x);
  const V square = mul(limited, limited);
  const V top =
      polynomial(square, 1.394553628e-8F, 2.102733560e-5F, 3.520756727e-3F, 1.340216100e-1F, 1.0F);
  const V bottom =
      polynomial(square, 8.015776984e-7F, 3.326951409e-4F, 2.597254514e-2F, 4.673548340e-1F, 1.0F);
  return {mul(limited, top), bottom};
}

/// c' of an LSTM, from its gates and c.
template <class V>
HWY_INLINE V lstm_cell(const Quotient<V>& input, const Quotient<V>& forget,
                       const Quotient<V>& candidate, V cell) {
  return add(mul(forget.value(), cell), product(input, candidate));
}
/// n and h' of a GRU.
template <class V>
HWY_INLINE V gru_candidate(V x, V hidden, V reset) {
  return tanh(add(x, mul(hidden, reset))).value();
}
template <class V>
HWY_INLINE V gru_state(V h, V candidate, V update) {
  return add(mul(sub(h, candidate), update), candidate);
}

/// A whole vector of a row.
struct WholeVector {
  HWY_INLINE GateVector load(const float* src) const { return hn::LoadU(GateTag(), src); }
  HWY_INLINE void store(GateVector x, float* dst) const { hn::StoreU(x, GateTag(), dst); }
};
/// The last few elements of a row; the other lanes are 0.
struct PartOfVector {
  hn::Mask<GateTag> mask;
  HWY_INLINE GateVector load(const float* src) const {
    return hn::MaskedLoad(mask, GateTag(), src);
  }
  HWY_INLINE void store(GateVector x, float* dst) const {
    hn::BlendedStore(x, mask, GateTag(), dst);
  }
};

/// body(lanes, i) for vectors that start at i and cover [begin, end).
template <class Body>
HWY_INLINE void for_vectors(std::int64_t begin, std::int64_t end, const Body& body) {
  std::int64_t i = begin;
  for (; i + kGateLanes <= end; i += kGateLanes) body(WholeVector{}, i);
  if (i < end) {
    body(PartOfVector{hn::FirstN(GateTag(), static_cast<std::size_t>(end - i))}, i);
  }
}

}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
