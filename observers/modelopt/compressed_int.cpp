// INT8, INT4 and NF4.

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "quanta/observers/detail/cascade_sum.h"
#include "quanta/observers/modelopt/detail/compressed.h"
#include "quanta/observers/modelopt/detail/scaled_blocks.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/runtime/amax_math.h"
#include "quanta/runtime/check.h"

namespace quanta::modelopt {
namespace {

// The 16 values of NF4, rounded to bfloat16.
constexpr std::array<float, 16> kNf4Values = {
    -1.0F,           -0.6953125F, -0.5234375F,    -0.39453125F,  -0.28515625F, -0.1845703125F,
    -0.09130859375F, 0.0F,        0.07958984375F, 0.1611328125F, 0.24609375F,  0.337890625F,
    0.44140625F,     0.5625F,     0.72265625F,    1.0F};

std::uint8_t nearest_nf4(float x) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < kNf4Values.size(); ++i) {
    if (std::fabs(x - kNf4Values[i]) < std::fabs(x - kNf4Values[best])) best = i;
  }
  return static_cast<std::uint8_t>(best);
}

// encode(value, row's amax) of every element of [rows, length], as UInt8.
template <typename Encode>
Tensor encode_rows(const Tensor& rows, const Tensor& amax, Encode&& encode) {
  Tensor codes = Tensor::empty(rows.sizes(), DType::UInt8);
  const auto* from = static_cast<const float*>(rows.data_ptr());
  const auto* largest = static_cast<const float*>(amax.data_ptr());
  auto* to = static_cast<std::uint8_t*>(codes.data_ptr());
  const std::int64_t length = rows.size(-1);
  for (std::int64_t i = 0; i < rows.numel(); ++i) to[i] = encode(from[i], largest[i / length]);
  return codes;
}

// decode(code, row's scale) of codes in blocks of a flattened tensor, as `sizes`.
template <typename Decode>
Tensor decode_flat(const Tensor& codes, const std::vector<float>& scales, std::int64_t block_size,
                   const Dims& sizes, Decode&& decode) {
  Tensor values = Tensor::empty(sizes);
  const auto* from = static_cast<const std::uint8_t*>(codes.data_ptr());
  auto* to = static_cast<float*>(values.data_ptr());
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    to[i] = decode(from[i], scales[static_cast<std::size_t>(i / block_size)]);
  }
  return values;
}

CompressedTensor quantize_codes(const detail::ScaledBlocks& blocks, const Tensor& x) {
  CompressedTensor result = detail::describe(CompressedKind::Int8, x, blocks);
  const Tensor scale = detail::scales_of(blocks.amax, 127.0F);
  const Tensor codes = detail::map_scaled(blocks.values, scale, DType::Int8, [](float v, float s) {
    return static_cast<std::int8_t>(math::clamp(math::round_half_even(v / s), -128.0F, 127.0F));
  });
  result.data = detail::unsplit(codes, blocks, x.sizes());
  result.scale = scale.reshape(blocks.scale_sizes);
  return result;
}

}  // namespace

CompressedTensor quantize_int8(const Tensor& x, const Dims& axis) {
  return quantize_codes(detail::blocks_along(detail::compressible("quantize_int8", x), axis), x);
}

CompressedTensor quantize_int8(const Tensor& x, const BlockSizes& block_sizes) {
  return quantize_codes(detail::blocks_of(detail::compressible("quantize_int8", x), block_sizes),
                        x);
}

CompressedTensor quantize_int4(const Tensor& x, std::int64_t block_size) {
  constexpr std::string_view kOp = "quantize_int4";
  const Tensor values = detail::compressible(kOp, x);
  QUANTA_CHECK(x.dim() >= 1 && x.size(-1) % 2 == 0, "{}: x: expected an even last size, got {}",
               kOp, x.sizes());
  const Tensor blocks = detail::flat_blocks(kOp, values, block_size);
  const Tensor amax = detail::row_amax(blocks);
  CompressedTensor result{CompressedKind::Int4, x.sizes(), x.dtype()};
  result.block_size = block_size;
  const Tensor codes = encode_rows(blocks, amax, [](float v, float largest) {
    const float scale = largest == 0.0F ? 1.0F : math::number_over(7.0F, largest);
    return static_cast<std::uint8_t>(math::clamp(math::round_half_even(v * scale), -8.0F, 7.0F) +
                                     8.0F);
  });
  result.data = pack_nibbles(codes.reshape({-1}).narrow(0, 0, x.numel()).reshape(x.sizes()),
                             FirstNibble::High);
  std::vector<float> scales = amax.to_float_vector();
  for (float& scale : scales) scale = scale == 0.0F ? 1.0F : math::number_over(7.0F, scale);
  result.scale = Tensor::from_values(scales, {amax.numel(), 1});
  return result;
}

