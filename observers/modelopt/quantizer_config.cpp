#include "quanta/observers/modelopt/quantizer_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "quanta/observers/modelopt/detail/config_fields.h"
#include "quanta/runtime/check.h"

namespace quanta::modelopt {
namespace {

constexpr std::string_view kOwner = "QuantizerConfig";

detail::FieldName field(std::string_view name) { return {kOwner, name}; }

QuantType read_type(std::string_view name, const ConfigValue& value) {
  const std::string text = detail::read_text(field(name), value);
  if (text == "dynamic") return QuantType::Dynamic;
  if (text != "static") detail::throw_field(field(name), "static or dynamic", value);
  return QuantType::Static;
}

ConfigValue type_value(QuantType type) { return type == QuantType::Dynamic ? "dynamic" : "static"; }

std::optional<double> read_optional_number(std::string_view name, const ConfigValue& value) {
  if (value.is_null()) return std::nullopt;
  return detail::read_number(field(name), value);
}

QuantizerConfig::Bias read_bias(const ConfigValue& value) {
  QuantizerConfig::Bias bias;
  for (const auto& [key, entry] : detail::read_dict(field("bias"), value).items) {
    if (const auto* axis = key.get_if<std::int64_t>()) {
      const bool none = entry.is_null();
      bias.axes.emplace_back(
          *axis, none ? std::nullopt : std::optional(detail::read_int(field("bias"), entry)));
    } else if (key == ConfigValue("type")) {
      bias.type = read_type("bias: type", entry);
    } else if (key == ConfigValue("method")) {
      bias.method =
          BiasCalibrator::method_from_name(detail::read_text(field("bias: method"), entry));
    } else {
      detail::throw_field(field("bias"), "integers, type or method as keys", key);
    }
  }
  return bias;
}

ConfigValue bias_value(const QuantizerConfig::Bias& bias) {
  ConfigValue::Dict dict = *to_value(bias.axes).get_if<ConfigValue::Dict>();
  if (bias.type) dict.set("type", type_value(*bias.type));
  if (bias.method) {
    dict.set("method", *bias.method == BiasCalibrator::Method::Mean ? "mean" : "max_min");
  }
  return dict;
}

std::variant<bool, QuantizerConfig::Rotate> read_rotate(const ConfigValue& value) {
  if (const auto* flag = value.get_if<bool>()) return *flag;
  QuantizerConfig::Rotate rotate;
  for (const auto& [key, entry] : detail::read_dict(field("rotate"), value).items) {
    if (key == ConfigValue("enable")) {
      rotate.enable = detail::read_bool(field("rotate: enable"), entry);
    } else if (key == ConfigValue("mode")) {
      const std::string mode = detail::read_text(field("rotate: mode"), entry);
      if (mode != "rotate" && mode != "rotate_back") {
        detail::throw_field(field("rotate: mode"), "rotate or rotate_back", entry);
      }
      rotate.mode = mode == "rotate" ? QuantizerConfig::RotateMode::Rotate
                                     : QuantizerConfig::RotateMode::RotateBack;
    } else if (key == ConfigValue("rotate_fp32")) {
      rotate.rotate_fp32 = detail::read_bool(field("rotate: rotate_fp32"), entry);
    } else if (key == ConfigValue("block_size")) {
      if (!entry.is_null()) {
        rotate.block_size = detail::read_int(field("rotate: block_size"), entry);
      }
    } else {
      detail::throw_field(field("rotate"), "enable, mode, rotate_fp32 or block_size as keys", key);
    }
  }
  return rotate;
}

ConfigValue rotate_value(const std::variant<bool, QuantizerConfig::Rotate>& rotate) {
  if (const bool* flag = std::get_if<bool>(&rotate)) return *flag;
  const auto& fields = *std::get_if<QuantizerConfig::Rotate>(&rotate);
  const bool back = fields.mode == QuantizerConfig::RotateMode::RotateBack;
  return ConfigValue::dict(
      {{"enable", fields.enable},
       {"mode", back ? "rotate_back" : "rotate"},
       {"rotate_fp32", fields.rotate_fp32},
       {"block_size", fields.block_size ? ConfigValue(*fields.block_size) : ConfigValue()}});
}

void read_bits(QuantizerConfig& config, const ConfigValue& value) {
  if (const auto* text = value.get_if<std::string>()) {
    config.num_bits_name = *text;
  } else {
    config.num_bits = detail::read_num_bits(field("num_bits"), value);
  }
}

using Reader = void (*)(QuantizerConfig&, const ConfigValue&);
struct FieldReader {
  std::string_view name;
  Reader read;
};

// The fields in the order of a dump.
constexpr std::array<FieldReader, 19> kFields = {{
    {"enable", [](QuantizerConfig& c,
                  const ConfigValue& v) { c.enable = detail::read_bool(field("enable"), v); }},
    {"num_bits", read_bits},
    {"effective_bits",
     [](QuantizerConfig& c, const ConfigValue& v) {
       c.effective_bits = read_optional_number("effective_bits", v);
     }},
    {"axis", [](QuantizerConfig& c,
                const ConfigValue& v) { c.axis = detail::read_axis(field("axis"), v); }},
    {"fake_quant",
     [](QuantizerConfig& c, const ConfigValue& v) {
       c.fake_quant = detail::read_bool(field("fake_quant"), v);
     }},
    {"unsigned",
     [](QuantizerConfig& c, const ConfigValue& v) {
       c.is_unsigned = detail::read_bool(field("unsigned"), v);
     }},
    {"narrow_range",
     [](QuantizerConfig& c, const ConfigValue& v) {
       c.narrow_range = detail::read_bool(field("narrow_range"), v);
     }},
    {"learn_amax",
     [](QuantizerConfig& c, const ConfigValue& v) {
       c.learn_amax = detail::read_bool(field("learn_amax"), v);
     }},
    {"type", [](QuantizerConfig& c, const ConfigValue& v) { c.type = read_type("type", v); }},
    {"block_sizes",
     [](QuantizerConfig& c, const ConfigValue& v) {
       if (!v.is_null()) c.block_sizes = block_config_from(kOwner, v);
     }},
    {"bias",
     [](QuantizerConfig& c, const ConfigValue& v) {
       if (!v.is_null()) c.bias = read_bias(v);
     }},
    {"trt_high_precision_dtype",
     [](QuantizerConfig& c, const ConfigValue& v) {
       c.trt_high_precision_dtype = detail::read_text(field("trt_high_precision_dtype"), v);
     }},
    {"calibrator", [](QuantizerConfig& c, const ConfigValue& v) { c.calibrator = v; }},
    {"rotate", [](QuantizerConfig& c, const ConfigValue& v) { c.rotate = read_rotate(v); }},
    {"pass_through_bwd",
     [](QuantizerConfig& c, const ConfigValue& v) {
       c.pass_through_bwd = detail::read_bool(field("pass_through_bwd"), v);
     }},
    {"backend",
     [](QuantizerConfig& c, const ConfigValue& v) {
       if (!v.is_null()) c.backend = detail::read_text(field("backend"), v);
     }},
    {"backend_extra_args",
     [](QuantizerConfig& c, const ConfigValue& v) { c.backend_extra_args = v; }},
    {"use_constant_amax",
     [](QuantizerConfig& c, const ConfigValue& v) {
       c.use_constant_amax = detail::read_bool(field("use_constant_amax"), v);
     }},
    {"constant_amax",
     [](QuantizerConfig& c, const ConfigValue& v) {
       c.constant_amax = read_optional_number("constant_amax", v);
     }},
}};

template <typename T>
ConfigValue or_null(const std::optional<T>& value) {
  return value ? ConfigValue(*value) : ConfigValue();
}

// Formats whose numbers only come with dynamic blocks, and those that need none.
constexpr NumBits kAlone[] = {NumBits::floating(4, 3), NumBits::floating(2, 1)};
constexpr NumBits kInBlocks[] = {NumBits::floating(5, 2), NumBits::floating(1, 2),
                                 NumBits::floating(3, 2), NumBits::floating(2, 3)};

template <std::size_t kCount>
bool contains(const NumBits (&formats)[kCount], const NumBits& bits) {
  return std::find(std::begin(formats), std::end(formats), bits) != std::end(formats);
}

void check_bits(const QuantizerConfig& config) {
  if (config.backend) return;
  QUANTA_CHECK(!config.num_bits_name, "{}: num_bits: expected a number without a backend, got '{}'",
               kOwner, *config.num_bits_name);
  const NumBits& bits = config.num_bits;
  if (!bits.is_float) {
    QUANTA_CHECK(bits.bits >= 1, "{}: num_bits: expected at least 1, got {}", kOwner, bits.bits);
    return;
  }
  QUANTA_CHECK(contains(kAlone, bits) || contains(kInBlocks, bits),
               "{}: num_bits: expected (4, 3), (5, 2), (2, 1), (1, 2), (3, 2) or (2, 3), got {}",
               kOwner, quanta::to_string(bits));
  QUANTA_CHECK(contains(kAlone, bits) || (config.block_sizes && config.block_sizes->is_dynamic()),
               "{}: block_sizes: expected type dynamic with num_bits {}, got none", kOwner,
               quanta::to_string(bits));
}

void check_blocks(const QuantizerConfig& config) {
  if (!config.block_sizes) return;
  QUANTA_CHECK(!config.axis, "{}: axis: expected none with block_sizes, got {}", kOwner,
               config.axis ? to_string(to_value(*config.axis)) : "");
  QUANTA_CHECK(!config.block_sizes->is_dynamic() || config.block_sizes->sizes.size() == 1,
               "{}: block_sizes: expected one axis with type dynamic, got {}", kOwner,
               to_string(to_value(*config.block_sizes)));
}

void check_calibrator(const ConfigValue& calibrator) {
  if (const auto* name = calibrator.get_if<std::string>()) {
    if (*name == "max" || *name == "histogram") return;
  } else if (calibrator.get_if<ConfigValue::Sequence>() != nullptr ||
             calibrator.get_if<ConfigValue::Dict>() != nullptr) {
    return;
  }
  detail::throw_field(field("calibrator"), "max, histogram or a description", calibrator);
}

bool is_positive(double value) { return value > 0.0 && std::isfinite(value); }

}  // namespace

QuantizerConfig QuantizerConfig::from_dict(const ConfigValue& fields) {
  QuantizerConfig config;
  const detail::FieldName called = field("fields");
  const ConfigValue::Dict& dict = detail::read_dict(called, fields);
  for (const auto& [key, value] : dict.items) {
    const auto* name = key.get_if<std::string>();
    const auto known = std::find_if(kFields.begin(), kFields.end(), [&](const FieldReader& each) {
      return name != nullptr && each.name == *name;
    });
    if (known == kFields.end()) detail::throw_field(called, "names of fields", key);
    QUANTA_CHECK(config.given_.find(*name) == nullptr, "{}: {}: expected it once, got it again",
                 kOwner, *name);
    known->read(config, value);
    config.given_.set(*name, value);
  }
  const bool only_enable = dict.items.size() == 1 && config.given_.find("enable") != nullptr;
  QUANTA_CHECK(!only_enable || !config.enable,
               "{}: enable: expected another field with enable=True, got it alone", kOwner);
  config.check();
  return config;
}

void QuantizerConfig::check() const {
  check_bits(*this);
  check_blocks(*this);
  check_calibrator(calibrator);
  QUANTA_CHECK(!effective_bits || (*effective_bits > 0.0 && *effective_bits <= 16.0),
               "{}: effective_bits: expected a number above 0 and at most 16, got {}", kOwner,
               effective_bits.value_or(0.0));
  QUANTA_CHECK(!learn_amax, "{}: learn_amax: expected False (no longer supported), got True",
               kOwner);
  QUANTA_CHECK(!bias || !bias->axes.empty(),
               "{}: bias: expected at least one axis as key, got none", kOwner);
  const std::string& dtype = trt_high_precision_dtype;
  QUANTA_CHECK(dtype == "Float" || dtype == "Half" || dtype == "BFloat16",
               "{}: trt_high_precision_dtype: expected Float, Half or BFloat16, got {}", kOwner,
               dtype);
  QUANTA_CHECK(rotation().block_size.value_or(1) >= 1,
               "{}: rotate: block_size: expected at least 1, got {}", kOwner,
               rotation().block_size.value_or(1));
  QUANTA_CHECK(!constant_amax || is_positive(*constant_amax),
               "{}: constant_amax: expected a finite number above 0, got {}", kOwner,
               constant_amax.value_or(0.0));
  QUANTA_CHECK(!use_constant_amax || !constant_amax,
               "{}: constant_amax: expected none with use_constant_amax=True, got {}", kOwner,
               constant_amax.value_or(0.0));
}

ConfigValue QuantizerConfig::to_dict() const {
  ConfigValue::Dict dict;
  dict.set("enable", enable);
  dict.set("num_bits", num_bits_name ? ConfigValue(*num_bits_name) : to_value(num_bits));
  dict.set("effective_bits", or_null(effective_bits));
  dict.set("axis", axis ? to_value(*axis) : ConfigValue());
  dict.set("fake_quant", fake_quant);
  dict.set("unsigned", is_unsigned);
  dict.set("narrow_range", narrow_range);
  dict.set("learn_amax", learn_amax);
  dict.set("type", type_value(type));
  dict.set("block_sizes", block_sizes ? to_value(*block_sizes) : ConfigValue());
  dict.set("bias", bias ? bias_value(*bias) : ConfigValue());
  dict.set("trt_high_precision_dtype", trt_high_precision_dtype);
  dict.set("calibrator", calibrator);
  dict.set("rotate", rotate_value(rotate));
  dict.set("pass_through_bwd", pass_through_bwd);
  dict.set("backend", or_null(backend));
  dict.set("backend_extra_args", backend_extra_args);
  dict.set("use_constant_amax", use_constant_amax);
  dict.set("constant_amax", or_null(constant_amax));
  return dict;
}

ConfigValue QuantizerConfig::set_fields() const {
  ConfigValue::Dict dict;
  for (const FieldReader& each : kFields) {
    if (const ConfigValue* value = given_.find(each.name)) {
      dict.set(std::string(each.name), *value);
    }
  }
  return dict;
}

QuantizerConfig::Rotate QuantizerConfig::rotation() const {
  if (const bool* flag = std::get_if<bool>(&rotate)) {
    Rotate plain;
    plain.enable = *flag;
    return plain;
  }
  return *std::get_if<Rotate>(&rotate);
}

bool QuantizerConfig::operator==(const QuantizerConfig& other) const {
  return to_dict() == other.to_dict();
}

}  // namespace quanta::modelopt
