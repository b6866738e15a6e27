#include "quanta/fusion/model_file.h"

#include <array>
#include <charconv>
#include <string>
#include <vector>

#include "quanta/fusion/saved_types.h"
#include "quanta/nn/intrinsic/fused.h"
#include "quanta/nn/misc.h"
#include "quanta/nn/quantized/module.h"
#include "quanta/nn/quantized/stubs.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/json.h"
#include "quanta/runtime/safetensors.h"

// The file: tensors under torch's names, and in the metadata
//   quanta.format   "1"
//   quanta.modules  {"conv1": ["ConvReLU2d", 0.0123, 0], "quant": ["Quantize", 0.02, 64, "quint8"],
//   ...,
//                    "": ["bn1", "relu"]}:
//                   modules that differ from the float network, with scale and zero point (scales
//                   are float32 numbers); under "" the places where fusing left an Identity.
// Scales and zero points of modules stand there and not as tensors: the header line of a tensor
// takes twenty times the bytes of the number.

namespace quanta {
namespace {

using detail::find_saved_type;
using detail::Json;
using detail::SavedType;
using nn::Module;
using ModulePtr = std::shared_ptr<Module>;

constexpr const char* kFormatKey = "quanta.format";
constexpr const char* kModulesKey = "quanta.modules";

// The double with the fewest digits that rounds to this float32 number.
double short_double(float value) {
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  double result = 0.0;
  std::from_chars(digits.data(), end.ptr, result);
  return result;
}

std::string joined(const std::string& path, std::string_view name) {
  return path.empty() ? std::string(name) : path + "." + std::string(name);
}

// What the file says of one module.
struct ModuleEntry {
  std::string path;
  const SavedType* type = nullptr;
  bool has_qparams = false;
  double scale = 1.0;
  std::int64_t zero_point = 0;
  DType dtype = DType::QUInt8;
};

// ["ConvReLU2d", scale, zero point, dtype]; the last one or three may be missing.
template <typename Refuse>
ModuleEntry parse_module(const std::string& path, const Json::Array& values, const Refuse& refuse) {
  ModuleEntry entry{.path = path};
  if (values.empty() || values[0].as_string() == nullptr) {
    refuse(fmt::format("'{}': expected an array that begins with a type name", path));
  }
  entry.type = find_saved_type(*values[0].as_string());
  if (entry.type == nullptr) {
    refuse(fmt::format("'{}': unknown type '{}' (a newer version?)", path, *values[0].as_string()));
  }
  if (values.size() == 1) return entry;
  if (values.size() < 3 || !values[1].is_number() || values[2].as_int() == nullptr) {
    refuse(fmt::format("'{}': expected a scale and a zero point after the type", path));
  }
  entry.has_qparams = true;
  entry.scale = values[1].as_number();
  entry.zero_point = *values[2].as_int();
  if (values.size() == 3) return entry;
  const std::string* name = values[3].as_string();
  const auto dtype = name == nullptr ? std::nullopt : dtype_from_torch_name(*name);
  if (!dtype) refuse(fmt::format("'{}': expected a dtype's name as the fourth value", path));
  entry.dtype = *dtype;
  return entry;
}

std::vector<ModuleEntry> parse_modules(const Json& modules, const std::string& where) {
  std::vector<ModuleEntry> entries;
  const auto refuse = [&](const std::string& text) {
    throw FileError(fmt::format("load_model: {}: {}: {}", where, kModulesKey, text));
  };
  const Json::Object* object = modules.as_object();
  if (object == nullptr) refuse(fmt::format("expected an object, got {}", modules.kind()));
  for (const auto& [path, value] : *object) {
    const Json::Array* values = value.as_array();
    if (values == nullptr)
      refuse(fmt::format("'{}': expected an array, got {}", path, value.kind()));
    if (path.empty()) {
      for (const Json& identity : *values) {
        if (identity.as_string() == nullptr) refuse("'': expected paths");
        entries.push_back({.path = *identity.as_string(), .type = find_saved_type("Identity")});
      }
      continue;
    }
    entries.push_back(parse_module(path, *values, refuse));
  }
  return entries;
}

struct Swap {
  Module* parent;
  std::string name;
  ModulePtr before;
  ModulePtr after;
};

}  // namespace

void save_model(const Module& model, const std::filesystem::path& path) {
  StateDict state = model.state_dict();
  Json::Object modules;
  Json::Array identities;
  std::string whole;  // the path of a module that comes back with all below it, and a dot
  for (const Module::NamedModule& entry : model.named_modules()) {
    if (entry.path.empty() || (!whole.empty() && entry.path.starts_with(whole))) continue;
    const SavedType* type = find_saved_type(*entry.module);
    if (type == nullptr) {
      QUANTA_SUPPORTED(dynamic_cast<const nn::intrinsic::FusedModule*>(entry.module) == nullptr &&
                           entry.module->activation_post_process() == nullptr,
                       "save_model: model: expected a converted model, or a float one that was not "
                       "fused or prepared, got {} '{}'",
                       entry.module->type_name(), entry.path);
      QUANTA_SUPPORTED(
          dynamic_cast<const nn::quantized::OutputQuantized*>(entry.module) == nullptr,
          "save_model: model: expected modules that load_model can restore, got {} '{}'",
          entry.module->type_name(), entry.path);
      continue;
    }
    if (typeid(*entry.module) == typeid(nn::Identity)) {
      identities.emplace_back(entry.path);
      continue;
    }
    if (type->whole) whole = entry.path + ".";
    Json::Array values{Json(type->name)};
    const std::string scale_name = joined(entry.path, "scale");
    const std::string zero_point_name = joined(entry.path, "zero_point");
    const Tensor* scale = state.find(scale_name);
    const Tensor* zero_point = state.find(zero_point_name);
    if (scale != nullptr && zero_point != nullptr) {
      values.emplace_back(short_double(static_cast<float>(scale->item())));
      values.emplace_back(static_cast<std::int64_t>(zero_point->item()));
      if (const auto* quantize = dynamic_cast<const nn::quantized::Quantize*>(entry.module)) {
        values.emplace_back(torch_name(quantize->dtype()));
      }
      state.erase(scale_name);
      state.erase(zero_point_name);
    }
    modules.emplace_back(entry.path, Json(std::move(values)));
  }
  if (!identities.empty()) modules.emplace_back("", Json(std::move(identities)));
  write_safetensors(
      path, state,
      {{kFormatKey, "1"}, {kModulesKey, detail::to_json_text(Json(std::move(modules)))}});
}

void load_model(Module& model, const std::filesystem::path& path) {
  const SafetensorsFile file = load_safetensors(path);
  const auto format = file.metadata.find(kFormatKey);
  const auto tree = file.metadata.find(kModulesKey);
  if (format == file.metadata.end() || tree == file.metadata.end()) {
    throw FileError(fmt::format(
        "load_model: {}: expected a file of save_model (metadata {} and {}), got none of it; plain "
        "state_dicts are for load_state_dict",
        path.string(), kFormatKey, kModulesKey));
  }
  if (format->second != "1") {
    throw FileError(fmt::format("load_model: {}: {}: expected 1, got '{}'", path.string(),
                                kFormatKey, format->second));
  }
  const Json modules = detail::parse_json(tree->second, path.string());
  StateDict state = file.tensors;
  std::vector<Swap> swaps;
  std::string problems;
  for (const ModuleEntry& entry : parse_modules(modules, path.string())) {
    try {
      const std::size_t dot = entry.path.rfind('.');
      Module* parent =
          dot == std::string::npos ? &model : model.get_submodule(entry.path.substr(0, dot)).get();
      const std::string name = dot == std::string::npos ? entry.path : entry.path.substr(dot + 1);
      const ModulePtr before = model.get_submodule(entry.path);
      ModulePtr after = before;
      if (entry.type->type != typeid(*before)) {
        after = entry.type->restore(*before, {state, entry.path + ".", entry.dtype});
      }
      after->train(before->is_training());
      swaps.push_back({parent, name, before, after});
    } catch (const Error& error) {
      problems += fmt::format("\n  '{}' ({}): {}", entry.path, entry.type->name, error.what());
    }
    if (entry.has_qparams) {
      state.set(joined(entry.path, "scale"), Tensor::scalar(entry.scale));
      state.set(joined(entry.path, "zero_point"),
                Tensor::scalar(static_cast<double>(entry.zero_point), DType::Int64));
    }
  }
  QUANTA_CHECK(problems.empty(), "load_model: model: expected the architecture saved in {}, got:{}",
               path.string(), problems);
  for (const Swap& swap : swaps) swap.parent->replace_child(swap.name, swap.after);
  try {
    model.load_state_dict(state);
  } catch (...) {
    for (const Swap& swap : swaps) swap.parent->replace_child(swap.name, swap.before);
    throw;
  }
}

}  // namespace quanta