CompressedTensor quantize_nf4(const Tensor& x, std::int64_t block_size,
                              std::int64_t scale_block_size, std::int64_t scale_bits) {
  constexpr std::string_view kOp = "quantize_nf4";
  const Tensor values = detail::compressible(kOp, x);
  QUANTA_CHECK(x.numel() % 2 == 0, "{}: x: expected an even number of elements, got {}", kOp,
               x.sizes());
  const Tensor blocks = detail::flat_blocks(kOp, values, block_size);
  const Tensor amax = detail::row_amax(blocks);
  CompressedTensor result{CompressedKind::Nf4, x.sizes(), x.dtype()};
  result.block_size = block_size;
  const Tensor codes = encode_rows(blocks, amax, [](float v, float largest) {
    return nearest_nf4(largest == 0.0F ? 0.0F : v / largest);
  });
  result.data = pack_nibbles(codes.reshape({-1}).narrow(0, 0, x.numel()), FirstNibble::High);

  const detail::ScaleCodes scales =
      detail::encode_scales(kOp, detail::scales_of(amax, 1.0F), scale_block_size, scale_bits);
  result.raw_scale = scales.raw;
  result.scale_zeros = scales.zeros;
  result.double_scale = scales.factors;
  result.scale = scales.codes;
  return result;
}

namespace detail {

ScaleCodes encode_scales(std::string_view op, const Tensor& scales, std::int64_t group,
                         std::int64_t bits) {
  QUANTA_CHECK(group >= 1, "{}: scale_block_size: expected at least 1, got {}", op, group);
  QUANTA_CHECK(bits >= 2 && bits <= 8, "{}: scale_bits: expected 2..8, got {}", op, bits);
  const Tensor groups = flat_blocks(op, scales, group);
  ScaleCodes result;
  result.raw = groups.reshape({-1});
  // What is left of scales that are about the same depends on the order of the mean's sum.
  const std::vector<float> raw = result.raw.to_float_vector();
  result.zeros = Tensor::scalar(quanta::detail::cascade_sum(raw) / static_cast<float>(raw.size()));
  const Tensor centred = sub(groups, result.zeros);
  const Tensor spread = row_amax(centred);
  const auto max_code = static_cast<float>((1 << (bits - 1)) - 1);
  std::vector<float> factors = spread.to_float_vector();
  for (float& factor : factors) {
    factor = factor == 0.0F ? 1.0F : math::number_over(max_code, factor);
  }
  result.factors = Tensor::from_values(factors, {spread.numel()});
  result.codes = map_scaled(centred.contiguous(), result.factors.reshape({-1, 1}), DType::Int8,
                            [max_code](float v, float factor) {
                              return static_cast<std::int8_t>(math::clamp(
                                  math::round_half_even(v * factor), -max_code, max_code));
                            });
  return result;
}

Tensor decode_scales(const Tensor& codes, const Tensor& factors, const Tensor& zeros) {
  return add(div(codes.to(DType::Float32), factors.reshape({-1, 1})), zeros);
}

Tensor dequantize_int8(const CompressedTensor& x) { return dequantize_scaled(x); }

Tensor dequantize_int4(const CompressedTensor& x) {
  return decode_flat(
      unpack_nibbles(x.data, FirstNibble::High), x.scale.to_float_vector(), x.block_size, x.sizes,
      [](std::uint8_t code, float scale) { return (static_cast<float>(code) - 8.0F) / scale; });
}

Tensor dequantize_nf4(const CompressedTensor& x) {
  const Tensor scales = decode_scales(x.scale, x.double_scale, x.scale_zeros);
  return decode_flat(unpack_nibbles(x.data, FirstNibble::High), scales.to_float_vector(),
                     x.block_size, x.sizes,
                     [](std::uint8_t code, float scale) { return kNf4Values[code] * scale; });
}

}  // namespace detail
}  // namespace quanta::modelopt
