#include "quanta/fusion/model_file.h"

#include <array>
#include <charconv>
#include <string>
#include <typeindex>
#include <typeinfo>
#include <vector>

#include "quanta/fusion/convert.h"
#include "quanta/fusion/prepare.h"
#include "quanta/fusion/uncalibrated.h"
#include "quanta/nn/activation.h"
#include "quanta/nn/attention.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/dynamic/conv.h"
#include "quanta/nn/dynamic/linear.h"
#include "quanta/nn/dynamic/rnn.h"
#include "quanta/nn/dynamic/rnn_cell.h"
#include "quanta/nn/embedding.h"
#include "quanta/nn/float_functional.h"
#include "quanta/nn/intrinsic/fused.h"
#include "quanta/nn/intrinsic/quantized.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/misc.h"
#include "quanta/nn/norm.h"
#include "quanta/nn/quantizable/attention.h"
#include "quanta/nn/quantizable/lstm.h"
#include "quanta/nn/quantized/activation.h"
#include "quanta/nn/quantized/attention.h"
#include "quanta/nn/quantized/conv.h"
#include "quanta/nn/quantized/embedding.h"
#include "quanta/nn/quantized/functional.h"
#include "quanta/nn/quantized/linear.h"
#include "quanta/nn/quantized/lstm.h"
#include "quanta/nn/quantized/module.h"
#include "quanta/nn/quantized/norm.h"
#include "quanta/nn/quantized/stubs.h"
#include "quanta/nn/rnn.h"
#include "quanta/nn/stubs.h"
#include "quanta/nn/weight_only/linear.h"
#include "quanta/observers/defaults.h"
#include "quanta/observers/min_max_observer.h"
#include "quanta/observers/other_observers.h"
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

using nn::Module;
using ModulePtr = std::shared_ptr<Module>;
using detail::Json;

constexpr const char* kFormatKey = "quanta.format";
constexpr const char* kModulesKey = "quanta.modules";

// How a saved type comes back: from the module that stands at its place in the float network.
struct SavedType {
  std::string_view name;
  std::type_index type;
  ModulePtr (*restore)(const Module& occupant, DType dtype);
  /// The modules below come back with it: the file holds their state, but no types.
  bool whole = false;
  /// Tells forms of one type apart; null: any module of the type.
  bool (*is_form)(const Module& module) = nullptr;
};

template <typename Float>
const Float& expect(const Module& occupant) {
  QUANTA_CHECK(typeid(occupant) == typeid(Float),
               "expected another layer in the float network, got {}", occupant.type_name());
  return static_cast<const Float&>(occupant);
}

template <typename Float, typename Quantized>
ModulePtr restore(const Module& occupant, DType dtype) {
  return from_uncalibrated(expect<Float>(occupant).clone(), &Quantized::from_float, dtype);
}

template <typename Float, typename Activation, typename Fused, typename Quantized>
ModulePtr restore_fused(const Module& occupant, DType dtype) {
  auto activation = nn::make_module<Activation>();
  activation->train(occupant.is_training());
  return from_uncalibrated(nn::make_module<Fused>(expect<Float>(occupant).clone(), activation),
                           &Quantized::from_float, dtype);
}

// Whether the rows have 8 or 4 bits follows from the state.
template <typename Float, typename Quantized>
ModulePtr restore_embedding(const Module& occupant, DType) {
  const ModulePtr source = expect<Float>(occupant).clone();
  source->set_qconfig(float_qparams_weight_only_qconfig());
  return Quantized::from_float(*source);
}

// Its weight is QUInt8, which is not what the default weight observer gives.
ModulePtr restore_prelu(const Module& occupant, DType dtype) {
  const ModulePtr copy = expect<nn::PReLU>(occupant).clone();
  const ObserverFactory observer = MinMaxObserver::with_args({.dtype = DType::QUInt8});
  copy->set_qconfig(QConfig{observer, observer});
  return from_uncalibrated(copy, &nn::quantized::PReLU::from_float, dtype);
}

// Bits and groups follow from the state.
ModulePtr restore_weight_only(const Module& occupant, DType) {
  return nn::weight_only::Linear::from_float(expect<nn::Linear>(occupant));
}

