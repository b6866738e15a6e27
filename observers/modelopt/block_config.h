#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "quanta/observers/modelopt/config_value.h"
#include "quanta/observers/modelopt/reduce.h"
#include "quanta/ops/block_quant.h"
#include "quanta/runtime/dims.h"

// Plain values: threads may share what none of them changes.

namespace quanta::modelopt {

/// The axes whose indices amax keeps. `single` tells the number 0 from the tuple (0,).
struct Axis {
  Dims axes{};
  bool single = false;
  bool operator==(const Axis&) const = default;
};

enum class QuantType : std::uint8_t { Static, Dynamic };

/// The dictionary `block_sizes`: {-1: 16, "type": "dynamic", "scale_bits": (4, 3)}.
struct BlockConfig {
  BlockSizes sizes{};
  std::optional<QuantType> type{};
  std::optional<NumBits> scale_bits{};
  std::optional<BlockSizes> scale_block_sizes{};
  std::optional<bool> four_over_six{};

  bool is_dynamic() const noexcept { return type == QuantType::Dynamic; }
  bool operator==(const BlockConfig&) const = default;
};

/// The same as a value of a dictionary. These do not throw.
ConfigValue to_value(const NumBits& bits);
ConfigValue to_value(const Axis& axis);
ConfigValue to_value(const BlockSizes& sizes);
/// Integer keys come first.
ConfigValue to_value(const BlockConfig& blocks);

/// Reads a dictionary: integer keys map to a size > 0 or None, text keys are type, scale_bits,
/// scale_block_sizes and four_over_six. Throws ArgumentError `owner: block_sizes: ...`.
BlockConfig block_config_from(std::string_view owner, const ConfigValue& value);

}  // namespace quanta::modelopt
