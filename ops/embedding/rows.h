#pragma once

// Private: the bytes of packed embedding rows.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/half.h"
#include "quanta/runtime/host_device.h"
#include "quanta/runtime/quant_math.h"

namespace quanta::detail {

struct RowParameters {
  float scale = 1.0F;
  float bias = 0.0F;
};

/// Layout of rows with codes of `bits` (8, 4 or 2) bits.
struct EmbeddingRows {
  int bits = 8;
  std::int64_t columns = 0;

  QUANTA_HOST_DEVICE std::int64_t per_byte() const noexcept { return 8 / bits; }
  QUANTA_HOST_DEVICE std::int64_t code_bytes() const noexcept {
    return ceil_div(columns, per_byte());
  }
  QUANTA_HOST_DEVICE std::int64_t parameter_bytes() const noexcept { return parameter_bytes(bits); }
  QUANTA_HOST_DEVICE static std::int64_t parameter_bytes(int bits) noexcept {
    return bits == 8 ? 8 : 4;
  }
  QUANTA_HOST_DEVICE std::int64_t row_bytes() const noexcept {
    return code_bytes() + parameter_bytes();
  }

  QUANTA_HOST_DEVICE int code(const std::uint8_t* row, std::int64_t column) const noexcept {
    const int shift = static_cast<int>(column % per_byte()) * bits;
    return (row[column / per_byte()] >> shift) & ((1 << bits) - 1);
  }
  /// The row's code bytes have to be zero before.
  void set_code(std::uint8_t* row, std::int64_t column, int code) const noexcept {
    const int shift = static_cast<int>(column % per_byte()) * bits;
    std::uint8_t& byte = row[column / per_byte()];
    byte = static_cast<std::uint8_t>(byte | (code << shift));
  }

  QUANTA_HOST_DEVICE RowParameters parameters(const std::uint8_t* row) const noexcept {
    // The numbers follow the codes without padding, hence the copies.
    RowParameters result;
    if (bits == 8) {
      std::memcpy(&result.scale, row + code_bytes(), 4);
      std::memcpy(&result.bias, row + code_bytes() + 4, 4);
    } else {
      std::uint16_t halves[2];
      std::memcpy(halves, row + code_bytes(), 4);
      result.scale = math::float16_to_float(halves[0]);
      result.bias = math::float16_to_float(halves[1]);
    }
    return result;
  }
  void set_parameters(std::uint8_t* row, RowParameters values) const noexcept {
    if (bits == 8) {
      std::memcpy(row + code_bytes(), &values.scale, 4);
      std::memcpy(row + code_bytes() + 4, &values.bias, 4);
    } else {
      const std::uint16_t halves[2] = {math::float_to_float16(values.scale),
                                       math::float_to_float16(values.bias)};
      std::memcpy(row + code_bytes(), halves, 4);
    }
  }

  /// What a code stands for. The product and the sum round once together, as in torch: they may
  /// nearly cancel.
  QUANTA_HOST_DEVICE static float value(int code, float scale, float bias) noexcept {
    return fmaf(scale, static_cast<float>(code), bias);
  }

  /// to[c] += value(code(c)) for columns from `first` on.
  void add_columns(const std::uint8_t* row, std::int64_t first, float scale, float bias,
                   float* to) const noexcept {
    for (std::int64_t c = first; c < columns; ++c) {
      to[c] += value(code(row, c), scale, bias);
    }
  }
};

inline float round_to_half(float value) {
  return math::float16_to_float(math::float_to_float16(value));
}

struct RowRange {
  float min = 0.0F;
  float max = 0.0F;
};

/// Scale and its inverse for a range whose min is already a float16 number.
struct NBitScale {
  float scale = 1.0F;
  float inverse = 1.0F;
};
inline NBitScale nbit_scale(RowRange range, int bits) {
  const float width = range.max - range.min;
  const auto steps = static_cast<float>((1 << bits) - 1);
  NBitScale result;
  if (width != 0.0F) result.scale = round_to_half(width / steps);
  result.inverse = result.scale == 0.0F ? 1.0F : 1.0F / result.scale;
  if (result.scale == 0.0F || std::isinf(result.inverse)) return {};
  return result;
}

inline int nbit_code(float x, float min, float inverse_scale, int bits) {
  const float top = static_cast<float>((1 << bits) - 1);
  return static_cast<int>(math::clamp(math::round_half_even((x - min) * inverse_scale), 0.0F, top));
}

/// L2 error of quantizing the row with this range.
inline float nbit_loss(const float* row, std::int64_t columns, RowRange range, int bits) {
  range.min = round_to_half(range.min);
  const NBitScale scale = nbit_scale(range, bits);
  float norm = 0.0F;
  for (std::int64_t c = 0; c < columns; ++c) {
    const auto q = static_cast<float>(nbit_code(row[c], range.min, scale.inverse, bits));
    const float error = row[c] - (q * scale.scale + range.min);
    norm += error * error;
  }
  return std::sqrt(norm);
}

/// torch's choose_qparams_optimized: greedy, see NBitPrepackOptions.
inline RowRange narrow_range(const float* row, std::int64_t columns, RowRange range, int bits,
                             std::int64_t nbins, double ratio) {
  const float step = (range.max - range.min) / static_cast<float>(nbins);
  const auto min_bins =
      static_cast<float>(static_cast<std::int64_t>(static_cast<double>(nbins) * (1.0 - ratio)));
  RowRange best = range;
  float best_loss = nbit_loss(row, columns, range, bits);
  RowRange current = range;
  // At most nbins rounds: a step that the float cannot resolve must not loop for ever.
  for (std::int64_t round = 0; round < nbins && current.min + min_bins * step < current.max;
       ++round) {
    const RowRange from_below{current.min + step, current.max};
    const RowRange from_above{current.min, current.max - step};
    const float below_loss = nbit_loss(row, columns, from_below, bits);
    const float above_loss = nbit_loss(row, columns, from_above, bits);
    current = below_loss < above_loss ? from_below : from_above;
    const float loss = std::min(below_loss, above_loss);
    if (loss < best_loss) {
      best_loss = loss;
      best = current;
    }
  }
  return best;
}

}  // namespace quanta::detail
