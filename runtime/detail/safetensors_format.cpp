#include "quanta/runtime/detail/safetensors_format.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/file_sizes.h"

namespace quanta::detail {
namespace {

constexpr std::array kNames{
    std::pair{DType::Float64, std::string_view("F64")},
    std::pair{DType::Float32, std::string_view("F32")},
    std::pair{DType::Float16, std::string_view("F16")},
    std::pair{DType::BFloat16, std::string_view("BF16")},
    std::pair{DType::Int64, std::string_view("I64")},
    std::pair{DType::Int32, std::string_view("I32")},
    std::pair{DType::Int16, std::string_view("I16")},
    std::pair{DType::UInt16, std::string_view("U16")},
    std::pair{DType::Int8, std::string_view("I8")},
    std::pair{DType::UInt8, std::string_view("U8")},
    std::pair{DType::Bool, std::string_view("BOOL")},
    std::pair{DType::Float8E4M3FN, std::string_view("F8_E4M3")},
    std::pair{DType::Float8E5M2, std::string_view("F8_E5M2")},
};

/// Reads members of a description, naming the one that is wrong.
class Description {
 public:
  Description(const Json& json, std::string_view where) : json_(json), where_(where) {
    if (json.as_object() == nullptr) {
      throw FileError(fmt::format("{}: expected an object, got {}", where, json.kind()));
    }
  }

  [[noreturn]] void fail(std::string_view key, std::string_view expected) const {
    const Json* value = json_.find(key);
    throw FileError(fmt::format("{}: {}: expected {}, got {}", where_, key, expected,
                                value == nullptr ? "nothing" : value->kind()));
  }

  std::string_view text(std::string_view key) const {
    const Json* value = json_.find(key);
    if (value == nullptr || value->as_string() == nullptr) fail(key, "a string");
    return *value->as_string();
  }

  std::int64_t integer(std::string_view key) const {
    const Json* value = json_.find(key);
    if (value == nullptr || value->as_int() == nullptr) fail(key, "an integer");
    return *value->as_int();
  }

  double number(std::string_view key) const {
    const Json* value = json_.find(key);
    if (value == nullptr || !value->is_number()) fail(key, "a number");
    return value->as_number();
  }

  std::vector<std::int64_t> integers(std::string_view key) const {
    std::vector<std::int64_t> result;
    for (const Json& item : array(key)) {
      if (item.as_int() == nullptr) fail(key, "an array of integers");
      result.push_back(*item.as_int());
    }
    return result;
  }

  template <typename T>
  std::vector<T> numbers(std::string_view key) const {
    std::vector<T> result;
    for (const Json& item : array(key)) {
      if (!item.is_number()) fail(key, "an array of numbers");
      result.push_back(static_cast<T>(item.as_number()));
    }
    return result;
  }

 private:
  const Json::Array& array(std::string_view key) const {
    const Json* value = json_.find(key);
    if (value == nullptr || value->as_array() == nullptr) fail(key, "an array");
    return *value->as_array();
  }

