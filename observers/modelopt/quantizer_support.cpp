#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <string>

#include "quanta/observers/modelopt/detail/compressed.h"
#include "quanta/observers/modelopt/detail/quantizer_support.h"
#include "quanta/observers/modelopt/detail/scaled_blocks.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/detail/element_format.h"
#include "quanta/ops/matmul.h"
#include "quanta/runtime/check.h"

namespace quanta::modelopt::detail {
namespace {

constexpr std::string_view kOp = "TensorQuantizer";
constexpr NumBits kE4M3 = NumBits::floating(4, 3);
constexpr NumBits kE2M1 = NumBits::floating(2, 1);

// Elements whose scale is that of a given amax.
bool has_amax_form(const NumBits& bits) { return !bits.is_float || bits == kE4M3 || bits == kE2M1; }

void check_scales(const QuantizerConfig& config) {
  const BlockConfig& blocks = *config.block_sizes;
  const NumBits& bits = config.num_bits;
  if (has_integer_scales(config)) {
    const std::int64_t width = blocks.scale_bits->bits;
    QUANTA_SUPPORTED(width >= 2 && width <= 8,
                     "{}: block_sizes: scale_bits: expected integers of 2..8 bits, got {}", kOp,
                     width);
    QUANTA_SUPPORTED(has_amax_form(bits),
                     "{}: block_sizes: scale_bits: expected no integer with num_bits {}, got {}",
                     kOp, quanta::to_string(bits), width);
  } else if (blocks.scale_bits && !blocks.is_dynamic()) {
    QUANTA_SUPPORTED(
        blocks.scale_bits == kE4M3,
        "{}: block_sizes: scale_bits: expected (4, 3) or an integer with type static, got {}", kOp,
        quanta::to_string(*blocks.scale_bits));
  }
  if (blocks.scale_block_sizes) {
    QUANTA_SUPPORTED(has_integer_scales(config),
                     "{}: block_sizes: scale_block_sizes: expected none without an integer "
                     "scale_bits, got {}",
                     kOp, modelopt::to_string(to_value(*blocks.scale_block_sizes)));
    const BlockSizes& groups = *blocks.scale_block_sizes;
    QUANTA_SUPPORTED(groups.size() == 1 && groups[0].first == -1 && groups[0].second.has_value(),
                     "{}: block_sizes: scale_block_sizes: expected one size for axis -1, got {}",
                     kOp, modelopt::to_string(to_value(groups)));
  }
  QUANTA_SUPPORTED(!blocks.four_over_six.value_or(false) ||
                       (bits == kE2M1 && blocks.scale_bits == kE4M3 && !blocks.is_dynamic()),
                   "{}: block_sizes: four_over_six: expected it with num_bits (2, 1), scale_bits "
                   "(4, 3) and type static, got {}",
                   kOp, modelopt::to_string(to_value(blocks)));
}

void check_elements(const QuantizerConfig& config) {
  const NumBits& bits = config.num_bits;
  if (is_block_format(config)) {
    QUANTA_SUPPORTED(quanta::detail::element_format(bits).has_value(),
                     "{}: num_bits: expected 2..8 or a float format with dynamic blocks, got {}",
                     kOp, quanta::to_string(bits));
    const auto& scale = config.block_sizes->scale_bits;
    QUANTA_SUPPORTED(!scale || *scale == NumBits::floating(8, 0) ||
                         quanta::detail::element_format(*scale).has_value(),
                     "{}: block_sizes: scale_bits: expected (8, 0) or (4, 3), got {}", kOp,
                     scale ? quanta::to_string(*scale) : "");
  } else {
    QUANTA_SUPPORTED(has_amax_form(bits),
                     "{}: num_bits: expected an integer, (4, 3) or (2, 1) without dynamic blocks, "
                     "got {}",
                     kOp, quanta::to_string(bits));
    const std::int64_t fewest = config.is_unsigned ? 1 : 2;
    QUANTA_SUPPORTED(bits.is_float || (bits.bits >= fewest && bits.bits <= 32),
                     "{}: num_bits: expected {}..32, got {}", kOp, fewest, bits.bits);
  }
  QUANTA_SUPPORTED(!config.is_unsigned || !(bits.is_float || is_block_format(config)),
                   "{}: unsigned: expected False with num_bits {}{}, got True", kOp,
                   quanta::to_string(bits), is_block_format(config) ? " in dynamic blocks" : "");
  QUANTA_SUPPORTED(!config.narrow_range || !bits.is_float,
                   "{}: narrow_range: expected False with num_bits {}, got True", kOp,
                   quanta::to_string(bits));
}

// What only other programs read.
void check_unused(const QuantizerConfig& config) {
  QUANTA_SUPPORTED(!config.backend, "{}: backend: expected none, got {}", kOp,
                   config.backend.value_or(""));
  QUANTA_SUPPORTED(config.backend_extra_args.is_null(),
                   "{}: backend_extra_args: expected none without a backend, got {}", kOp,
                   modelopt::to_string(config.backend_extra_args));
  QUANTA_SUPPORTED(!config.effective_bits,
                   "{}: effective_bits: expected none (there is no search for formats), got {}",
                   kOp, config.effective_bits.value_or(0.0));
  QUANTA_SUPPORTED(config.trt_high_precision_dtype == "Float",
                   "{}: trt_high_precision_dtype: expected Float (there is no export to TensorRT), "
                   "got {}",
                   kOp, config.trt_high_precision_dtype);
  const QuantizerConfig::Rotate rotate = config.rotation();
  QUANTA_SUPPORTED(rotate.enable || (!rotate.rotate_fp32 && !rotate.block_size &&
                                     rotate.mode == QuantizerConfig::RotateMode::Rotate),
                   "{}: rotate: expected enable=True with other settings, got False", kOp);
  if (!config.bias) return;
  for (const auto& [axis, size] : config.bias->axes) {
    QUANTA_SUPPORTED(!size, "{}: bias: expected None for axis {}, got {}", kOp, axis,
                     size.value_or(0));
  }
  QUANTA_SUPPORTED(config.fake_quant,
                   "{}: bias: expected none with fake_quant=False (it is no part of a compressed "
                   "tensor), got one",
                   kOp);
}

// An amax that holds for every tensor.
void check_constant_amax(const QuantizerConfig& config) {
  if (!has_constant_amax(config)) return;
  const std::string_view field = config.constant_amax ? "constant_amax" : "use_constant_amax";
  const std::string given =
      config.constant_amax ? fmt::format("{}", *config.constant_amax) : "True";
  QUANTA_SUPPORTED(config.fake_quant,
                   "{}: {}: expected none with fake_quant=False (a compressed tensor has the amax "
                   "of its values), got {}",
                   kOp, field, given);
  QUANTA_SUPPORTED(!is_block_format(config) || has_scale_bits(config, kE4M3),
                   "{}: {}: expected none in dynamic blocks (each has its own amax), got {}", kOp,
                   field, given);
  QUANTA_SUPPORTED(config.type != QuantType::Dynamic,
                   "{}: {}: expected none with type dynamic (the amax of each tensor), got {}", kOp,
                   field, given);
}

std::int64_t hadamard_size(const Tensor& x, const QuantizerConfig::Rotate& rotate) {
  QUANTA_CHECK(x.dim() >= 1, "{}: x: expected an axis to rotate, got a scalar", kOp);
  const std::int64_t length = x.size(-1);
  const std::int64_t block = rotate.block_size.value_or(length & -length);
  QUANTA_CHECK(block >= 1 && (block & (block - 1)) == 0 && length % block == 0,
               "{}: rotate: block_size: expected a power of two that divides {}, got {}", kOp,
               length, block);
  return block;
}

// The Hadamard matrix of a power of two.
Tensor hadamard(std::int64_t size) {
  Tensor matrix = Tensor::empty({size, size});
  auto* data = matrix.mutable_data<float>();
  for (std::int64_t row = 0; row < size; ++row) {
    for (std::int64_t column = 0; column < size; ++column) {
      const bool odd = std::popcount(static_cast<std::uint64_t>(row & column)) % 2 != 0;
      data[row * size + column] = odd ? -1.0F : 1.0F;
    }
  }
  return matrix;
}

}  // namespace

bool has_constant_amax(const QuantizerConfig& config) {
  return config.use_constant_amax || config.constant_amax.has_value();
}

bool has_integer_scales(const QuantizerConfig& config) {
  return config.block_sizes && config.block_sizes->scale_bits &&
         !config.block_sizes->scale_bits->is_float;
}

bool is_block_format(const QuantizerConfig& config) {
  return config.block_sizes && config.block_sizes->is_dynamic() && !has_integer_scales(config);
}

void check_supported(const QuantizerConfig& config) {
  check_unused(config);
  if (config.block_sizes) {
    QUANTA_SUPPORTED(!config.block_sizes->sizes.empty() || !config.block_sizes->is_dynamic(),
                     "{}: block_sizes: expected an axis with type dynamic, got none", kOp);
    check_scales(config);
  }
  check_elements(config);
  check_constant_amax(config);
}

void check_supported(const ScaledQuantDescriptor& descriptor, const QuantizerConfig& config) {
  check_supported(config);
  QUANTA_SUPPORTED(descriptor.calib_method == "max" || descriptor.calib_method == "histogram",
                   "{}: calib_method: expected max or histogram, got {}", kOp,
                   descriptor.calib_method);
  const bool finds_own =
      descriptor.dynamic || (descriptor.block_sizes && descriptor.block_sizes->is_dynamic());
  QUANTA_SUPPORTED(!descriptor.amax.defined() || !finds_own,
                   "{}: amax: expected none where it is dynamic, got one of {}", kOp,
                   descriptor.amax.sizes());
  QUANTA_SUPPORTED(!descriptor.learn_amax || !finds_own,
                   "{}: learn_amax: expected False where amax is dynamic, got True", kOp);
  QUANTA_SUPPORTED(
      descriptor.fake_quant ||
          (!descriptor.learn_amax && !descriptor.scale_amax && !descriptor.amax.defined()),
      "{}: fake_quant: expected True with an amax (a compressed tensor has that of its "
      "values), got False",
      kOp);
  QUANTA_CHECK(!descriptor.scale_amax ||
                   (std::isfinite(*descriptor.scale_amax) && *descriptor.scale_amax > 0.0),
               "{}: scale_amax: expected a finite number above 0, got {}", kOp,
               descriptor.scale_amax.value_or(0.0));
  const bool has_scale_format = is_block_format(config) && config.block_sizes->scale_bits;
  QUANTA_SUPPORTED(
      !descriptor.scale_amax || !has_scale_format || has_scale_bits(config, kE4M3),
      "{}: scale_amax: expected none in dynamic blocks with scale_bits {} (the format says how "
      "their scales follow from the elements), got {}",
      kOp, has_scale_format ? quanta::to_string(*config.block_sizes->scale_bits) : "",
      descriptor.scale_amax.value_or(0.0));
}

QuantizerConfig config_of(const ScaledQuantDescriptor& descriptor) {
  QuantizerConfig config;
  config.num_bits = descriptor.num_bits;
  config.fake_quant = descriptor.fake_quant;
  config.axis = descriptor.axis;
  config.is_unsigned = descriptor.is_unsigned;
  config.narrow_range = descriptor.narrow_range;
  config.block_sizes = descriptor.block_sizes;
  config.calibrator = descriptor.calib_method;
  config.pass_through_bwd = false;
  if (descriptor.dynamic) config.type = QuantType::Dynamic;
  return config;
}

Tensor rotated(const Tensor& x, const QuantizerConfig::Rotate& rotate) {
  const std::int64_t size = hadamard_size(x, rotate);
  const Tensor rows = x.reshape({-1, size}).to(DType::Float32);
  Tensor y = matmul(rows, hadamard(size).to(x.device()));
  if (!rotate.rotate_fp32) y = y.to(x.dtype()).to(DType::Float32);
  const Tensor root = Tensor::scalar(std::sqrt(static_cast<double>(size))).to(x.device());
  return div(y, root).reshape(x.sizes()).to(x.dtype());
}

Tensor double_quantized(const Tensor& amax, std::int64_t bits, std::int64_t group) {
  const Tensor scales = scales_of(amax.detach().contiguous(), 1.0F);
  const ScaleCodes codes = encode_scales(
      kOp, scales, group > 0 ? group : std::max<std::int64_t>(scales.numel(), 1), bits);
  const Tensor decoded = decode_scales(codes.codes, codes.factors, codes.zeros);
  return clamp(decoded.reshape({-1}).narrow(0, 0, scales.numel()), 0.0, std::nullopt)
      .reshape(amax.sizes());
}

}  // namespace quanta::modelopt::detail
