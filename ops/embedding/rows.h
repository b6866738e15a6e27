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
  QUANTA_HOST_DEVICE void set_parameters(std::uint8_t* row, RowParameters values) const noexcept {
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

QUANTA_HOST_DEVICE inline float round_to_half(float value) {
  return math::float16_to_float(math::float_to_float16(value));
}

struct RowRange {
  float min = 0.0F;
  float max = 0.0F;
};

/// How a row of bytes is packed: the factor of its codes, and what is stored with them.
QUANTA_HOST_DEVICE inline float byte_inverse(RowRange range) {
  return 255.0F / (range.max - range.min + 1e-8F);
}
QUANTA_HOST_DEVICE inline RowParameters byte_parameters(RowRange range) {
  return {(range.max - range.min) / 255.0F, range.min};
}

/// Scale and its inverse for a range whose min is already a float16 number.
struct NBitScale {
  float scale = 1.0F;
  float inverse = 1.0F;
};
QUANTA_HOST_DEVICE inline NBitScale nbit_scale(RowRange range, int bits) {
  const float width = range.max - range.min;
  const auto steps = static_cast<float>((1 << bits) - 1);
  NBitScale result;
  if (width != 0.0F) result.scale = round_to_half(width / steps);
  if (result.scale == 0.0F) return {};
  result.inverse = 1.0F / result.scale;
  if (result.inverse == HUGE_VALF || result.inverse == -HUGE_VALF) return {};
  return result;
}

// NaN gives 0, as in torch.
QUANTA_HOST_DEVICE inline int nbit_code(float x, float min, float inverse_scale, int bits) {
  const float top = static_cast<float>((1 << bits) - 1);
  const float code = math::round_half_even((x - min) * inverse_scale);
  if (!(code > 0.0F)) return 0;
  return static_cast<int>(code < top ? code : top);
}

/// The square of what quantizing one number of a row with this range loses.
struct NBitLoss {
  QUANTA_HOST_DEVICE NBitLoss(RowRange range, int of_codes)
      : min(round_to_half(range.min)),
        scale(nbit_scale({min, range.max}, of_codes)),
        bits(of_codes) {}
  QUANTA_HOST_DEVICE float operator()(float x) const {
    const float error =
        x - (static_cast<float>(nbit_code(x, min, scale.inverse, bits)) * scale.scale + min);
    return error * error;
  }

  float min;
  NBitScale scale;
  int bits;
};

/// torch's choose_qparams_optimized: greedy, see NBitPrepackOptions. The losses are L2 norms.
class RangeSearch {
 public:
  QUANTA_HOST_DEVICE RangeSearch(RowRange range, float loss, std::int64_t nbins, double ratio)
      : best_(range),
        current_(range),
        best_loss_(loss),
        step_((range.max - range.min) / static_cast<float>(nbins)),
        least_bins_(static_cast<float>(
            static_cast<std::int64_t>(static_cast<double>(nbins) * (1.0 - ratio)))),
        rounds_(nbins) {}

  // At most nbins rounds: a step that the float cannot resolve must not loop for ever.
  QUANTA_HOST_DEVICE bool goes_on() const {
    return rounds_ > 0 && current_.min + least_bins_ * step_ < current_.max;
  }
  QUANTA_HOST_DEVICE RowRange from_below() const { return {current_.min + step_, current_.max}; }
  QUANTA_HOST_DEVICE RowRange from_above() const { return {current_.min, current_.max - step_}; }
  QUANTA_HOST_DEVICE void take(float below_loss, float above_loss) {
    --rounds_;
    current_ = below_loss < above_loss ? from_below() : from_above();
    const float loss = above_loss < below_loss ? above_loss : below_loss;
    if (!(loss < best_loss_)) return;
    best_loss_ = loss;
    best_ = current_;
  }
  QUANTA_HOST_DEVICE RowRange best() const { return best_; }

 private:
  RowRange best_, current_;
  float best_loss_, step_, least_bins_;
  std::int64_t rounds_;
};

}  // namespace quanta::detail
