// FP8, NVFP4, MXFP4 and MXFP8, and what INT8 shares with FP8.

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "quanta/observers/modelopt/detail/compressed.h"
#include "quanta/observers/modelopt/detail/scaled_blocks.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/float_format.h"

namespace quanta::modelopt {
namespace {

using math::Overflow;

std::uint8_t to_e4m3(float value) {
  return static_cast<std::uint8_t>(math::encode_float(value, math::kE4M3FN, Overflow::Saturate));
}

float from_e4m3(std::uint8_t code) { return math::decode_float(code, math::kE4M3FN); }

float from_e2m1(std::uint8_t code) { return math::decode_float(code, math::kE2M1); }

// sign << 3 | index; -0 has no sign.
std::uint8_t to_e2m1(float value) {
  const float magnitude = std::fabs(value);
  const std::uint16_t index = math::encode_float(magnitude, math::kE2M1, Overflow::Saturate);
  return static_cast<std::uint8_t>((value < 0.0F ? 8U : 0U) | (index & 7U));
}

// What ModelOpt's MXFP4 makes of a value: ties go down, zeros have the sign bit.
std::uint8_t to_mxfp4(float value) {
  constexpr std::array<float, 7> kBounds = {0.25F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, 5.0F};
  const float magnitude = std::fabs(value);
  const auto index =
      std::count_if(kBounds.begin(), kBounds.end(), [&](float bound) { return magnitude > bound; });
  return static_cast<std::uint8_t>((value > 0.0F ? 0 : 8) | index);
}

// The smallest power of two that is not below amax / max, by float32's log2; -127 for 0.
int block_exponent(float amax, float max) {
  if (amax == 0.0F) return -127;
  return static_cast<int>(math::clamp(std::ceil(std::log2(amax / max)), -127.0F, 127.0F));
}

Tensor as_scale_column(const Tensor& scales) { return scales.reshape({-1, 1}); }

CompressedTensor quantize_floats(const detail::ScaledBlocks& blocks, const Tensor& x) {
  CompressedTensor result = detail::describe(CompressedKind::Fp8, x, blocks);
  const Tensor scale = detail::scales_of(blocks.amax, 448.0F);
  const Tensor codes = detail::map_scaled(blocks.values, scale, DType::UInt8,
                                          [](float v, float s) { return to_e4m3(v / s); });
  result.data = detail::unsplit(codes, blocks, x.sizes()).bit_cast(DType::Float8E4M3FN);
  result.scale = scale.reshape(blocks.scale_sizes);
  return result;
}

// x * 2^-exponent in E4M3; the exponents are those of blocks along the last axis.
Tensor e4m3_codes(const Tensor& rows, const Tensor& exponents) {
  std::vector<float> factors;
  for (const std::int64_t code : exponents.to_int64_vector()) {
    factors.push_back(math::power_of_two(127 - static_cast<int>(code)));
  }
  Dims sizes = exponents.sizes();
  sizes.push_back(1);
  return detail::map_scaled(rows, Tensor::from_values(factors, sizes), DType::UInt8,
                            [](float v, float factor) { return to_e4m3(v * factor); });
}

constexpr std::int64_t kMxBlock = 32;

CompressedTensor compress_mxfp8(const Tensor& x, const Tensor& rows, const Tensor& scale) {
  CompressedTensor result{CompressedKind::MxFp8, x.sizes(), x.dtype()};
  result.block_size = kMxBlock;
  result.scale = scale;
  Dims padded = x.sizes();
  padded[padded.size() - 1] = rows.size(-2) * kMxBlock;
  const Tensor codes = e4m3_codes(rows, scale).reshape(padded);
  result.data = detail::crop(codes, x.sizes()).bit_cast(DType::Float8E4M3FN);
  return result;
}

// values(code) of every element times its block's scale; `scales` are Float32.
template <typename Decode>
Tensor decode_blocks(const Tensor& codes, const Tensor& scales, std::int64_t block_size,
                     Decode&& decode) {
  Tensor values = Tensor::empty(codes.sizes());
  const auto* from = static_cast<const std::uint8_t*>(codes.data_ptr());
  const auto* factors = static_cast<const float*>(scales.data_ptr());
  auto* to = static_cast<float*>(values.data_ptr());
  const std::int64_t length = codes.size(-1);
  const std::int64_t blocks = ceil_div(length, block_size);
  for (std::int64_t i = 0; i < codes.numel(); ++i) {
    to[i] = decode(from[i]) * factors[i / length * blocks + i % length / block_size];
  }
  return values;
}

Tensor powers_of_two(const Tensor& exponents) {
  std::vector<float> values;
  for (const std::int64_t code : exponents.to_int64_vector()) {
    values.push_back(math::e8m0_to_float(static_cast<std::uint8_t>(code)));
  }
  return Tensor::from_values(values, exponents.sizes());
}

}  // namespace

CompressedTensor quantize_fp8(const Tensor& x, const Dims& axis) {
  return quantize_floats(detail::blocks_along(detail::compressible("quantize_fp8", x), axis), x);
}

CompressedTensor quantize_fp8(const Tensor& x, const BlockSizes& block_sizes) {
  return quantize_floats(detail::blocks_of(detail::compressible("quantize_fp8", x), block_sizes),
                         x);
}

CompressedTensor quantize_nvfp4(const Tensor& x, std::int64_t block_size,
                                std::optional<double> global_amax) {
  constexpr std::string_view kOp = "quantize_nvfp4";
  const Tensor values = detail::compressible(kOp, x);
  QUANTA_CHECK(x.dim() >= 1 && x.size(-1) % 2 == 0, "{}: x: expected an even last size, got {}",
               kOp, x.sizes());
  const Tensor blocks = detail::last_axis_blocks(kOp, values, block_size);
  const double largest = global_amax.value_or(reduce_amax(values).item());
  QUANTA_CHECK(std::isfinite(largest) && largest >= 0.0,
               "{}: global_amax: expected a finite number that is not negative, got {}", kOp,
               largest);
  const float factor = static_cast<float>(largest) / (6.0F * 448.0F);
  CompressedTensor result{CompressedKind::NvFp4, x.sizes(), x.dtype()};
  result.block_size = block_size;
  result.double_scale = Tensor::scalar(static_cast<double>(factor));

  const Tensor amax = detail::row_amax(blocks);
  result.scale = Tensor::empty(amax.sizes(), DType::UInt8);
  Tensor divisors = Tensor::empty(amax.sizes());
  const auto* from = static_cast<const float*>(amax.data_ptr());
  for (std::int64_t i = 0; i < amax.numel(); ++i) {
    const float scale = factor == 0.0F ? 0.0F : from[i] / (6.0F * factor);
    const float kept = scale == 0.0F ? 1.0F : math::clamp(scale, math::power_of_two(-9), 448.0F);
    const std::uint8_t code = to_e4m3(kept);
    static_cast<std::uint8_t*>(result.scale.data_ptr())[i] = code;
    static_cast<float*>(divisors.data_ptr())[i] = from_e4m3(code) * factor;
  }
  result.scale = result.scale.bit_cast(DType::Float8E4M3FN);
  const Tensor codes = detail::map_scaled(
      blocks, divisors.unsqueeze(-1).contiguous(), DType::UInt8, [](float v, float divisor) {
        // Only a tensor of zeros has no factor.
        return divisor == 0.0F ? std::uint8_t{0} : to_e2m1(v / divisor);
      });
  result.data = pack_nibbles(codes.reshape(x.sizes()), FirstNibble::Low);
  return result;
}

CompressedTensor quantize_mxfp4(const Tensor& x, std::int64_t block_size) {
  constexpr std::string_view kOp = "quantize_mxfp4";
  const Tensor values = detail::compressible(kOp, x);
  QUANTA_CHECK(x.dim() >= 1 && x.size(-1) % 2 == 0, "{}: x: expected an even last size, got {}",
               kOp, x.sizes());
  const Tensor blocks = detail::last_axis_blocks(kOp, values, block_size);
  const Tensor amax = detail::row_amax(blocks);
  CompressedTensor result{CompressedKind::MxFp4, x.sizes(), x.dtype()};
  result.block_size = block_size;
  Tensor exponents = Tensor::empty(amax.sizes(), DType::UInt8);
  for (std::int64_t i = 0; i < amax.numel(); ++i) {
    const int exponent = block_exponent(static_cast<const float*>(amax.data_ptr())[i], 6.0F);
    static_cast<std::uint8_t*>(exponents.data_ptr())[i] = static_cast<std::uint8_t>(exponent + 127);
  }
  result.scale = as_scale_column(exponents);
  const Tensor codes =
      detail::map_scaled(blocks, powers_of_two(exponents).unsqueeze(-1).contiguous(), DType::UInt8,
                         [](float v, float scale) { return to_mxfp4(v / scale); });
  result.data = pack_nibbles(codes.reshape(x.sizes()), FirstNibble::Low);
  return result;
}

CompressedTensor quantize_mxfp8(const Tensor& x) {
  constexpr std::string_view kOp = "quantize_mxfp8";
  const Tensor values = detail::compressible(kOp, x);
  QUANTA_CHECK(x.dim() >= 1, "{}: x: expected at least one axis, got a scalar", kOp);
  const Tensor padded = reduce_block_padding(values, {{-1, kMxBlock}});
  const Tensor rows = detail::last_axis_blocks(kOp, padded, kMxBlock);
  const Tensor amax = detail::row_amax(rows);
  Tensor scale = Tensor::empty(amax.sizes(), DType::UInt8);
  for (std::int64_t i = 0; i < amax.numel(); ++i) {
    const int exponent = block_exponent(static_cast<const float*>(amax.data_ptr())[i], 448.0F);
    static_cast<std::uint8_t*>(scale.data_ptr())[i] = static_cast<std::uint8_t>(exponent + 127);
  }
  return compress_mxfp8(x, rows.contiguous(), scale);
}

CompressedTensor quantize_mxfp8_with_scale(const Tensor& x, const Tensor& scale) {
  constexpr std::string_view kOp = "quantize_mxfp8_with_scale";
  const Tensor values = detail::compressible(kOp, x);
  const Tensor rows = detail::last_axis_blocks(kOp, values, kMxBlock);
  Dims sizes = x.sizes();
  sizes[sizes.size() - 1] /= kMxBlock;
  QUANTA_CHECK(scale.defined() && scale.dtype() == DType::UInt8 && scale.sizes() == sizes,
               "{}: scale: expected UInt8 {}, got {} {}", kOp, sizes,
               scale.defined() ? to_string(scale.dtype()) : "undefined",
               scale.defined() ? scale.sizes() : Dims{});
  return compress_mxfp8(x, rows.contiguous(), scale.contiguous());
}

Tensor cast_fp4(const Tensor& x) {
  QUANTA_CHECK(x.defined() && x.is_floating_point(),
               "cast_fp4: x: expected a floating tensor, got {}",
               x.defined() ? to_string(x.dtype()) : "an undefined one");
  return detail::map_scaled(x.detach().to(DType::Float32).contiguous(), Tensor::scalar(1.0),
                            DType::UInt8, [](float v, float) { return to_e2m1(v); });
}

NvFp4Conversion mxfp4_to_nvfp4(const Tensor& blocks, const Tensor& e8m0) {
  constexpr std::string_view kOp = "mxfp4_to_nvfp4";
  QUANTA_CHECK(
      e8m0.defined() && e8m0.dtype() == DType::UInt8 && e8m0.dim() >= 1 && e8m0.numel() > 0,
      "{}: e8m0: expected UInt8 with at least one axis and element, got {}", kOp,
      e8m0.defined() ? to_string(e8m0.sizes()) : "an undefined tensor");
  Dims block_sizes = e8m0.sizes();
  block_sizes.push_back(kMxBlock / 2);
  QUANTA_CHECK(blocks.defined() && blocks.dtype() == DType::UInt8 && blocks.sizes() == block_sizes,
               "{}: blocks: expected UInt8 {}, got {}", kOp, block_sizes,
               blocks.defined() ? to_string(blocks.sizes()) : "an undefined tensor");
  const std::vector<std::int64_t> scales = e8m0.to_int64_vector();
  const Tensor codes = unpack_nibbles(blocks, FirstNibble::Low);
  const auto* code = static_cast<const std::uint8_t*>(codes.data_ptr());

  NvFp4Conversion result;
  result.n_total_blocks = e8m0.numel();
  bool first = true;
  for (const std::int64_t scale : scales) {
    if (scale == 0) {
      ++result.n_zero_blocks;
      continue;
    }
    result.k_min = first ? scale - 127 : std::min(result.k_min, scale - 127);
    result.k_max = first ? scale - 127 : std::max(result.k_max, scale - 127);
    first = false;
  }
  result.m = result.k_max - 8;
  result.global_amax = std::ldexp(6.0 * 448.0, static_cast<int>(result.m));
  Dims amax_sizes = e8m0.sizes();
  amax_sizes[amax_sizes.size() - 1] *= 2;
  result.block_amax = Tensor::empty(amax_sizes);
  auto* to = static_cast<float*>(result.block_amax.data_ptr());
  for (std::size_t b = 0; b < scales.size(); ++b) {
    const auto k = static_cast<int>(scales[b] - 127);
    const std::int64_t above = k - result.m;
    const bool fits = above >= -9 && above <= 8;
    float largest = 6.0F;
    if (!fits) {
      largest = 0.0F;
      for (std::size_t i = 0; i < static_cast<std::size_t>(kMxBlock); ++i) {
        largest = std::max(largest,
                           std::fabs(from_e2m1(code[b * static_cast<std::size_t>(kMxBlock) + i])));
      }
    }
    if (fits || scales[b] == 0) ++result.n_lossless_blocks;
    to[2 * b] = to[2 * b + 1] = std::ldexp(largest, k);
  }
  result.pct_lossless = 100.0 * static_cast<double>(result.n_lossless_blocks) /
                        static_cast<double>(result.n_total_blocks);
  return result;
}

namespace detail {

ScaledBlocks blocks_along(const Tensor& x, const Dims& axis) {
  const Tensor amax = reduce_amax(x, axis);
  return {x, amax, amax.sizes(), x.sizes(), {}};
}

ScaledBlocks blocks_of(const Tensor& x, const BlockSizes& block_sizes) {
  const Tensor padded = reduce_block_padding(x, block_sizes);
  const SplitBlocks split = split_blocks(padded, block_sizes);
  Dims broadcast = split.values.sizes();
  for (const std::int64_t axis : split.inner_axes) broadcast[static_cast<std::size_t>(axis)] = 1;
  const Tensor amax = reduce_block_amax(padded, block_sizes);
  return {split.values.contiguous(), amax.reshape(broadcast), amax.sizes(), padded.sizes(),
          block_sizes};
}

CompressedTensor describe(CompressedKind kind, const Tensor& x, const ScaledBlocks& blocks) {
  CompressedTensor result{kind, x.sizes(), x.dtype()};
  result.block_sizes = blocks.block_sizes;
  return result;
}

Tensor scales_of(const Tensor& amax, float max_code) {
  Tensor scales = Tensor::empty(amax.sizes());
  const auto* from = static_cast<const float*>(amax.data_ptr());
  auto* to = static_cast<float*>(scales.data_ptr());
  for (std::int64_t i = 0; i < amax.numel(); ++i) {
    const float scale = from[i] / max_code;
    to[i] = scale == 0.0F ? 1.0F : scale;
  }
  return scales;
}

Tensor unsplit(const Tensor& codes, const ScaledBlocks& blocks, const Dims& sizes) {
  return crop(codes.reshape(blocks.padded_sizes), sizes);
}

Tensor dequantize_scaled(const CompressedTensor& x) {
  const Tensor codes = x.data.to(DType::Float32);
  if (x.block_sizes.empty()) return mul(codes, x.scale);
  const Tensor padded = reduce_block_padding(codes, x.block_sizes);
  const SplitBlocks split = split_blocks(padded, x.block_sizes);
  Dims broadcast = split.values.sizes();
  for (const std::int64_t axis : split.inner_axes) broadcast[static_cast<std::size_t>(axis)] = 1;
  return crop(mul(split.values, x.scale.reshape(broadcast)).reshape(padded.sizes()), x.sizes);
}

Tensor dequantize_fp8(const CompressedTensor& x) { return dequantize_scaled(x); }

Tensor dequantize_nvfp4(const CompressedTensor& x) {
  const Tensor scales = mul(x.scale.to(DType::Float32), x.double_scale).contiguous();
  return decode_blocks(unpack_nibbles(x.data, FirstNibble::Low), scales, x.block_size, from_e2m1);
}

Tensor dequantize_mxfp4(const CompressedTensor& x) {
  return decode_blocks(unpack_nibbles(x.data, FirstNibble::Low), powers_of_two(x.scale),
                       x.block_size, from_e2m1);
}

Tensor dequantize_mxfp8(const CompressedTensor& x) {
  return decode_blocks(x.data.bit_cast(DType::UInt8), powers_of_two(x.scale), x.block_size,
                       from_e4m3);
}

}  // namespace detail
}  // namespace quanta::modelopt
