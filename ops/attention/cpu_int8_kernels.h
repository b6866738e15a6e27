#pragma once

// Private: the vector kernels of attention in int8 (cpu_int8.cpp). The same bits on every
// instruction set.

#include <cstdint>

namespace quanta::cpu {

/// Rows of floats and their codes: code = round_half_even(x / scale) within -127..127.
struct SymmetricRows {
  const float* src;
  std::int64_t src_row;
  std::int64_t rows, width;
  std::uint8_t* codes;     ///< signed codes plus `offset`
  std::int64_t codes_row;  ///< at least `width`; what is left of a row becomes 0
  std::uint8_t offset;     ///< 0 or 128
  float* scales;           ///< one a row, or a column; 0 for numbers that are all 0
};

/// A scale for each row: its largest absolute value / 127. `sums` gets the sum of each row's signed
/// codes. False where a number is not finite.
bool quantize_each_row(const SymmetricRows& call, std::int32_t* sums);
/// A scale for each column.
bool quantize_each_column(const SymmetricRows& call);

/// One query's products with all keys, and what makes scores of them:
///   float(sum - 128 * code_sums[j]) * scales[j] * scale + mask[j]
struct ScoreRow {
  const std::int32_t* sums;  ///< this and the next two readable up to a multiple of 16
  const std::int32_t* code_sums;
  const float* scales;
  float scale;
  const float* mask;  ///< null: 0
  std::int64_t keys;
  std::int64_t visible;    ///< keys from this one on do not take part
  float* scores;           ///< as long as the sums are
  std::uint8_t* codes;     ///< of weights, and zeros up to `codes_row`
  std::int64_t codes_row;  ///< a multiple of 64
};

struct WeightSum {
  std::int64_t codes = 0;  ///< 0 for a query without any key
  bool is_nan = false;     ///< of NaN and +infinity in the mask
};

/// codes[j] = round_half_even(255 * exp(score - the largest score)).
WeightSum weights_of_row(const ScoreRow& row);

/// dst[i] = float(sums[i]) * scales[i] * factor.
void sums_to_output(const std::int32_t* sums, const float* scales, float factor, std::int64_t count,
                    float* dst);

}  // namespace quanta::cpu
