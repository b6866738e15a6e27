#pragma once

#include <string>
#include <string_view>

#include "quanta/observers/modelopt/config_value.h"
#include "quanta/observers/modelopt/quant_descriptor.h"
#include "quanta/observers/modelopt/quantizer_config.h"

/// Quantizer descriptions as YAML. A library of its own, which links yaml-cpp:
///
///   find_package(quanta REQUIRED COMPONENTS yaml)
///   target_link_libraries(program PRIVATE quanta::yaml)
///
/// Many threads may call these functions at once while nobody changes the arguments.
namespace quanta::modelopt {

/// Dictionaries with sorted keys in block style, sequences as lists, as PyYAML's yaml.dump writes
/// them: "axis:\n- 0\nname: w\nnum_bits: 8\n". Throws ArgumentError unless `value` is a dictionary.
std::string to_yaml(const ConfigValue& value);

/// The dictionary that the text holds; sequences become lists, numbers and words what YAML 1.1
/// makes of them. Throws ArgumentError with the position for text that is no YAML, no dictionary,
/// longer than 8 MiB, deeper than 16 levels, of more than 1000000 values (as many lines, commas and
/// brackets) or 10000 keys and values that aliases repeat, for tags, and for keys that come twice.
ConfigValue parse_yaml(std::string_view text);

/// dict() as YAML: descriptor_from_yaml gives exactly the same descriptor again, as long as amax is
/// within parse_yaml's limits (250000 rows of one element are).
std::string to_yaml(const ScaledQuantDescriptor& descriptor);
/// What to_yaml gives in the released packages: released_dict(). Throws ArgumentError for an axis
/// that is no tuple, as they do.
std::string released_yaml(const ScaledQuantDescriptor& descriptor);
/// Lists of axes become tuples. Throws ArgumentError as parse_yaml and from_dict do.
ScaledQuantDescriptor descriptor_from_yaml(
    std::string_view text,
    ScaledQuantDescriptor::Dialect dialect = ScaledQuantDescriptor::Dialect::PytorchQuantization);

std::string to_yaml(const QuantizerConfig& config);
QuantizerConfig config_from_yaml(std::string_view text);

}  // namespace quanta::modelopt
