#include "quanta/fusion/model_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "quanta/fusion/detail/observe.h"
#include "quanta/fusion/detail/packed_weights.h"
#include "quanta/fusion/detail/qconfig_scope.h"
#include "quanta/fusion/detail/restore_form.h"
#include "quanta/fusion/detail/saved_calls.h"
#include "quanta/fusion/detail/whole_modules.h"
#include "quanta/fusion/graph/model.h"
#include "quanta/fusion/prepare.h"
#include "quanta/nn/detail/child_path.h"
#include "quanta/nn/dynamic/module.h"
#include "quanta/nn/misc.h"
#include "quanta/nn/module_forms.h"
#include "quanta/nn/quantized/module.h"
#include "quanta/nn/quantized/stubs.h"
#include "quanta/nn/reference.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/file_memory.h"
#include "quanta/runtime/detail/json.h"
#include "quanta/runtime/detail/reading.h"
#include "quanta/runtime/safetensors.h"

// The file holds tensors under torch's names, and in the metadata:
//
//   quanta.format     "1"
//   quanta.modules    {"conv1": ["ConvReLU2d", 0.0123, 0],
//                      "quant": ["Quantize", 0.02, 64, "quint8"],
//                      "fc": ["LinearLeakyReLU", 0.1, 7, {"negative_slope": 0.2}],
//                      "": ["bn1", "relu"]}
//   quanta.observers  {"conv1": "HistogramObserver"}
//   quanta.graphs     {"": "12 nodes, 9f86d081884c7d65"}
//
// The modules are those that differ from the float network: the name of the form, scale and zero
// point of the result (scales are float32 numbers), its dtype, and the settings of the form, as far
// as there are any. Under "" stand the places where fusing left an Identity. Scales and zero points
// are not tensors because the header line of a tensor takes twenty times the bytes of the number.
//
// The observers are those of the results of a prepared model. What they saw is in the state.
//
// The graphs are those of a graph::Model: their nodes are in no state, so they have to be there
// already when the state is loaded.
//
// Packed weights are told about in packed_weights.h.

