#pragma once

// Private: reading fields of descriptions, with errors that name the field and its value.

#include <cstdint>
#include <string>
#include <string_view>

#include "quanta/observers/modelopt/block_config.h"
#include "quanta/observers/modelopt/config_value.h"
#include "quanta/runtime/dims.h"

namespace quanta::modelopt::detail {

/// The start of messages: "ScaledQuantDescriptor: num_bits".
struct FieldName {
  std::string_view owner;
  std::string_view field;
};

[[noreturn]] void throw_field(const FieldName& name, std::string_view expected,
                              const ConfigValue& got);

bool read_bool(const FieldName& name, const ConfigValue& value);
std::int64_t read_int(const FieldName& name, const ConfigValue& value);
/// A float or an int.
double read_number(const FieldName& name, const ConfigValue& value);
std::string read_text(const FieldName& name, const ConfigValue& value);
const ConfigValue::Dict& read_dict(const FieldName& name, const ConfigValue& value);

/// None, an int or a tuple (or list) of ints.
std::optional<Axis> read_axis(const FieldName& name, const ConfigValue& value);
/// An int, or a pair of exponent and mantissa bits.
NumBits read_num_bits(const FieldName& name, const ConfigValue& value);

}  // namespace quanta::modelopt::detail
