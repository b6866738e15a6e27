#pragma once

// Private: parts of TensorQuantizer that need none of its state.

#include <cstdint>
#include <string_view>

#include "quanta/observers/modelopt/quant_descriptor.h"
#include "quanta/observers/modelopt/quantizer_config.h"
#include "quanta/runtime/tensor.h"

namespace quanta::modelopt::detail {

/// Throws UnsupportedError `TensorQuantizer: field: ...` for what a quantizer cannot do, and for
/// every field that would have no effect.
void check_supported(const QuantizerConfig& config);
/// The same for what the descriptor has beside a config; `config` is config_of(descriptor).
void check_supported(const ScaledQuantDescriptor& descriptor, const QuantizerConfig& config);

/// The descriptor's fields that a config has as well.
QuantizerConfig config_of(const ScaledQuantDescriptor& descriptor);

inline bool has_scale_bits(const QuantizerConfig& config, const NumBits& bits) {
  return config.block_sizes && config.block_sizes->scale_bits == bits;
}
/// Whether one amax holds for every tensor, set or calibrated or not.
bool has_constant_amax(const QuantizerConfig& config);
/// Whether the scales of blocks are integers: `scale_bits` is one.
bool has_integer_scales(const QuantizerConfig& config);
/// Whether dynamic_block_quant quantizes: dynamic blocks without integer scales.
bool is_block_format(const QuantizerConfig& config);

/// `x` times a Hadamard matrix along the last axis, which is its own inverse. Float16 and BFloat16
/// are rounded after the product and again after the division by the square root, once with
/// rotate_fp32. Throws ArgumentError for sizes that do not fit.
Tensor rotated(const Tensor& x, const QuantizerConfig::Rotate& rotate);

/// Double quantization: the amax of blocks (Float32 on the CPU) as `bits`-bit integers around their
/// mean, in groups of `group` blocks in a row (0: all are one), as quantize_nf4 keeps its scales.
/// Never negative; zeros count as 1, which their blocks do not show.
Tensor double_quantized(const Tensor& amax, std::int64_t bits, std::int64_t group);

}  // namespace quanta::modelopt::detail