  const Json& json_;
  std::string_view where_;
};

template <typename T>
Json::Array to_array(const std::vector<T>& values) {
  Json::Array result;
  result.reserve(values.size());
  for (const T value : values) {
    if constexpr (std::is_floating_point_v<T>) {
      result.emplace_back(static_cast<double>(value));
    } else {
      result.emplace_back(value);
    }
  }
  return result;
}

Quantizer read_quantizer(const Description& description, std::string_view where) {
  switch (qscheme_from_torch_name(description.text("qscheme"))) {
    case QScheme::PerTensorAffine:
      return Quantizer::per_tensor(description.number("scale"), description.integer("zero_point"));
    case QScheme::PerChannelAffine:
      return Quantizer::per_channel(description.numbers<double>("scales"),
                                    description.integers("zero_points"),
                                    description.integer("axis"));
    case QScheme::PerChannelAffineFloatQParams:
      return Quantizer::per_channel_float_qparams(description.numbers<float>("scales"),
                                                  description.numbers<float>("zero_points"),
                                                  description.integer("axis"));
    case QScheme::PerTensorSymmetric:
    case QScheme::PerChannelSymmetric:
      break;
  }
  throw FileError(fmt::format("{}: qscheme: expected an affine one, got '{}'", where,
                              description.text("qscheme")));
}

bool is_usual_weight(const QTensor& tensor) {
  const Quantizer& quantizer = tensor.quantizer();
  return tensor.dtype() == DType::QInt8 && quantizer.scheme == QScheme::PerChannelAffine &&
         quantizer.axis == 0 &&
         std::all_of(quantizer.channel->zero_points.begin(), quantizer.channel->zero_points.end(),
                     [](std::int64_t zero_point) { return zero_point == 0; });
}

QTensor restore_usual_weight(const Tensor& codes, std::int64_t first, PooledScales& pooled,
                             std::string_view where) {
  const Tensor& scales = pooled.scales;
  if (!scales.defined() || scales.dim() != 1 || !scales.is_floating_point()) {
    throw FileError(
        fmt::format("{}: expected scales in a 1-d tensor '{}', got none", where, kScalesName));
  }
  if (codes.dtype() != DType::Int8 || codes.dim() == 0) {
    throw FileError(
        fmt::format("{}: expected codes of Int8, got {} {}", where, codes.dtype(), codes.sizes()));
  }
  const std::int64_t channels = codes.size(0);
  if (first < 0 || first > scales.numel() || channels > scales.numel() - first) {
    throw FileError(fmt::format("{}: expected {} scales within the {} of '{}', got a start at {}",
                                where, channels, scales.numel(), kScalesName, first));
  }
  if (channels > pooled.left) {
    throw FileError(
        fmt::format("{}: expected weights that each have their own of the {} scales of '{}', got "
                    "more channels in all",
                    where, scales.numel(), kScalesName));
  }
  pooled.left -= channels;
  const Tensor wide = scales.narrow(0, first, channels).to(DType::Float64).contiguous();
  const auto* values = wide.data<double>();
  try {
    return QTensor::from_int_repr(
        codes,
        Quantizer::per_channel(std::vector<double>(values, values + channels),
                               std::vector<std::int64_t>(static_cast<std::size_t>(channels)), 0));
  } catch (const ArgumentError& error) {
    throw FileError(fmt::format("{}: {}", where, error.what()));
  }
}

}  // namespace

std::string_view safetensors_name(DType dtype) {
  for (const auto& [known, name] : kNames) {
    if (known == dtype) return name;
  }
  return {};
}

std::optional<DType> dtype_from_safetensors_name(std::string_view name) {
  for (const auto& [dtype, known] : kNames) {
    if (known == name) return dtype;
  }
  return std::nullopt;
}

Json describe_quantized(const QTensor& tensor, std::vector<double>& scales) {
  const Quantizer& quantizer = tensor.quantizer();
  if (is_usual_weight(tensor)) {
    const auto first = static_cast<std::int64_t>(scales.size());
    scales.insert(scales.end(), quantizer.channel->scales.begin(), quantizer.channel->scales.end());
    return first;
  }
  Json::Object result;
  result.emplace_back("dtype", torch_name(tensor.dtype()));
  result.emplace_back("shape", to_array(tensor.sizes().to_vector()));
  result.emplace_back("qscheme", torch_name(quantizer.scheme));
  if (!tensor.is_per_channel()) {
    result.emplace_back("scale", quantizer.scale);
    result.emplace_back("zero_point", quantizer.zero_point);
    return result;
  }
  result.emplace_back("scales", to_array(quantizer.channel->scales));
  result.emplace_back("zero_points", quantizer.scheme == QScheme::PerChannelAffineFloatQParams
                                         ? to_array(quantizer.channel->float_zero_points)
                                         : to_array(quantizer.channel->zero_points));
  result.emplace_back("axis", quantizer.axis);
  return result;
}

PooledScales::PooledScales(const Tensor* pooled)
    : scales(pooled == nullptr ? Tensor() : *pooled),
      left(pooled == nullptr ? 0 : pooled->numel()) {}

QTensor restore_quantized(const Tensor& codes, const Json& json, PooledScales& pooled,
                          std::string_view where) {
  if (json.as_int() != nullptr) return restore_usual_weight(codes, *json.as_int(), pooled, where);
  const Description description(json, where);
  const std::string_view name = description.text("dtype");
  const std::optional<DType> dtype = dtype_from_torch_name(name);
  if (!dtype || !is_quantized(*dtype)) {
    throw FileError(fmt::format("{}: dtype: expected a quantized one, got '{}'", where, name));
  }
  if (codes.dtype() != int_repr_dtype(*dtype)) {
    throw FileError(fmt::format("{}: expected codes of {} for {}, got {}", where,
                                int_repr_dtype(*dtype), *dtype, codes.dtype()));
  }
  try {
    const Dims shape(description.integers("shape"));
    const Quantizer quantizer = read_quantizer(description, where);
    if (!is_sub_byte(*dtype)) {
      if (shape != codes.sizes()) {
        throw FileError(fmt::format("{}: shape: expected that of its codes, {}, got {}", where,
                                    codes.sizes(), shape));
      }
      return QTensor::from_int_repr(codes, quantizer);
    }
    const std::int64_t numel = checked_file_numel(shape, where);
    if (storage_bytes(*dtype, numel) != static_cast<std::size_t>(codes.numel())) {
      throw FileError(fmt::format("{}: shape: expected elements for {} packed bytes, got {}", where,
                                  codes.numel(), shape));
    }
    return QTensor::from_packed_bytes(codes, shape, *dtype, quantizer);
  } catch (const ArgumentError& error) {
    throw FileError(fmt::format("{}: {}", where, error.what()));
  }
}

}  // namespace quanta::detail
