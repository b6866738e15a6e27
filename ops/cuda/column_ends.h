#pragma once

// Private, for .cu files only: what becomes of the sums of products of codes, most of which end by
// numbers of their column that are read once for all its rows.

#include <bit>
#include <cmath>

#include "quanta/ops/cuda/four_floats.h"
#include "quanta/ops/cuda/product_ends.h"
#include "quanta/runtime/detail/gelu_math.h"

namespace quanta::cuda {

// What the sums of a column need where they end: read once for all of them.
struct ColumnEnd {
  std::int32_t added = 0;  // to a sum
  float factor = 0.0F;
  float bias = 0.0F;
};

// Whether a sum ends by its column and what the host knows.
QUANTA_HOST_DEVICE inline bool ends_by_column(ProductEnd end) {
  return end != ProductEnd::Grid && end != ProductEnd::Activations;
}

SIMT_DEVICE ColumnEnd column_end(const ProductParams& p, int channel) {
  ColumnEnd column;
  if (p.end == ProductEnd::Dynamic) {
    column.added = dynamic_sum(p.dynamic, 0, channel);
    column.factor = scale_of(p.dynamic) * p.multiplier[channel];
  } else {
    column.added = p.compensation[channel];
    if (p.end != ProductEnd::Sums) column.factor = p.multiplier[channel];
  }
  if (p.bias != nullptr) column.bias = p.bias[channel];
  return column;
}

// math::quantize and the last step of math::requantize for codes of 8 bits: the sum with 1.5 * 2^23
// rounds to the nearest integer, in ties to the even one, and has it in its lowest bits.
SIMT_DEVICE std::uint32_t code_of(float scaled, std::int32_t zero_point, std::int32_t least) {
  constexpr float kShift = 12582912.0F;
  const auto low = static_cast<float>(least - zero_point);
  const auto high = static_cast<float>(255 - zero_point);
  const float inside = fmaxf(fminf(scaled, high), low);  // NaN is high
  return std::bit_cast<std::uint32_t>(inside + kShift) - std::bit_cast<std::uint32_t>(kShift) +
         static_cast<std::uint32_t>(zero_point);
}
// Of a code of 8 bits, in the same way.
SIMT_DEVICE float float_of(std::uint32_t code) {
  constexpr float kShift = 8388608.0F;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(kShift) + code) - kShift;
}

// ProductEnd::Codes, before an addend.
SIMT_DEVICE std::uint32_t end_as_code(const ProductParams& p, std::int32_t sum,
                                      const ColumnEnd& column) {
  const auto full = static_cast<float>(wrapping(1, sum, column.added));
  return code_of(fmaf(column.bias, p.bias_factor, full) * column.factor, p.zero_point, p.low);
}
// A code with another one added, as math::dequantize_fused and math::quantize have it.
SIMT_DEVICE std::uint32_t add_code(const ProductAddend& addend, std::uint32_t code,
                                   std::uint32_t other) {
  const float own = fmaf(float_of(code), addend.own_scale, addend.own_offset);
  const float added = fmaf(float_of(other), addend.scale, addend.offset);
  return code_of((own + added) * addend.inv_scale, addend.out_zero_point, addend.low);
}

SIMT_DEVICE std::int32_t end_as_float(const ProductParams& p, std::int32_t sum,
                                      const ColumnEnd& column, std::uint8_t other) {
  float value = static_cast<float>(sum) * column.factor;
  if (p.bias != nullptr) value = value + column.bias;
  if (p.addend.codes != nullptr) {
    value = value + math::dequantize(other, p.addend.scale, p.addend.zero_point);
  }
  if (p.function == ProductFunction::ReLU) {
    value = value > 0.0F ? value : 0.0F;
  } else if (p.function == ProductFunction::LeakyReLU) {
    value = value > 0.0F ? value : value * p.negative_slope;
  } else if (p.function == ProductFunction::Steps) {
    return code_of_steps(p.steps, value);
  }
  return math::quantize(value, p.inv_scale, p.zero_point, 0, 255);
}

// As cpu::SumsToFloats: integers that wrap, then floats one by one.
SIMT_DEVICE float dynamic_float(const ProductParams& p, std::int32_t sum, const ColumnEnd& column) {
  const float value = static_cast<float>(wrapping(1, sum, column.added)) * column.factor;
  return p.bias == nullptr ? value : value + column.bias;
}
// NaN stays: the input was not finite.
SIMT_DEVICE float dynamic_relu(float value) { return value <= 0.0F ? 0.0F : value; }

// What follows, on neighbours in memory from `at` on.
template <int kCount>
SIMT_DEVICE void finish_dynamic(const ProductParams& p, float (&values)[kCount], std::int64_t at) {
  if (p.function == ProductFunction::Gelu) {
    SIMT_UNROLL
    for (int e = 0; e < kCount; ++e) values[e] = math::gelu_float(values[e]);
  } else if (p.function == ProductFunction::ReLU) {
    SIMT_UNROLL
    for (int e = 0; e < kCount; ++e) values[e] = dynamic_relu(values[e]);
  }
  if (p.dynamic.addend == nullptr) return;
  SIMT_UNROLL
  for (int e = 0; e < kCount; ++e) values[e] += p.dynamic.addend[at + e];
}