namespace quanta {
namespace {

using detail::Json;
using nn::Form;
using nn::FormSettings;
using nn::Module;
using nn::ModuleForm;
using nn::SavedForm;
using nn::detail::child_path;
using ModulePtr = std::shared_ptr<Module>;

constexpr const char* kFormatKey = "quanta.format";
constexpr const char* kModulesKey = "quanta.modules";
constexpr const char* kObserversKey = "quanta.observers";
constexpr const char* kGraphsKey = "quanta.graphs";
constexpr const char* kCallsKey = "quanta.calls";  // see saved_calls.h

// The double with the fewest digits that rounds to this float32 number.
double short_double(float value) {
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  double result = 0.0;
  std::from_chars(digits.data(), end.ptr, result);
  return result;
}

// Writing ---------------------------------------------------------------------------------------

// A quantized module of a class that has no row: its state would be read into a float one.
bool needs_row(const Module& module) {
  return is_whole(module) ||
         dynamic_cast<const nn::quantized::OutputQuantized*>(&module) != nullptr ||
         dynamic_cast<const nn::quantized::dynamic::DynamicModule*>(&module) != nullptr ||
         dynamic_cast<const nn::reference::ReferenceModule*>(&module) != nullptr;
}

Json to_json(const FormSettings& settings) {
  Json::Object object;
  for (const auto& [name, number] : settings.numbers) object.emplace_back(name, Json(number));
  for (const auto& [name, word] : settings.words) object.emplace_back(name, Json(word));
  return Json(std::move(object));
}

// A scale or zero point as the modules of nn::quantized save theirs.
bool is_number(const Tensor* tensor, DType dtype, const Module& module) {
  // Only Quantize saves tensors of one dimension, and takes them back as numbers.
  const bool may_be_row = dynamic_cast<const nn::quantized::Quantize*>(&module) != nullptr;
  return tensor != nullptr && tensor->dtype() == dtype &&
         (tensor->dim() == 0 || (may_be_row && tensor->numel() == 1));
}

// [name, scale, zero point, dtype, settings], as far as there are any. Scale and zero point leave
// the state.
Json describe(const Module& module, const ModuleForm& row, const std::string& path,
              StateDict& state) {
  Json::Array values{Json(row.name)};
  FormSettings settings = row.settings ? row.settings(module) : FormSettings{};
  const std::string scale_name = child_path(path, "scale");
  const std::string zero_point_name = child_path(path, "zero_point");
  const Tensor* scale = state.find(scale_name);
  const Tensor* zero_point = state.find(zero_point_name);
  if (is_number(scale, DType::Float32, module) && is_number(zero_point, DType::Int64, module)) {
    values.emplace_back(short_double(static_cast<float>(scale->item())));
    values.emplace_back(static_cast<std::int64_t>(zero_point->item()));
    if (const auto dtype = settings.words.extract("dtype")) values.emplace_back(dtype.mapped());
    state.erase(scale_name);
    state.erase(zero_point_name);
  }
  if (!settings.numbers.empty() || !settings.words.empty()) values.push_back(to_json(settings));
  return Json(std::move(values));
}

// Reading ---------------------------------------------------------------------------------------

// What the file says of one module.
struct ModuleEntry {
  std::string path;
  const ModuleForm* form = nullptr;
  bool has_qparams = false;
  double scale = 1.0;
  std::int64_t zero_point = 0;
  FormSettings settings{};
};

FormSettings parse_settings(const Json::Object& object, const auto& refuse) {
  FormSettings settings;
  for (const auto& [name, value] : object) {
    if (value.is_number()) {
      settings.numbers[name] = value.as_number();
    } else if (value.as_string() != nullptr) {
      settings.words[name] = *value.as_string();
    } else {
      refuse(fmt::format("{}: expected a number or a string, got {}", name, value.kind()));
    }
  }
  return settings;
}

// What describe wrote.
ModuleEntry parse_module(const std::string& path, const Json::Array& values, const auto& fail) {
  const auto refuse = [&](const std::string& text) { fail(fmt::format("'{}': {}", path, text)); };
  ModuleEntry entry{.path = path};
  if (values.empty() || values[0].as_string() == nullptr) {
    refuse("expected an array that begins with a type name");
  }
  entry.form = nn::module_forms().find(std::string_view(*values[0].as_string()));
  if (entry.form == nullptr) {
    refuse(
        fmt::format("unknown type '{}' (of a newer version, or of a program that registers it "
                    "with register_module_form)",
                    *values[0].as_string()));
  }
  std::size_t count = values.size();
  if (count > 1 && values.back().as_object() != nullptr) {
    entry.settings = parse_settings(*values.back().as_object(), refuse);
    --count;
  }
  if (count == 1) return entry;
  if (count < 3 || !values[1].is_number() || values[2].as_int() == nullptr) {
    refuse("expected a scale and a zero point after the type");
  }
  entry.has_qparams = true;
  entry.scale = values[1].as_number();
  entry.zero_point = *values[2].as_int();
  if (count == 3) return entry;
  const std::string* dtype = values[3].as_string();
  if (dtype == nullptr || !dtype_from_torch_name(*dtype)) {
    refuse("expected a dtype's name as the fourth value");
  }
  entry.settings.words["dtype"] = *dtype;
  return entry;
}

const Json::Object& expect_object(const Json& value, const auto& refuse) {
  if (value.as_object() == nullptr) {
    refuse(fmt::format("expected an object, got {}", value.kind()));
  }
  return *value.as_object();
}

std::vector<ModuleEntry> parse_modules(const Json& modules, const std::string& where) {
  const auto refuse = [&](const std::string& text) {
    throw FileError(fmt::format("load_model: {}: {}: {}", where, kModulesKey, text));
  };
  std::vector<ModuleEntry> entries;
  const ModuleForm* identity = nn::module_forms().find(std::string_view("Identity"));
  for (const auto& [path, value] : expect_object(modules, refuse)) {
    const Json::Array* values = value.as_array();
    if (values == nullptr) {
      refuse(fmt::format("'{}': expected an array, got {}", path, value.kind()));
    }
    if (!path.empty()) {
      entries.push_back(parse_module(path, *values, refuse));
      continue;
    }
    for (const Json& place : *values) {
      if (place.as_string() == nullptr) refuse("'': expected paths");
      entries.push_back({.path = *place.as_string(), .form = identity});
    }
  }
  return entries;
}

using Names = std::vector<std::pair<std::string, std::string>>;

// A name for each path (classes of observers, graphs); empty where the file has no such property.
Names parse_names(const SafetensorsFile& file, const char* key, const std::string& where) {
  const auto text = file.metadata.find(key);
  if (text == file.metadata.end()) return {};
  const auto refuse = [&](const std::string& what) {
    throw FileError(fmt::format("load_model: {}: {}: {}", where, key, what));
  };
  const Json parsed = detail::parse_json(text->second, where);
  Names result;
  for (const auto& [path, name] : expect_object(parsed, refuse)) {
    if (name.as_string() == nullptr) refuse(fmt::format("'{}': expected a name", path));
    result.emplace_back(path, *name.as_string());
  }
  return result;
}

struct ModelDescription {
  std::vector<ModuleEntry> modules;
  Json calls = Json(Json::Object{});
  Names observers;
  Names graphs;
  bool is_prepared() const {
    for (const ModuleEntry& entry : modules) {
      if (entry.form->form == Form::Qat || entry.form->form == Form::Observed) return true;
    }
    return !observers.empty();
  }
};

ModelDescription parse_metadata(const SafetensorsFile& file, const std::string& where) {
  const auto format = file.metadata.find(kFormatKey);
  const auto tree = file.metadata.find(kModulesKey);
  if (format == file.metadata.end() || tree == file.metadata.end()) {
    throw FileError(fmt::format(
        "load_model: {}: expected a file of save_model (metadata {} and {}), got none of it; plain "
        "state_dicts are for load_state_dict",
        where, kFormatKey, kModulesKey));
  }
  if (format->second != "1") {
    throw FileError(
        fmt::format("load_model: {}: {}: expected 1, got '{}'", where, kFormatKey, format->second));
  }
  ModelDescription result;
  result.modules = parse_modules(detail::parse_json(tree->second, where), where);
  result.observers = parse_names(file, kObserversKey, where);
  result.graphs = parse_names(file, kGraphsKey, where);
  if (const auto calls = file.metadata.find(kCallsKey); calls != file.metadata.end()) {
    result.calls = detail::parse_json(calls->second, where);
  }
  return result;
}

// Modules are swapped and filled by name; nodes that came or went would not be noticed.
void check_graphs(const Module& model, const Names& graphs, const std::string& where) {
  for (const auto& [path, saved] : graphs) {
    const auto modules = model.named_modules();
    const auto found = std::find_if(
        modules.begin(), modules.end(),
        [&, &wanted = path](const Module::NamedModule& entry) { return entry.path == wanted; });
    const auto* net =
        found == modules.end() ? nullptr : dynamic_cast<const graph::Model*>(found->module);
    const std::string given = net == nullptr ? "none" : graph::fingerprint(net->graph());
    QUANTA_CHECK(
        given == saved,
        "load_model: model: expected the graph that was saved in {} ({}), got {}: fuse_conv_bn_jit "
        "and prepare_jit change the nodes of a graph, so that the model has to go through them as "
        "the saved one did; save_onnx and load_onnx keep the graph as well as its layers",
        where, saved, given);
  }
}

// Swaps modules in a tree one after the other and undoes it unless told otherwise.
class Swaps {
 public:
  explicit Swaps(Module& root) : root_(root) { note_places(root); }
  Swaps(const Swaps&) = delete;
  Swaps& operator=(const Swaps&) = delete;
  ~Swaps() {
    // First, as modules that were put in go with the swaps.
    for (const auto& [module, observer] : observed_) {
      module->set_activation_post_process(observer);
    }
    for (auto swap = done_.rbegin(); swap != done_.rend(); ++swap) {
      swap->parent->replace_child(swap->name, swap->before);
    }
  }

