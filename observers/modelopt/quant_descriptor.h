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
  /// Float32, of any shape that broadcasts to what is quantized; undefined: none.
  Tensor amax{};
  bool learn_amax = false;
  std::optional<double> scale_amax{};
  std::string calib_method = "max";
  bool is_unsigned = false;
  bool narrow_range = false;
  std::optional<BlockConfig> block_sizes{};  ///< ModelOpt only
  bool dynamic = false;                      ///< ModelOpt only
  Dialect dialect = Dialect::PytorchQuantization;

  /// From keyword arguments. Throws ArgumentError `ScaledQuantDescriptor: field: ...`: num_bits
  /// neither an integer nor (4, 3) (ModelOpt: nor (2, 1)) or negative, a name that is no text,
  /// learn_amax with an axis, amax that is neither a float nor a list of numbers or of lists of one
  /// length (an integer is refused, as in the originals, and every tuple), axis with block_sizes,
  /// block sizes that are no positive integers, unknown fields.
  static ScaledQuantDescriptor from_dict(const ConfigValue& fields,
                                         Dialect dialect = Dialect::PytorchQuantization);
  /// Checks the fields as from_dict does; for descriptors that were filled in by hand.
  void check() const;

  /// num_bits and name always, each other field where it differs from the default: from_dict gives
  /// exactly the same descriptor again, for the same dialect.
  ConfigValue dict() const;
  /// What dict() gives in the released packages: calib_method, narrow_range, block_sizes and dynamic
  /// are lost.
  ConfigValue released_dict() const;

  /// The sizes by axis of a dictionary `block_sizes`: what stands there beside type, scale_bits,
  /// scale_block_sizes and four_over_six. None for None. Throws ArgumentError as from_dict does.
  static std::optional<BlockSizes> get_block_quant_axes_and_sizes(const ConfigValue& block_sizes);

  /// Compares all fields, amax by value.
  bool operator==(const ScaledQuantDescriptor& other) const;
};

/// The originals' short name.
using QuantDescriptor = ScaledQuantDescriptor;

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

namespace quanta::pytorch_quantization {
using modelopt::QuantDescriptor;
using modelopt::ScaledQuantDescriptor;
}  // namespace quanta::pytorch_quantization