ModulePtr restore_identity(const Module&, DType) { return nn::make_module<nn::Identity>(); }

// By way of the observed form, whose parts get their parameters from the state.
ModulePtr restore_custom(const std::shared_ptr<Module>& observed, const FromFloat& from_observed) {
  const ObserverFactory unit = FixedQParamsObserver::with_args({});
  prepare_(*observed, QConfig{unit, default_weight_observer()});
  convert_(*observed, {.uncalibrated = Uncalibrated::Allow});
  return from_observed(*observed);
}

template <nn::quantizable::GateForm kForm>
ModulePtr restore_lstm(const Module& occupant, DType) {
  return restore_custom(nn::quantizable::LSTM::from_float(expect<nn::LSTM>(occupant), kForm),
                        &nn::quantized::LSTM::from_observed);
}

ModulePtr restore_attention(const Module& occupant, DType) {
  return restore_custom(
      nn::quantizable::MultiheadAttention::from_float(expect<nn::MultiheadAttention>(occupant)),
      &nn::quantized::MultiheadAttention::from_observed);
}

template <nn::quantizable::GateForm kForm>
bool has_form(const Module& module) {
  return dynamic_cast<const nn::quantized::LSTM&>(module).form() == kForm;
}

// The dtype of the weights follows from the state.
template <typename Dynamic>
ModulePtr dynamic_from(const ModulePtr& source) {
  source->set_qconfig(default_dynamic_qconfig());
  return Dynamic::from_float(*source);
}

template <typename Dynamic>
ModulePtr restore_dynamic(const Module& occupant, DType) {
  return dynamic_from<Dynamic>(occupant.clone());
}

ModulePtr restore_dynamic_linear_relu(const Module& occupant, DType) {
  auto relu = nn::make_module<nn::ReLU>();
  relu->train(occupant.is_training());
  return dynamic_from<nn::intrinsic::quantized::dynamic::LinearReLU>(
      nn::make_module<nn::intrinsic::LinearReLU>(expect<nn::Linear>(occupant).clone(), relu));
}

template <typename Dynamic>
SavedType dynamic_row(std::string_view name) {
  return {name, typeid(Dynamic), &restore_dynamic<Dynamic>};
}

template <typename Float, typename Quantized>
SavedType row(std::string_view name) {
  return {name, typeid(Quantized), &restore<Float, Quantized>};
}

template <typename Float, typename Fused, typename Quantized>
SavedType relu_row(std::string_view name) {
  return {name, typeid(Quantized), &restore_fused<Float, nn::ReLU, Fused, Quantized>};
}

