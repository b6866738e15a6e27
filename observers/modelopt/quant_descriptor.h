#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "quanta/observers/modelopt/block_config.h"
#include "quanta/observers/modelopt/config_value.h"
#include "quanta/runtime/tensor.h"

namespace quanta::modelopt {

/// Describes how a tensor is quantized: pytorch-quantization's ScaledQuantDescriptor, and that of
/// ModelOpt 0.13, which adds float formats, blocks and `dynamic`. A plain value: threads may share
/// what none of them changes.
struct ScaledQuantDescriptor {
  enum class Dialect : std::uint8_t { PytorchQuantization, ModelOpt };

  NumBits num_bits{};
  std::optional<std::string> name{};
  bool fake_quant = true;
  std::optional<Axis> axis{};
  Tensor amax{};  ///< Float32, scalar or [n]; undefined: none
  bool learn_amax = false;
  std::optional<double> scale_amax{};
  std::string calib_method = "max";
  bool is_unsigned = false;
  bool narrow_range = false;
  std::optional<BlockConfig> block_sizes{};  ///< ModelOpt only
  bool dynamic = false;                      ///< ModelOpt only
  Dialect dialect = Dialect::PytorchQuantization;

  /// From keyword arguments. Throws ArgumentError `ScaledQuantDescriptor: field: ...`: num_bits not
  /// an integer (ModelOpt: nor (4, 3) or (2, 1)) or negative, a name that is no text, learn_amax
  /// with an axis, amax that is no float, list or tuple of numbers, axis with block_sizes, block
  /// sizes that are no positive integers, unknown fields.
  static ScaledQuantDescriptor from_dict(const ConfigValue& fields,
                                         Dialect dialect = Dialect::PytorchQuantization);
  /// Checks the fields as from_dict does; for descriptors that were filled in by hand.
  void check() const;

  /// num_bits and name always; fake_quant, axis, amax, scale_amax, learn_amax and unsigned where
  /// they differ from the default. As in the originals, nothing else: calib_method, narrow_range,
  /// block_sizes and dynamic are lost.
  ConfigValue to_dict() const;
  /// Every field that differs from the default; from_dict gives the same descriptor again.
  ConfigValue to_full_dict() const;

  /// Block sizes by axis; none without block_sizes.
  std::optional<BlockSizes> block_quant_axes_and_sizes() const;

  /// Compares all fields, amax by value.
  bool operator==(const ScaledQuantDescriptor& other) const;
};

/// "QuantDescriptor(8bit fake axis= per-tensor)", "w: (unsigned 4bit real axis=(0,) amax=2.5 ...)".
std::string to_string(const ScaledQuantDescriptor& descriptor);

// The predefined descriptors: 8 bits per tensor, signed and unsigned, and 8 bits for each row
// (axis 0) of weights.
ScaledQuantDescriptor quant_desc_8bit_per_tensor();
ScaledQuantDescriptor quant_desc_unsigned_8bit_per_tensor();
ScaledQuantDescriptor quant_desc_8bit_conv1d_weight_per_channel();
ScaledQuantDescriptor quant_desc_8bit_conv2d_weight_per_channel();
ScaledQuantDescriptor quant_desc_8bit_conv3d_weight_per_channel();
ScaledQuantDescriptor quant_desc_8bit_conv_transpose_weight_per_channel();
ScaledQuantDescriptor quant_desc_8bit_linear_weight_per_row();

}  // namespace quanta::modelopt
