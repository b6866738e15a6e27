#include "suite.h"

#include <fmt/core.h>

#include <fstream>
#include <limits>
#include <type_traits>
#include <utility>

#include "quanta/runtime/safetensors.h"

namespace quanta::conform {
namespace {

Json read_json(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw FormatError(fmt::format("{}: cannot be opened", path.string()));
  try {
    return Json::parse(file);
  } catch (const Json::exception& error) {
    throw FormatError(fmt::format("{}: {}", path.string(), error.what()));
  }
}

bool is_beyond_int64(const Json& json) {
  constexpr std::uint64_t kMax = std::numeric_limits<std::int64_t>::max();
  return json.is_number_unsigned() && json.get<std::uint64_t>() > kMax;
}

template <typename T>
T get(const Json& json, std::string_view name) {
  const auto found = json.find(std::string(name));
  if (found == json.end()) throw FormatError(fmt::format("'{}' is missing", name));
  if (std::is_same_v<T, std::int64_t> && is_beyond_int64(*found)) {
    throw FormatError(fmt::format("'{}': {} is no int64", name, found->dump()));
  }
  try {
    return found->get<T>();
  } catch (const Json::exception& error) {
    throw FormatError(fmt::format("'{}': {}", name, error.what()));
  }
}

Tolerance read_tolerance(const Json& json) {
  Tolerance tolerance;
  tolerance.max_int_diff = json.value("max_int_diff", tolerance.max_int_diff);
  tolerance.min_exact = json.value("min_exact", tolerance.min_exact);
  tolerance.rtol = json.value("rtol", tolerance.rtol);
  tolerance.atol = json.value("atol", tolerance.atol);
  tolerance.loose_rtol = json.value("loose_rtol", tolerance.loose_rtol);
  tolerance.loose_atol = json.value("loose_atol", tolerance.loose_atol);
  return tolerance;
}

Value plain_value(const Json& json) {
  if (json.is_null()) return {};
  if (json.is_boolean()) return json.get<bool>();
  // The maximum of float8_e7m0 is 2^63.
  const bool is_whole = json.is_number_integer() && !is_beyond_int64(json);
  if (is_whole) return json.get<std::int64_t>();
  if (json.is_number()) return json.get<double>();
  return json.get<std::string>();
}

/// The channel parameters of a quantized reference.
Quantizer channel_quantizer(const Tensor& scales, const Tensor& zero_points, std::int64_t axis,
                            QScheme scheme) {
  const auto read_doubles = [](const Tensor& tensor) {
    const Tensor wide = tensor.to(DType::Float64).contiguous();
    const double* begin = wide.data<double>();
    return std::vector<double>(begin, begin + wide.numel());
  };
  if (scheme == QScheme::PerChannelAffineFloatQParams) {
    return Quantizer::per_channel_float_qparams(scales.to_float_vector(),
                                                zero_points.to_float_vector(), axis);
  }
  return Quantizer::per_channel(read_doubles(scales), zero_points.to_int64_vector(), axis);
}

}  // namespace

Dims dims_from_json(const Json& json) {
  const auto entry = [](const Json& value) {
    if (value.is_null()) return std::int64_t{-1};
    if (!value.is_number_integer()) {
      throw FormatError(fmt::format("expected integers, got {}", value.dump()));
    }
    return value.get<std::int64_t>();
  };
  if (!json.is_array()) return Dims{entry(json)};
  Dims dims;
  for (const Json& value : json) dims.push_back(entry(value));
  return dims;
}

DType dtype_from_json(const std::string& name) {
  const std::optional<DType> dtype = dtype_from_torch_name(name);
  if (!dtype) throw FormatError(fmt::format("dtype: unknown name '{}'", name));
  return *dtype;
}

bool Case::has_attr(std::string_view name) const {
  const auto found = attrs.find(std::string(name));
  return found != attrs.end() && !found->is_null();
}

const Json& Case::attr(std::string_view name) const {
  const auto found = attrs.find(std::string(name));
  if (found == attrs.end()) throw FormatError(fmt::format("attrs: '{}' is missing", name));
  return *found;
}

double Case::number(std::string_view name) const { return get<double>(attrs, name); }

std::int64_t Case::integer(std::string_view name) const { return get<std::int64_t>(attrs, name); }

bool Case::flag(std::string_view name, bool otherwise) const {
  return has_attr(name) ? get<bool>(attrs, name) : otherwise;
}

std::string Case::text(std::string_view name) const { return get<std::string>(attrs, name); }

Dims Case::dims(std::string_view name) const { return dims_from_json(attr(name)); }

Dims Case::dims(std::string_view name, const Dims& otherwise) const {
  return has_attr(name) ? dims(name) : otherwise;
}

DType Case::dtype(std::string_view name) const { return dtype_from_json(text(name)); }

bool Case::has_input(std::string_view name) const {
  const Value* value = inputs.find(name);
  return value != nullptr && !value->is_null();
}

Tensor Case::tensor(std::string_view name) const {
  const Value* value = inputs.find(name);
  const Tensor* tensor = value == nullptr ? nullptr : value->get_if<Tensor>();
  if (tensor == nullptr) throw FormatError(fmt::format("inputs: no tensor '{}'", name));
  return *tensor;
}

Tensor Case::optional_tensor(std::string_view name) const {
  return has_input(name) ? tensor(name) : Tensor();
}

QTensor Case::qtensor(std::string_view name) const {
  return tensor(name).as_quantized("conform", name);
}

std::vector<Tensor> Case::tensors(std::string_view name) const {
  const Value* value = inputs.find(name);
  const List* list = value == nullptr ? nullptr : value->get_if<List>();
  if (list == nullptr) throw FormatError(fmt::format("inputs: no list '{}'", name));
  std::vector<Tensor> result;
  for (const Value& item : *list) {
    const Tensor* tensor = item.get_if<Tensor>();
    if (tensor == nullptr) throw FormatError(fmt::format("inputs: '{}' has no tensors", name));
    result.push_back(*tensor);
  }
  return result;
}

const Object& Case::object(std::string_view name) const {
  const Value* value = inputs.find(name);
  const Object* object = value == nullptr ? nullptr : value->get_if<Object>();
  if (object == nullptr) throw FormatError(fmt::format("inputs: no object '{}'", name));
  return *object;
}

Tensor Case::in_memory_format(const Tensor& tensor) const {
  if (!has_attr("memory_format")) return tensor;
  const std::string format = text("memory_format");
  if (format == "contiguous") return tensor.contiguous();
  if (format == "channels_last" || format == "channels_last_3d") {
    return tensor.contiguous(MemoryFormat::ChannelsLast);
  }
  throw FormatError(fmt::format("attrs: memory_format: unknown value '{}'", format));
}

Tensor Case::x() const { return in_memory_format(tensor("x")); }

QTensor Case::qx() const { return x().as_quantized("conform", "x"); }

Suite Suite::read(const std::filesystem::path& json_path) {
  Json json = read_json(json_path);
  const auto has_array = [](const Json& object, const char* name) {
    return object.contains(name) && object.at(name).is_array();
  };
  if (!json.is_object() || !has_array(json, "cases")) {
    throw FormatError(fmt::format("{}: expected an object with 'cases'", json_path.string()));
  }
  Suite suite;
  suite.name_ = json.value("suite", json_path.stem().string());
  suite.folder_ = json_path.parent_path();
  suite.cases_ = std::move(json.at("cases"));
  for (std::size_t i = 0; i < suite.size(); ++i) {
    const Json& entry = suite.cases_[i];
    const bool usable = entry.is_object() && entry.contains("op") && entry.at("op").is_string() &&
                        entry.contains("id") && entry.at("id").is_string();
    if (!usable) {
      throw FormatError(fmt::format("{}: cases[{}]: expected an object with 'id' and 'op'",
                                    json_path.string(), i));
    }
  }
  std::filesystem::path tensor_path = json_path;
  suite.tensors_ = read_safetensors(tensor_path.replace_extension(".safetensors"));
  return suite;
}

std::string Suite::id(std::size_t index) const { return get<std::string>(cases_[index], "id"); }

std::string Suite::op(std::size_t index) const { return get<std::string>(cases_[index], "op"); }

const Tensor& Suite::stored(const std::string& name) const {
  const Tensor* tensor = tensors_.find(name);
  if (tensor == nullptr) throw FormatError(fmt::format("no tensor '{}' in the file", name));
  return *tensor;
}

Tensor Suite::resolve_tensor(const Json& ref) const {
  const auto name = get<std::string>(ref, "tensor");
  // A copy of its own: ops may write in place, and an access out of bounds is seen by sanitizers.
  const Tensor data = stored(name).clone(MemoryFormat::Contiguous);
  const DType dtype =
      dtype_from_json(ref.contains("logical_dtype") ? get<std::string>(ref, "logical_dtype")
                                                    : get<std::string>(ref, "dtype"));
  const Dims sizes = ref.contains("shape") ? dims_from_json(ref.at("shape")) : data.sizes();

  if (!is_quantized(dtype)) {
    const Tensor typed = data.dtype() == dtype ? data : data.bit_cast(dtype);
    return typed.view(sizes);
  }
  const QScheme scheme = qscheme_from_torch_name(get<std::string>(ref, "qscheme"));
  const Quantizer quantizer =
      is_per_channel(scheme)
          ? channel_quantizer(stored(get<std::string>(ref, "scales")),
                              stored(get<std::string>(ref, "zero_points")),
                              get<std::int64_t>(ref, "axis"), scheme)
          : Quantizer::per_tensor(get<double>(ref, "scale"), get<std::int64_t>(ref, "zero_point"));
  if (is_sub_byte(dtype)) return QTensor::from_packed_bytes(data, sizes, dtype, quantizer);
  if (data.dtype() != int_repr_dtype(dtype)) {
    throw FormatError(fmt::format("tensor '{}': stored as {}, but its dtype is {}", name,
                                  to_string(data.dtype()), to_string(dtype)));
  }
  return QTensor::from_int_repr(data.view(sizes), quantizer);
}

Value Suite::resolve(const Json& ref) const {
  if (ref.is_array()) {
    List list;
    for (const Json& item : ref) list.push_back(resolve(item));
    return list;
  }
  if (!ref.is_object()) return plain_value(ref);
  if (ref.contains("tensor")) return resolve_tensor(ref);
  if (ref.size() == 1 && ref.contains("json")) return resolve(ref.at("json"));
  Object object;
  for (const auto& [key, item] : ref.items()) object.set(key, resolve(item));
  return object;
}

Case Suite::load(std::size_t index) const {
  const Json& entry = cases_[index];
  Case result;
  result.id = id(index);
  result.op = op(index);
  result.folder = folder_;
  result.attrs = entry.value("attrs", Json::object());
  if (entry.contains("compare")) result.tolerance = read_tolerance(entry.at("compare"));
  const auto resolve_object = [&](const char* name) {
    if (!entry.contains(name)) return Object();
    const Value value = resolve(entry.at(name));
    const Object* object = value.get_if<Object>();
    if (object == nullptr) throw FormatError(fmt::format("{}: expected an object", name));
    return *object;
  };
  result.inputs = resolve_object("inputs");
  result.expected = resolve_object("outputs");
  return result;
}

}  // namespace quanta::conform