  void keep() noexcept {
    done_.clear();
    observed_.clear();
  }

  /// Puts `after` into all places of the module at `path`.
  void put(const std::string& path, const ModulePtr& after) {
    const ModulePtr before = root_.get_submodule(path);
    if (before == after) return;
    const std::vector<Place> places = places_[before.get()];
    for (const Place& place : places) {
      place.parent->replace_child(place.name, after);
      done_.push_back({place.parent, place.name, before});
      places_[after.get()].push_back(place);
    }
    note_places(*after);
  }

  /// Notes the observer that `module` has, to put it back.
  void will_observe(Module& module) {
    observed_.emplace_back(&module, module.activation_post_process());
  }

 private:
  struct Place {
    Module* parent;
    std::string name;
  };
  struct Swap {
    Module* parent;
    std::string name;
    ModulePtr before;
  };

  void note_places(Module& root) {
    for (const Module::NamedModule& entry : root.named_modules()) {
      for (const Module::NamedChild& child : entry.module->named_children()) {
        places_[child.module.get()].push_back({entry.module, child.name});
      }
    }
  }

  Module& root_;
  std::map<const Module*, std::vector<Place>> places_;
  std::vector<Swap> done_;
  std::vector<std::pair<Module*, std::shared_ptr<Observer>>> observed_;
};

// Puts together what the file describes; state is loaded afterwards.
class Builder {
 public:
  Builder(Module& model, StateDict& state) : model_(model), state_(state), swaps_(model) {}

