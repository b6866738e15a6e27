#pragma once

// Private, for .cu files only: floats of 32 or of 16 bits, all of which are calculated with as
// Float32. Reading is exact, writing rounds once, to the nearest and in ties to even.
//
// A kernel is given the dtype as a number: all threads take the same branch, which costs less than
// the memory that they wait for, and one kernel serves three dtypes.

#include <cstdint>

#include "quanta/ops/cuda/four_floats.h"
#include "quanta/runtime/cuda/simt.h"
#include "quanta/runtime/dtype.h"
#include "quanta/runtime/half.h"

namespace quanta::cuda {

constexpr bool is_float(DType dtype) {
  return dtype == DType::Float32 || dtype == DType::Float16 || dtype == DType::BFloat16;
}

SIMT_DEVICE float widen(DType dtype, std::uint16_t bits) {
  return dtype == DType::Float16 ? simt::half_to_float(bits) : math::bfloat16_to_float(bits);
}
SIMT_DEVICE std::uint16_t narrow(DType dtype, float value) {
  return dtype == DType::Float16 ? simt::float_to_half(value) : math::float_to_bfloat16(value);
}

/// Element `at` of memory of Float32, Float16 or BFloat16.
SIMT_DEVICE float float_at(DType dtype, const void* from, std::int64_t at) {
  if (dtype == DType::Float32) return static_cast<const float*>(from)[at];
  return widen(dtype, static_cast<const std::uint16_t*>(from)[at]);
}
/// The same of a parameter that may be left out.
SIMT_DEVICE float float_or(DType dtype, const void* from, std::int64_t at, float otherwise) {
  return from == nullptr ? otherwise : float_at(dtype, from, at);
}
SIMT_DEVICE void put_float(DType dtype, void* to, std::int64_t at, float value) {
  if (dtype == DType::Float32) {
    static_cast<float*>(to)[at] = value;
  } else {
    static_cast<std::uint16_t*>(to)[at] = narrow(dtype, value);
  }
}

/// Floats of any width as a pointer to floats is one, to be read.
struct FloatSource {
  DType dtype{};
  const void* data = nullptr;
  std::int64_t at = 0;

  SIMT_DEVICE float operator*() const { return float_at(dtype, data, at); }
  SIMT_DEVICE float operator[](std::int64_t i) const { return float_at(dtype, data, at + i); }
  SIMT_DEVICE FloatSource operator+(std::int64_t count) const { return {dtype, data, at + count}; }
  SIMT_DEVICE FloatSource& operator+=(std::int64_t count) {
    at += count;
    return *this;
  }
};

struct alignas(8) FourHalves {
  std::uint16_t of[4];
};

/// Elements `at` to `at` + 3, which lie on a multiple of their own bytes.
SIMT_DEVICE FourFloats four_floats_at(DType dtype, const void* from, std::int64_t at) {
  if (dtype == DType::Float32) {
    return simt::load<FourFloats>(static_cast<const float*>(from) + at);
  }
  const auto bits = simt::load<FourHalves>(static_cast<const std::uint16_t*>(from) + at);
  FourFloats values;
  for (int i = 0; i < 4; ++i) values.of[i] = widen(dtype, bits.of[i]);
  return values;
}
SIMT_DEVICE void put_four_floats(DType dtype, void* to, std::int64_t at, const FourFloats& values) {
  if (dtype == DType::Float32) return simt::store(static_cast<float*>(to) + at, values);
  FourHalves bits;
  for (int i = 0; i < 4; ++i) bits.of[i] = narrow(dtype, values.of[i]);
  simt::store(static_cast<std::uint16_t*>(to) + at, bits);
}

}  // namespace quanta::cuda