// Whether four neighbours of a pixel, whose channels begin at a multiple of 4, may be read and
// written at once.
QUANTA_HOST_DEVICE inline bool has_fours(const ProductParams& p) {
  std::uintptr_t bits =
      reinterpret_cast<std::uintptr_t>(p.y) | reinterpret_cast<std::uintptr_t>(p.addend.codes);
  if (p.end != ProductEnd::Dynamic) bits <<= 2;  // four bytes, not four floats
  return bits % 16 == 0 && p.groups * p.columns % 4 == 0;
}

// The ends that kernels are compiled for one by one: what every product runs through is short then.
// Four neighbours of a pixel are written by store_four, where has_fours.

// ProductEnd::Codes.
struct CodesEnd {
  static SIMT_DEVICE void store(const ProductParams& p, std::int32_t sum, const ColumnEnd& column,
                                std::int64_t at) {
    std::uint32_t one = end_as_code(p, sum, column);
    if (p.addend.codes != nullptr) one = add_code(p.addend, one, p.addend.codes[at]);
    if (p.has_table) one = p.table[one];
    static_cast<std::uint8_t*>(p.y)[at] = static_cast<std::uint8_t>(one);
  }
  static SIMT_DEVICE void store_four(const ProductParams& p, const std::int32_t (&sums)[4],
                                     const ColumnEnd (&columns)[4], std::int64_t at) {
    std::uint32_t codes[4];
    SIMT_UNROLL
    for (int e = 0; e < 4; ++e) codes[e] = end_as_code(p, sums[e], columns[e]);
    if (p.addend.codes != nullptr) {
      const auto others = simt::load<std::uint32_t>(p.addend.codes + at);
      SIMT_UNROLL
      for (int e = 0; e < 4; ++e) codes[e] = add_code(p.addend, codes[e], others >> (8 * e) & 255U);
    }
    if (p.has_table) {
      SIMT_UNROLL
      for (int e = 0; e < 4; ++e) codes[e] = p.table[codes[e]];
    }
    const std::uint32_t word = codes[0] | codes[1] << 8 | codes[2] << 16 | codes[3] << 24;
    simt::store(static_cast<std::uint8_t*>(p.y) + at, word);
  }
};

// ProductEnd::Dynamic.
struct DynamicEnd {
  static SIMT_DEVICE void store(const ProductParams& p, std::int32_t sum, const ColumnEnd& column,
                                std::int64_t at) {
    float value[1] = {dynamic_float(p, sum, column)};
    finish_dynamic(p, value, at);
    static_cast<float*>(p.y)[at] = value[0];
  }
  static SIMT_DEVICE void store_four(const ProductParams& p, const std::int32_t (&sums)[4],
                                     const ColumnEnd (&columns)[4], std::int64_t at) {
    FourFloats floats;
    SIMT_UNROLL
    for (int e = 0; e < 4; ++e) floats.of[e] = dynamic_float(p, sums[e], columns[e]);
    finish_dynamic(p, floats.of, at);
    simt::store(static_cast<float*>(p.y) + at, floats);
  }
};

// Any end that column_end has numbers for.
struct AnyEnd {
  static SIMT_DEVICE void store(const ProductParams& p, std::int32_t sum, const ColumnEnd& column,
                                std::int64_t at) {
    if (p.end == ProductEnd::Dynamic) return DynamicEnd::store(p, sum, column, at);
    if (p.end == ProductEnd::Codes) return CodesEnd::store(p, sum, column, at);
    const std::int32_t full = wrapping(1, sum, column.added);
    if (p.end == ProductEnd::Sums) {
      static_cast<std::int32_t*>(p.y)[at] = full;
      return;
    }
    const std::uint8_t other = p.addend.codes == nullptr ? 0 : p.addend.codes[at];
    const auto code = static_cast<std::uint8_t>(end_as_float(p, full, column, other));
    static_cast<std::uint8_t*>(p.y)[at] = p.has_table ? p.table[code] : code;
  }
  static SIMT_DEVICE void store_four(const ProductParams& p, const std::int32_t (&sums)[4],
                                     const ColumnEnd (&columns)[4], std::int64_t at) {
    SIMT_UNROLL
    for (int e = 0; e < 4; ++e) store(p, sums[e], columns[e], at + e);
  }
};

// Writes a sum of one of the products, at its place.
SIMT_DEVICE void store_sum(const ProductParams& p, std::int32_t sum, int matrix, std::int64_t pixel,
                           int channel) {
  const std::int64_t at = pixel * p.groups * p.columns + channel;
  if (ends_by_column(p.end)) return AnyEnd::store(p, sum, column_end(p, channel), at);
  if (p.end == ProductEnd::Grid) {
    static_cast<float*>(p.y)[at] = end_on_grid(p, sum, channel);
    return;
  }
  const std::int64_t row_sum =
      (static_cast<std::int64_t>(matrix) * p.pixels + pixel) * p.groups + channel / p.columns;
  const std::int64_t column_sum =
      (p.matrix_w == 0 ? 0 : static_cast<std::int64_t>(matrix) * p.groups * p.columns) + channel;
  store_of_activations(p, sum, static_cast<int>(pixel), channel, row_sum, column_sum,
                       matrix * p.matrix_y + at);
}

}  // namespace quanta::cuda
