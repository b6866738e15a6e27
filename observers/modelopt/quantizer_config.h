#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "quanta/observers/modelopt/block_config.h"
#include "quanta/observers/modelopt/calibrator.h"
#include "quanta/observers/modelopt/config_value.h"

namespace quanta::modelopt {

/// ModelOpt's QuantizerAttributeConfig: all that a TensorQuantizer is told. A plain value: threads
/// may share what none of them changes.
struct QuantizerConfig {
  struct Bias {
    BlockSizes axes{};  ///< with sizes or None
    std::optional<QuantType> type{};
    std::optional<BiasCalibrator::Method> method{};
    bool operator==(const Bias&) const = default;
  };
  enum class RotateMode : std::uint8_t { Rotate, RotateBack };
  /// A normalized Hadamard rotation along the last axis before quantization.
  struct Rotate {
    bool enable = false;
    RotateMode mode = RotateMode::Rotate;  ///< RotateBack: the inverse follows quantization
    bool rotate_fp32 = false;
    std::optional<std::int64_t> block_size{};
    bool operator==(const Rotate&) const = default;
  };

  bool enable = true;
  NumBits num_bits{};
  /// Stands in the place of num_bits for a backend of its own.
  std::optional<std::string> num_bits_name{};
  std::optional<double> effective_bits{};
  std::optional<Axis> axis{};
  bool fake_quant = true;
  bool is_unsigned = false;
  bool narrow_range = false;
  bool learn_amax = false;  ///< has to stay false
  QuantType type = QuantType::Static;
  std::optional<BlockConfig> block_sizes{};
  std::optional<Bias> bias{};
  std::string trt_high_precision_dtype = "Float";
  /// "max", "histogram", or a description of how to construct one: a tuple, list or dictionary.
  ConfigValue calibrator = "max";
  std::variant<bool, Rotate> rotate = false;
  bool pass_through_bwd = true;
  std::optional<std::string> backend{};
  ConfigValue backend_extra_args{};
  bool use_constant_amax = false;
  std::optional<double> constant_amax{};

  /// Throws ArgumentError `QuantizerConfig: field: ...` for an unknown field, a value of a wrong
  /// type or outside its range, fields that exclude each other, and for enable=True alone.
  static QuantizerConfig from_dict(const ConfigValue& fields);
  /// Checks what from_dict checks, for a config that was filled in by hand.
  void check() const;
  /// Every field in the order above; from_dict gives the same config again.
  ConfigValue to_dict() const;
  /// The fields that from_dict was given, as they were.
  ConfigValue set_fields() const;

  Rotate rotation() const;

  bool operator==(const QuantizerConfig& other) const;

 private:
  ConfigValue::Dict given_;
};

}  // namespace quanta::modelopt
