// Descriptions of quantizers: dictionaries, YAML and text.

#include <string>
#include <vector>

#include "expected_error.h"
#include "quanta/observers/modelopt/quant_descriptor.h"
#include "quanta/observers/modelopt/quantizer_config.h"
#include "quanta/observers/yaml/descriptor_yaml.h"
#include "registry.h"

namespace quanta::conform {
namespace {

using modelopt::ConfigValue;
using modelopt::QuantizerConfig;
using modelopt::ScaledQuantDescriptor;

/// {"dict": [[key, value], ...]}, {"tuple": [...]}, lists and plain values.
ConfigValue value_from(const Json& json) {
  const auto items_of = [](const Json& list) {
    std::vector<ConfigValue> items;
    for (const Json& item : list) items.push_back(value_from(item));
    return items;
  };
  if (json.is_null()) return {};
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) return json.get<std::int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  if (json.is_array()) return ConfigValue::list(items_of(json));
  if (json.contains("tuple")) return ConfigValue::tuple(items_of(json.at("tuple")));
  ConfigValue::Dict dict;
  for (const Json& entry : json.at("dict")) {
    dict.items.emplace_back(value_from(entry.at(0)), value_from(entry.at(1)));
  }
  return dict;
}

/// The same form as a case's values.
Value as_case_value(const ConfigValue& value) {
  struct Visitor {
    Value operator()(ConfigValue::Null) const { return {}; }
    Value operator()(bool flag) const { return flag; }
    Value operator()(std::int64_t whole) const { return whole; }
    Value operator()(double real) const { return real; }
    Value operator()(const std::string& text) const { return text; }
    Value operator()(const ConfigValue::Sequence& sequence) const {
      List list;
      for (const ConfigValue& item : sequence.items) list.push_back(as_case_value(item));
      if (!sequence.is_tuple) return list;
      Object tuple;
      tuple.set("tuple", std::move(list));
      return tuple;
    }
    Value operator()(const ConfigValue::Dict& dict) const {
      List entries;
      for (const auto& [key, entry] : dict.items) {
        entries.emplace_back(List{as_case_value(key), as_case_value(entry)});
      }
      Object object;
      object.set("dict", std::move(entries));
      return object;
    }
  };
  return std::visit(Visitor{}, value.get());
}

ScaledQuantDescriptor descriptor_of(const Case& test, const char* name,
                                    ScaledQuantDescriptor::Dialect dialect) {
  return ScaledQuantDescriptor::from_dict(value_from(test.attr(name)), dialect);
}

// The cases hold what the released packages lose.
Outputs run_pytq(const Case& test) {
  const ScaledQuantDescriptor descriptor =
      descriptor_of(test, "kwargs", ScaledQuantDescriptor::Dialect::PytorchQuantization);
  const std::string yaml = released_yaml(descriptor);
  const ScaledQuantDescriptor back = modelopt::descriptor_from_yaml(yaml);
  Outputs outputs;
  outputs.set("dict", as_case_value(descriptor.released_dict()));
  outputs.set("yaml", yaml);
  outputs.set("str", to_string(descriptor));
  outputs.set("roundtrip_equal", back == descriptor);
  outputs.set("from_yaml", as_case_value(back.released_dict()));
  return outputs;
}

Outputs run_modelopt(const Case& test) {
  const ScaledQuantDescriptor descriptor =
      descriptor_of(test, "kwargs", ScaledQuantDescriptor::Dialect::ModelOpt);
  const auto blocks = ScaledQuantDescriptor::get_block_quant_axes_and_sizes(
      descriptor.block_sizes ? modelopt::to_value(*descriptor.block_sizes) : ConfigValue());
  Outputs outputs;
  outputs.set("dict", as_case_value(descriptor.released_dict()));
  outputs.set("str", to_string(descriptor));
  outputs.set("block_axes", blocks ? as_case_value(modelopt::to_value(*blocks)) : Value());
  return outputs;
}

Outputs run_equal(const Case& test) {
  const auto dialect = ScaledQuantDescriptor::Dialect::PytorchQuantization;
  Outputs outputs;
  outputs.set("equal", descriptor_of(test, "a", dialect) == descriptor_of(test, "b", dialect));
  return outputs;
}

Outputs run_config(const Case& test) {
  const QuantizerConfig config = QuantizerConfig::from_dict(value_from(test.attr("kwargs")));
  const QuantizerConfig back = modelopt::config_from_yaml(to_yaml(config));
  Outputs outputs;
  outputs.set("dict", as_case_value(config.to_dict()));
  outputs.set("set_fields", as_case_value(config.set_fields()));
  outputs.set("roundtrip_equal",
              QuantizerConfig::from_dict(config.to_dict()) == config && back == config);
  return outputs;
}

const Registration kOps{
    {"pytq.descriptor", expecting_errors(run_pytq)},
    {"modelopt.descriptor", expecting_errors(run_modelopt)},
    {"pytq.descriptor_eq", expecting_errors(run_equal)},
    {"modelopt.config", expecting_errors(run_config)},
};

}  // namespace
}  // namespace quanta::conform
