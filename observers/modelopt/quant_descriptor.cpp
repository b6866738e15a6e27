#include "quanta/observers/modelopt/quant_descriptor.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "quanta/observers/modelopt/detail/config_fields.h"
#include "quanta/runtime/check.h"

namespace quanta::modelopt {
namespace {

using Dialect = ScaledQuantDescriptor::Dialect;
constexpr std::string_view kOwner = "ScaledQuantDescriptor";

detail::FieldName field(std::string_view name) { return {kOwner, name}; }

// The numbers of nested lists in order; `sizes` is what the first ones have, level by level.
void read_numbers(const ConfigValue& value, std::size_t level, Dims& sizes,
                  std::vector<float>& numbers) {
  const auto* sequence = value.get_if<ConfigValue::Sequence>();
  if (sequence == nullptr) {
    if (level != sizes.size()) detail::throw_field(field("amax"), "lists of one depth", value);
    numbers.push_back(static_cast<float>(detail::read_number(field("amax"), value)));
    return;
  }
  if (sequence->is_tuple) detail::throw_field(field("amax"), "lists, not tuples", value);
  const auto length = static_cast<std::int64_t>(sequence->items.size());
  if (numbers.empty() && level == sizes.size()) {
    if (level == Dims::kMaxDims) detail::throw_field(field("amax"), "at most 10 levels", value);
    sizes.push_back(length);
  }
  if (length == 0) detail::throw_field(field("amax"), "lists with numbers", value);
  if (level >= sizes.size() || sizes[level] != length) {
    detail::throw_field(field("amax"), "lists of one length and depth", value);
  }
  for (const ConfigValue& item : sequence->items) read_numbers(item, level + 1, sizes, numbers);
}

Tensor read_amax(const ConfigValue& value) {
  if (value.is_null()) return {};
  if (const auto* real = value.get_if<double>()) return Tensor::scalar(*real);
  const auto* sequence = value.get_if<ConfigValue::Sequence>();
  if (sequence == nullptr || sequence->is_tuple) {
    detail::throw_field(field("amax"), "a float or a list", value);
  }
  Dims sizes;
  std::vector<float> numbers;
  read_numbers(value, 0, sizes, numbers);
  return Tensor::from_values(numbers, sizes);
}

// The numbers from `next` on, in lists for the axes from `axis` on.
ConfigValue nested_lists(const std::vector<float>& numbers, std::size_t& next, const Dims& sizes,
                         std::size_t axis) {
  if (axis == sizes.size()) return static_cast<double>(numbers[next++]);
  std::vector<ConfigValue> items;
  for (std::int64_t i = 0; i < sizes[axis]; ++i) {
    items.push_back(nested_lists(numbers, next, sizes, axis + 1));
  }
  return ConfigValue::list(std::move(items));
}

ConfigValue amax_value(const Tensor& amax) {
  std::size_t next = 0;
  return nested_lists(amax.detach().cpu().to_float_vector(), next, amax.sizes(), 0);
}

void set_field(ScaledQuantDescriptor& descriptor, const std::string& name,
               const ConfigValue& value) {
  const bool modelopt = descriptor.dialect == Dialect::ModelOpt;
  if (name == "num_bits") {
    descriptor.num_bits = detail::read_num_bits(field("num_bits"), value);
  } else if (name == "name") {
    if (!value.is_null()) descriptor.name = detail::read_text(field("name"), value);
  } else if (name == "fake_quant") {
    descriptor.fake_quant = detail::read_bool(field("fake_quant"), value);
  } else if (name == "axis") {
    descriptor.axis = detail::read_axis(field("axis"), value);
  } else if (name == "amax") {
    descriptor.amax = read_amax(value);
  } else if (name == "learn_amax") {
    descriptor.learn_amax = detail::read_bool(field("learn_amax"), value);
  } else if (name == "scale_amax") {
    if (!value.is_null()) {
      descriptor.scale_amax = detail::read_number(field("scale_amax"), value);
    }
  } else if (name == "calib_method") {
    descriptor.calib_method = detail::read_text(field("calib_method"), value);
  } else if (name == "unsigned") {
    descriptor.is_unsigned = detail::read_bool(field("unsigned"), value);
  } else if (name == "narrow_range") {
    descriptor.narrow_range = detail::read_bool(field("narrow_range"), value);
  } else if (modelopt && name == "block_sizes") {
    if (!value.is_null()) descriptor.block_sizes = block_config_from(kOwner, value);
  } else if (modelopt && name == "dynamic") {
    descriptor.dynamic = detail::read_bool(field("dynamic"), value);
  } else {
    detail::throw_field(field(name), "no such field", value);
  }
}

void add_changed(ConfigValue::Dict& dict, const ScaledQuantDescriptor& descriptor) {
  if (!descriptor.fake_quant) dict.set("fake_quant", false);
  if (descriptor.axis) dict.set("axis", to_value(*descriptor.axis));
  if (descriptor.amax.defined()) dict.set("amax", amax_value(descriptor.amax));
  if (descriptor.scale_amax) dict.set("scale_amax", *descriptor.scale_amax);
  if (descriptor.learn_amax) dict.set("learn_amax", true);
  if (descriptor.is_unsigned) dict.set("unsigned", true);
}

ConfigValue::Dict shared_fields(const ScaledQuantDescriptor& descriptor) {
  ConfigValue::Dict dict;
  dict.set("num_bits", to_value(descriptor.num_bits));
  dict.set("name", descriptor.name ? ConfigValue(*descriptor.name) : ConfigValue());
  add_changed(dict, descriptor);
  return dict;
}

ScaledQuantDescriptor per_row(Dims axes) {
  ScaledQuantDescriptor descriptor;
  descriptor.axis = Axis{axes};
  return descriptor;
}

}  // namespace

ScaledQuantDescriptor ScaledQuantDescriptor::from_dict(const ConfigValue& fields, Dialect dialect) {
  ScaledQuantDescriptor descriptor;
  descriptor.dialect = dialect;
  const auto* dict = fields.get_if<ConfigValue::Dict>();
  QUANTA_CHECK(dict != nullptr, "{}: fields: expected a dictionary, got {}", kOwner,
               modelopt::to_string(fields));
  std::vector<std::string> seen;
  for (const auto& [key, value] : dict->items) {
    const auto* name = key.get_if<std::string>();
    if (name == nullptr) detail::throw_field(field("fields"), "names as keys", key);
    QUANTA_CHECK(std::find(seen.begin(), seen.end(), *name) == seen.end(),
                 "{}: {}: expected it once, got it again", kOwner, *name);
    seen.push_back(*name);
    set_field(descriptor, *name, value);
  }
  descriptor.check();
  return descriptor;
}

void ScaledQuantDescriptor::check() const {
  if (num_bits.is_float) {
    const bool modelopt = dialect == Dialect::ModelOpt;
    QUANTA_CHECK(
        num_bits == NumBits::floating(4, 3) || (modelopt && num_bits == NumBits::floating(2, 1)),
        "{}: num_bits: expected an integer{}, got {}", kOwner,
        modelopt ? ", (4, 3) or (2, 1)" : " or (4, 3)", quanta::to_string(num_bits));
  }
  QUANTA_CHECK(num_bits.bits >= 0, "{}: num_bits: expected 0 or more, got {}", kOwner,
               num_bits.bits);
  QUANTA_CHECK(!learn_amax || !axis, "{}: axis: expected none with learn_amax=True, got {}", kOwner,
               axis ? modelopt::to_string(to_value(*axis)) : "");
  QUANTA_CHECK(!amax.defined() || (amax.dtype() == DType::Float32 && amax.numel() > 0),
               "{}: amax: expected Float32 with at least one element, got {} {}", kOwner,
               amax.defined() ? amax.dtype() : DType::Float32,
               amax.defined() ? amax.sizes() : Dims{});
  if (!block_sizes) return;
  QUANTA_CHECK(!axis, "{}: axis: expected none with block_sizes, got {}", kOwner,
               axis ? modelopt::to_string(to_value(*axis)) : "");
  for (const auto& [along, size] : block_sizes->sizes) {
    QUANTA_CHECK(size.value_or(0) >= 1, "{}: block_sizes: expected a size > 0 for axis {}, got {}",
                 kOwner, along, size ? fmt::format("{}", *size) : "None");
  }
}

ConfigValue ScaledQuantDescriptor::released_dict() const { return shared_fields(*this); }

ConfigValue ScaledQuantDescriptor::dict() const {
  ConfigValue::Dict dict = shared_fields(*this);
  if (calib_method != "max") dict.set("calib_method", calib_method);
  if (narrow_range) dict.set("narrow_range", true);
  if (block_sizes) dict.set("block_sizes", to_value(*block_sizes));
  if (dynamic) dict.set("dynamic", true);
  return dict;
}

std::optional<BlockSizes> ScaledQuantDescriptor::get_block_quant_axes_and_sizes(
    const ConfigValue& block_sizes) {
  if (block_sizes.is_null()) return std::nullopt;
  return block_config_from(kOwner, block_sizes).sizes;
}

bool ScaledQuantDescriptor::operator==(const ScaledQuantDescriptor& other) const {
  const bool same_amax =
      amax.defined() == other.amax.defined() && (!amax.defined() || amax.equal(other.amax));
  return same_amax && num_bits == other.num_bits && name == other.name &&
         fake_quant == other.fake_quant && axis == other.axis && learn_amax == other.learn_amax &&
         scale_amax == other.scale_amax && calib_method == other.calib_method &&
         is_unsigned == other.is_unsigned && narrow_range == other.narrow_range &&
         block_sizes == other.block_sizes && dynamic == other.dynamic;
}

std::string to_string(const ScaledQuantDescriptor& descriptor) {
  std::string text = descriptor.name ? *descriptor.name + ": (" : "QuantDescriptor(";
  text +=
      fmt::format("{}{}bit {}", descriptor.is_unsigned ? "unsigned " : "",
                  quanta::to_string(descriptor.num_bits), descriptor.fake_quant ? "fake" : "real");
  if (descriptor.block_sizes) {
    text += " block_sizes=" + to_string(to_value(*descriptor.block_sizes));
  } else {
    text += " axis=" + (descriptor.axis ? to_string(to_value(*descriptor.axis)) : " per-tensor");
  }
  if (descriptor.amax.defined()) {
    text += " amax=" + to_string(amax_value(descriptor.amax)) + " full_range";
  }
  if (descriptor.learn_amax) text += " learn_amax";
  if (descriptor.scale_amax && *descriptor.scale_amax != 0.0) {
    text += " scale_amax=" + float_text(*descriptor.scale_amax);
  }
  return text + ")";
}

ScaledQuantDescriptor quant_desc_8bit_per_tensor() { return {}; }

ScaledQuantDescriptor quant_desc_unsigned_8bit_per_tensor() {
  ScaledQuantDescriptor descriptor;
  descriptor.is_unsigned = true;
  return descriptor;
}

ScaledQuantDescriptor quant_desc_8bit_conv1d_weight_per_channel() { return per_row({0}); }
ScaledQuantDescriptor quant_desc_8bit_conv2d_weight_per_channel() { return per_row({0}); }
ScaledQuantDescriptor quant_desc_8bit_conv3d_weight_per_channel() { return per_row({0}); }
ScaledQuantDescriptor quant_desc_8bit_conv_transpose_weight_per_channel() { return per_row({0}); }
ScaledQuantDescriptor quant_desc_8bit_linear_weight_per_row() { return per_row({0}); }

}  // namespace quanta::modelopt
