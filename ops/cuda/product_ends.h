#pragma once

// Private, for .cu files only: what becomes of the sums of products whose numbers the host does not
// know before a call, or knows only for that call.

#include "quanta/ops/cuda/int8_product.h"
#include "quanta/runtime/cuda/simt.h"
#include "quanta/runtime/quant_math.h"

namespace quanta::cuda {

SIMT_DEVICE float scale_of(const DynamicInput& input) {
  return input.scale_at == nullptr ? input.scale : *input.scale_at;
}
SIMT_DEVICE std::int32_t zero_point_of(const DynamicInput& input) {
  return input.zero_point_at == nullptr ? input.zero_point
                                        : static_cast<std::int32_t>(*input.zero_point_at);
}

/// How many steps a value has reached; 255 for NaN, as math::quantize has it.
SIMT_DEVICE std::uint8_t code_of_steps(const float* steps, float value) {
  if (value != value) return 255;
  int low = 0;
  int high = 255;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (value >= steps[middle]) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return static_cast<std::uint8_t>(low);
}

/// What lies beyond the image: 16 bytes of the zero point.
SIMT_DEVICE const std::uint8_t* pad_of(const ProductParams& p) {
  return p.dynamic.zero_point_at == nullptr ? p.pad : p.pad + 16 * *p.dynamic.zero_point_at;
}

SIMT_DEVICE std::int32_t zero_of(const ZeroOfBytes& zero, int i) {
  if (zero.bytes == nullptr) return zero.number;
  const std::uint8_t byte = zero.bytes[static_cast<std::int64_t>(i) * zero.step];
  const std::int32_t value =
      zero.is_signed ? static_cast<std::int32_t>(static_cast<std::int8_t>(byte)) : byte;
  return value + zero.added;
}

/// a * b + c in integers that wrap.
SIMT_DEVICE std::int32_t wrapping(std::int32_t a, std::int32_t b, std::int32_t c) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) * static_cast<std::uint32_t>(b) +
                                   static_cast<std::uint32_t>(c));
}

/// The sum of (x - zero point) * w.
SIMT_DEVICE std::int32_t sum_without_zero(const DynamicInput& input, std::int32_t sum,
                                          int channel) {
  return wrapping(-zero_point_of(input), input.weight_sums[channel], sum);
}

/// The same with an integer bias.
SIMT_DEVICE std::int32_t dynamic_sum(const DynamicInput& input, std::int32_t sum, int channel) {
  const std::int32_t full = sum_without_zero(input, sum, channel);
  return input.integer_bias == nullptr ? full : wrapping(input.integer_bias[channel], 1, full);
}

/// As cpu::QuantizedWeight's multipliers and bias_terms for a result with the input's parameters,
/// and then dequantize.
SIMT_DEVICE float end_on_grid(const ProductParams& p, std::int32_t sum, int channel) {
  const DynamicInput& input = p.dynamic;
  const float scale = scale_of(input);
  const std::int32_t zero_point = zero_point_of(input);
  const float sum_scale = scale * p.multiplier[channel];
  float bias = 0.0F;
  float factor = 1.0F;
  if (input.integer_bias != nullptr) {
    bias = static_cast<float>(input.integer_bias[channel]);
  } else if (p.bias != nullptr) {
    bias = input.bias_per_channel ? p.bias[channel] / sum_scale : p.bias[channel];
    if (!input.bias_per_channel) factor = 1.0F / sum_scale;
  }
  const std::int32_t code = math::requantize(sum_without_zero(input, sum, channel), bias, factor,
                                             sum_scale / scale, zero_point, 0, 255);
  return math::dequantize(code, scale, zero_point);
}

/// `row`: the pixel within its matrix; `row_sum`: the place of its sum; `at`: that of the result.
SIMT_DEVICE void store_of_activations(const ProductParams& p, std::int32_t sum, int row, int column,
                                      std::int64_t row_sum, std::int64_t column_sum,
                                      std::int64_t at) {
  const ActivationProduct& product = p.activations;
  const std::int32_t zx = zero_of(product.x, row);
  const std::int32_t zw = zero_of(product.w, column);
  const std::int32_t columns = wrapping(-product.depth, zw, product.column_sums[column_sum]);
  std::int32_t full = wrapping(-zx, columns, sum);
  if (product.row_sums != nullptr) full = wrapping(-zw, product.row_sums[row_sum], full);
  switch (product.end) {
    case ActivationProduct::End::Sums:
      static_cast<std::int32_t*>(p.y)[at] = full;
      return;
    case ActivationProduct::End::Floats:
      static_cast<float*>(p.y)[at] = static_cast<float>(full) * product.scale;
      return;
    case ActivationProduct::End::Codes:
      static_cast<std::uint8_t*>(p.y)[at] =
          static_cast<std::uint8_t>(math::quantize(static_cast<float>(full) * product.scale,
                                                   p.inv_scale, p.zero_point, p.low, product.high));
      return;
    case ActivationProduct::End::Requantize:
      static_cast<std::uint8_t*>(p.y)[at] = static_cast<std::uint8_t>(
          math::requantize(full, 0.0F, 1.0F, product.scale, p.zero_point, 0, 255));
      return;
  }
}

}  // namespace quanta::cuda