const std::vector<SavedType>& saved_types() {
  namespace q = nn::quantized;
  namespace ni = nn::intrinsic;
  namespace niq = nn::intrinsic::quantized;
  namespace qd = nn::quantized::dynamic;
  using nn::quantizable::GateForm;
  static const std::vector<SavedType> types{
      {"Identity", typeid(nn::Identity), &restore_identity},
      row<nn::QuantStub, q::Quantize>("Quantize"),
      row<nn::DeQuantStub, q::DeQuantize>("DeQuantize"),
      row<nn::FloatFunctional, q::QFunctional>("QFunctional"),
      row<nn::Conv1d, q::Conv1d>("Conv1d"),
      row<nn::Conv2d, q::Conv2d>("Conv2d"),
      row<nn::Conv3d, q::Conv3d>("Conv3d"),
      row<nn::ConvTranspose1d, q::ConvTranspose1d>("ConvTranspose1d"),
      row<nn::ConvTranspose2d, q::ConvTranspose2d>("ConvTranspose2d"),
      row<nn::ConvTranspose3d, q::ConvTranspose3d>("ConvTranspose3d"),
      row<nn::Linear, q::Linear>("Linear"),
      relu_row<nn::Conv1d, ni::ConvReLU1d, niq::ConvReLU1d>("ConvReLU1d"),
      relu_row<nn::Conv2d, ni::ConvReLU2d, niq::ConvReLU2d>("ConvReLU2d"),
      relu_row<nn::Conv3d, ni::ConvReLU3d, niq::ConvReLU3d>("ConvReLU3d"),
      relu_row<nn::Linear, ni::LinearReLU, niq::LinearReLU>("LinearReLU"),
      {"LinearTanh", typeid(niq::LinearTanh),
       &restore_fused<nn::Linear, nn::Tanh, ni::LinearTanh, niq::LinearTanh>},
      row<nn::BatchNorm2d, q::BatchNorm2d>("BatchNorm2d"),
      row<nn::BatchNorm3d, q::BatchNorm3d>("BatchNorm3d"),
      relu_row<nn::BatchNorm2d, ni::BNReLU2d, niq::BNReLU2d>("BNReLU2d"),
      relu_row<nn::BatchNorm3d, ni::BNReLU3d, niq::BNReLU3d>("BNReLU3d"),
      {"Embedding", typeid(q::Embedding), &restore_embedding<nn::Embedding, q::Embedding>},
      {"EmbeddingBag", typeid(q::EmbeddingBag),
       &restore_embedding<nn::EmbeddingBag, q::EmbeddingBag>},
      {"LSTM", typeid(q::LSTM), &restore_lstm<GateForm::Joined>, true, &has_form<GateForm::Joined>},
      {"LSTM of split gates", typeid(q::LSTM), &restore_lstm<GateForm::Split>, true,
       &has_form<GateForm::Split>},
      {"MultiheadAttention", typeid(q::MultiheadAttention), &restore_attention, true},
      row<nn::LayerNorm, q::LayerNorm>("LayerNorm"),
      row<nn::GroupNorm, q::GroupNorm>("GroupNorm"),
      row<nn::InstanceNorm1d, q::InstanceNorm1d>("InstanceNorm1d"),
      row<nn::InstanceNorm2d, q::InstanceNorm2d>("InstanceNorm2d"),
      row<nn::InstanceNorm3d, q::InstanceNorm3d>("InstanceNorm3d"),
      row<nn::ReLU6, q::ReLU6>("ReLU6"),
      row<nn::Hardswish, q::Hardswish>("Hardswish"),
      row<nn::LeakyReLU, q::LeakyReLU>("LeakyReLU"),
      row<nn::ELU, q::ELU>("ELU"),
      {"PReLU", typeid(q::PReLU), &restore_prelu},
      row<nn::Dropout, q::Dropout>("Dropout"),
      dynamic_row<qd::Linear>("DynamicLinear"),
      {"DynamicLinearReLU", typeid(niq::dynamic::LinearReLU), &restore_dynamic_linear_relu},
      dynamic_row<qd::LSTM>("DynamicLSTM"),
      dynamic_row<qd::GRU>("DynamicGRU"),
      dynamic_row<qd::LSTMCell>("DynamicLSTMCell"),
      dynamic_row<qd::GRUCell>("DynamicGRUCell"),
      dynamic_row<qd::RNNCell>("DynamicRNNCell"),
      dynamic_row<qd::Conv1d>("DynamicConv1d"),
      dynamic_row<qd::Conv2d>("DynamicConv2d"),
      dynamic_row<qd::Conv3d>("DynamicConv3d"),
      dynamic_row<qd::ConvTranspose1d>("DynamicConvTranspose1d"),
      dynamic_row<qd::ConvTranspose2d>("DynamicConvTranspose2d"),
      dynamic_row<qd::ConvTranspose3d>("DynamicConvTranspose3d"),
      {"WeightOnlyLinear", typeid(nn::weight_only::Linear), &restore_weight_only},
  };
  return types;
}

const SavedType* find_type(const Module& module) {
  for (const SavedType& saved : saved_types()) {
    if (saved.type == typeid(module) && (saved.is_form == nullptr || saved.is_form(module))) {
      return &saved;
    }
  }
  return nullptr;
}

const SavedType* find_type(std::string_view name) {
  for (const SavedType& saved : saved_types()) {
    if (saved.name == name) return &saved;
  }
  return nullptr;
}

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
  entry.type = find_type(*values[0].as_string());
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
        entries.push_back({.path = *identity.as_string(), .type = find_type("Identity")});
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
    const SavedType* type = find_type(*entry.module);
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
      if (entry.type->type != typeid(*before)) after = entry.type->restore(*before, entry.dtype);
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