  /// Fused modules, Identities, and the fused modules of which the rest is made.
  void build_float(const std::vector<ModuleEntry>& entries) {
    for (const ModuleEntry& entry : entries) {
      const Form form = entry.form->form;
      const ModuleForm* row = entry.form;
      if (form == Form::Qat) row = fused_source(*entry.form);
      const bool is_fused_one = row != nullptr && row->form == Form::Fused;
      if (form == Form::Float || is_fused_one) put(entry, *row);
    }
  }

  void build_rest(const std::vector<ModuleEntry>& entries) {
    for (const ModuleEntry& entry : entries) {
      const Form form = entry.form->form;
      if (form != Form::Float && form != Form::Fused) put(entry, *entry.form);
      if (!entry.has_qparams) continue;
      state_.set(child_path(entry.path, "scale"), Tensor::scalar(entry.scale));
      state_.set(child_path(entry.path, "zero_point"),
                 Tensor::scalar(static_cast<double>(entry.zero_point), DType::Int64));
    }
    add_missing_parameters();
  }

  void observe(const Names& observers) {
    for (const auto& [path, name] : observers) {
      try {
        Module& module = path.empty() ? model_ : *model_.get_submodule(path);
        const auto fits = [&, &wanted = name] {
          const auto& observer = module.activation_post_process();
          return observer != nullptr && observer->name() == wanted;
        };
        if (fits()) continue;
        swaps_.will_observe(module);
        const ObserverFactory& fixed = nn::module_forms().kind(module).fixed_fake_quantizer;
        if (fixed) module.set_activation_post_process(fixed());
        if (!fits()) insert_observer(module);
        QUANTA_CHECK(fits(),
                     "expected a QConfig that makes a {} (give load_model those that the saved "
                     "model was prepared with), got {}",
                     name,
                     module.qconfig() == nullptr ? "none" : module.qconfig()->activation.name);
      } catch (const Error& error) {
        note_problem(path, "its observer", error);
      }
    }
  }

  const std::string& problems() const noexcept { return problems_; }
  void keep() noexcept { swaps_.keep(); }

 private:
  void put(const ModuleEntry& entry, const ModuleForm& row) {
    try {
      const ModulePtr before = model_.get_submodule(entry.path);
      const ModulePtr after =
          restore_form(row, before, SavedForm(state_, entry.path + ".", entry.settings));
      after->train(before->is_training());
      swaps_.put(entry.path, after);
    } catch (const Error& error) {
      note_problem(entry.path, row.name, error);
    }
  }

  // Float modules with parameters that only the saved ones have: see layer rows in nn/forms.cpp.
  void add_missing_parameters() {
    const nn::ModuleForms& forms = nn::module_forms();
    std::vector<std::pair<std::string, ModulePtr>> changed;
    for (const Module::NamedModule& entry : model_.named_modules()) {
      const ModuleForm* row = forms.find(*entry.module);
      if (entry.path.empty() || row == nullptr || row->form != Form::Float || !row->restore) {
        continue;
      }
      const SavedForm saved(state_, entry.path + ".", {});
      if (ModulePtr module = row->restore(*entry.module, saved)) {
        changed.emplace_back(entry.path, std::move(module));
      }
    }
    for (const auto& [path, module] : changed) swaps_.put(path, module);
  }

