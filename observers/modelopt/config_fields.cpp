#include "quanta/observers/modelopt/detail/config_fields.h"

#include <utility>
#include <vector>

#include "quanta/runtime/check.h"

namespace quanta::modelopt {

using detail::FieldName;

ConfigValue to_value(const NumBits& bits) {
  if (!bits.is_float) return bits.bits;
  return ConfigValue::tuple({bits.exponent, bits.mantissa});
}

ConfigValue to_value(const Axis& axis) {
  if (axis.single) return axis.axes[0];
  return ConfigValue::tuple(std::vector<ConfigValue>(axis.axes.begin(), axis.axes.end()));
}

ConfigValue to_value(const BlockSizes& sizes) {
  ConfigValue::Dict dict;
  for (const auto& [axis, size] : sizes) {
    dict.items.emplace_back(axis, size ? ConfigValue(*size) : ConfigValue());
  }
  return dict;
}

ConfigValue to_value(const BlockConfig& blocks) {
  ConfigValue::Dict dict = *to_value(blocks.sizes).get_if<ConfigValue::Dict>();
  if (blocks.type) dict.set("type", blocks.is_dynamic() ? "dynamic" : "static");
  if (blocks.scale_bits) dict.set("scale_bits", to_value(*blocks.scale_bits));
  if (blocks.scale_block_sizes) dict.set("scale_block_sizes", to_value(*blocks.scale_block_sizes));
  if (blocks.four_over_six) dict.set("four_over_six", *blocks.four_over_six);
  return dict;
}

namespace {

void add_block(const FieldName& name, BlockSizes& sizes, std::int64_t axis,
               const ConfigValue& value) {
  for (const auto& entry : sizes) {
    if (entry.first == axis) detail::throw_field(name, "every axis once", axis);
  }
  std::optional<std::int64_t> size;
  if (!value.is_null()) {
    size = detail::read_int(name, value);
    if (*size < 1) detail::throw_field(name, "sizes of at least 1", value);
  }
  if (sizes.size() == Dims::kMaxDims) detail::throw_field(name, "at most 10 axes", axis);
  sizes.emplace_back(axis, size);
}

BlockSizes plain_block_sizes(const FieldName& name, const ConfigValue& value) {
  BlockSizes sizes;
  for (const auto& [key, size] : detail::read_dict(name, value).items) {
    add_block(name, sizes, detail::read_int(name, key), size);
  }
  return sizes;
}

QuantType read_type(const FieldName& name, const ConfigValue& value) {
  const std::string text = detail::read_text(name, value);
  if (text == "dynamic") return QuantType::Dynamic;
  if (text != "static") detail::throw_field(name, "static or dynamic", value);
  return QuantType::Static;
}

}  // namespace

BlockConfig block_config_from(std::string_view owner, const ConfigValue& value) {
  const FieldName name{owner, "block_sizes"};
  BlockConfig blocks;
  for (const auto& [key, entry] : detail::read_dict(name, value).items) {
    if (const auto* axis = key.get_if<std::int64_t>()) {
      add_block(name, blocks.sizes, *axis, entry);
      continue;
    }
    const auto* text = key.get_if<std::string>();
    if (text == nullptr) detail::throw_field(name, "integers or names as keys", key);
    if (*text == "type") {
      blocks.type = read_type({owner, "block_sizes: type"}, entry);
    } else if (*text == "scale_bits") {
      blocks.scale_bits = detail::read_num_bits({owner, "block_sizes: scale_bits"}, entry);
    } else if (*text == "scale_block_sizes") {
      blocks.scale_block_sizes =
          plain_block_sizes({owner, "block_sizes: scale_block_sizes"}, entry);
    } else if (*text == "four_over_six") {
      blocks.four_over_six = detail::read_bool({owner, "block_sizes: four_over_six"}, entry);
    } else {
      detail::throw_field(
          name, "integers, type, scale_bits, scale_block_sizes or four_over_six as keys", key);
    }
  }
  return blocks;
}

namespace detail {

void throw_field(const FieldName& name, std::string_view expected, const ConfigValue& got) {
  throw ArgumentError(with_module_path(fmt::format("{}: {}: expected {}, got {}", name.owner,
                                                   name.field, expected, to_string(got))));
}

bool read_bool(const FieldName& name, const ConfigValue& value) {
  if (const auto* flag = value.get_if<bool>()) return *flag;
  throw_field(name, "True or False", value);
}

std::int64_t read_int(const FieldName& name, const ConfigValue& value) {
  if (const auto* whole = value.get_if<std::int64_t>()) return *whole;
  throw_field(name, "an integer", value);
}

double read_number(const FieldName& name, const ConfigValue& value) {
  if (const auto* real = value.get_if<double>()) return *real;
  if (const auto* whole = value.get_if<std::int64_t>()) return static_cast<double>(*whole);
  throw_field(name, "a number", value);
}

std::string read_text(const FieldName& name, const ConfigValue& value) {
  if (const auto* text = value.get_if<std::string>()) return *text;
  throw_field(name, "text", value);
}

const ConfigValue::Dict& read_dict(const FieldName& name, const ConfigValue& value) {
  if (const auto* dict = value.get_if<ConfigValue::Dict>()) return *dict;
  throw_field(name, "a dictionary", value);
}

std::optional<Axis> read_axis(const FieldName& name, const ConfigValue& value) {
  if (value.is_null()) return std::nullopt;
  if (const auto* whole = value.get_if<std::int64_t>()) return Axis{{*whole}, true};
  const auto* sequence = value.get_if<ConfigValue::Sequence>();
  if (sequence == nullptr) throw_field(name, "None, an integer or a tuple of integers", value);
  if (sequence->items.size() > Dims::kMaxDims) throw_field(name, "at most 10 axes", value);
  Axis axis;
  for (const ConfigValue& item : sequence->items) axis.axes.push_back(read_int(name, item));
  return axis;
}

NumBits read_num_bits(const FieldName& name, const ConfigValue& value) {
  if (const auto* whole = value.get_if<std::int64_t>()) return NumBits::integer(*whole);
  const auto* sequence = value.get_if<ConfigValue::Sequence>();
  if (sequence == nullptr || sequence->items.size() != 2) {
    throw_field(name, "an integer or a pair of integers", value);
  }
  return NumBits::floating(read_int(name, sequence->items[0]), read_int(name, sequence->items[1]));
}

}  // namespace detail
}  // namespace quanta::modelopt