  void note_problem(const std::string& path, std::string_view what, const Error& error) {
    problems_ += fmt::format("\n  '{}' ({}): {}", path, what, error.what());
  }

  Module& model_;
  StateDict& state_;
  Swaps swaps_;
  std::string problems_;
};

void restore(Module& model, const std::filesystem::path& path, const QConfigMapping& qconfigs,
             FileAccess access) {
  SafetensorsFile file = load_safetensors(path, access);
  const ModelDescription description = parse_metadata(file, path.string());
  check_graphs(model, description.graphs, path.string());
  StateDict state = std::move(file.tensors);
  // Codes that were read for this model alone are its own: they are not copied again.
  std::optional<detail::Handover> handover;
  if (access == FileAccess::Copy) handover.emplace(state);
  const detail::SavedForms::Scope forms(take_packed_weights(state, file.metadata, path.string()));
  QConfigScope scope(model);
  Builder builder(model, state);
  builder.build_float(description.modules);
  if (description.is_prepared()) propagate_qconfig_(model, qconfigs);
  builder.build_rest(description.modules);
  builder.observe(description.observers);
  QUANTA_CHECK(builder.problems().empty(),
               "load_model: model: expected the architecture saved in {}, got:{}", path.string(),
               builder.problems());
  RestoredCalls calls;
  calls.put(model, description.calls, state, path.string());
  model.load_state_dict(state);
  calls.keep();
  builder.keep();
  scope.keep();
}

}  // namespace

void save_model(const Module& model, const std::filesystem::path& path,
                const SaveOptions& options) {
  const nn::ModuleForms& forms = nn::module_forms();
  StateDict state = model.state_dict();
  Json::Object modules;
  Json::Object observers;
  Json::Object graphs;
  Json::Array identities;
  std::string whole;     // the path of a module that comes back with all below it, and a dot
  std::string observed;  // the same of one whose parts have forms of their own
  for (const Module::NamedModule& entry : model.named_modules()) {
    const Module& module = *entry.module;
    if (module.activation_post_process() != nullptr) {
      observers.emplace_back(entry.path, Json(module.activation_post_process()->name()));
    }
    if (const auto* net = dynamic_cast<const graph::Model*>(&module)) {
      graphs.emplace_back(entry.path, Json(graph::fingerprint(net->graph())));
    }
    if (entry.path.empty() || (!whole.empty() && entry.path.starts_with(whole))) continue;
    const ModuleForm* row = forms.find(module);
    QUANTA_SUPPORTED(row != nullptr || !needs_row(module),
                     "save_model: model: expected modules of the table of module forms "
                     "(register_module_form adds a class), got {} '{}'",
                     module.type_name(), entry.path);
    const bool is_own_part = !observed.empty() && entry.path.starts_with(observed);
    if (typeid(module) == typeid(nn::Identity) && !is_own_part) identities.emplace_back(entry.path);
    if (row == nullptr || row->form == Form::Float) continue;
    (row->form == Form::Observed ? observed : whole) = entry.path + ".";
    modules.emplace_back(entry.path, describe(module, *row, entry.path, state));
  }
  if (!identities.empty()) modules.emplace_back("", Json(std::move(identities)));
  std::map<std::string, std::string> metadata{
      {kFormatKey, "1"}, {kModulesKey, detail::to_json_text(Json(std::move(modules)))}};
  if (!observers.empty()) {
    metadata[kObserversKey] = detail::to_json_text(Json(std::move(observers)));
  }
  if (!graphs.empty()) metadata[kGraphsKey] = detail::to_json_text(Json(std::move(graphs)));
  if (const Json calls = describe_calls(model); !calls.as_object()->empty()) {
    metadata[kCallsKey] = detail::to_json_text(calls);
  }
  if (options.packed == SavePacked::Yes) add_packed_weights(state, metadata);
  write_safetensors(state, path, metadata);
}

void load_model(Module& model, const std::filesystem::path& path, const QConfigMapping& qconfigs,
                const LoadModelOptions& options) {
  detail::reading("load_model: " + path.string(),
                  [&] { restore(model, path, qconfigs, options.access); });
}

}  // namespace quanta
