#include "quanta/fusion/detail/saved_calls.h"

#include <optional>
#include <utility>

#include "quanta/nn/detail/child_path.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

using detail::Json;
using nn::ForwardCalls;
using nn::Module;

constexpr const char* kObserved = "observed";

// The path of the module that is called by this name; "" where it is not below the model.
std::string path_of_called(const Module& model, const std::string& name) {
  for (const Module::NamedModule& entry : model.named_modules()) {
    if (entry.module->float_call_name() == name) return entry.path;
  }
  return {};
}

Json describe(const Module& model, const ForwardCalls& calls) {
  Json::Array list;
  for (const ForwardCalls::Call& call : calls.calls()) {
    Json::Array results;
    for (const ForwardCalls::Result& result : call.results) {
      results.emplace_back(result.observer != nullptr ? std::string(kObserved)
                           : result.scale > 0.0       ? torch_name(result.dtype)
                                                      : std::string());
    }
    Json::Object entry;
    entry.emplace_back("name", Json(call.name));
    if (call.is_module) entry.emplace_back("module", Json(path_of_called(model, call.name)));
    if (call.saw_infinite) entry.emplace_back("infinite", Json(true));
    entry.emplace_back("results", Json(std::move(results)));
    list.emplace_back(std::move(entry));
  }
  Json::Object object;
  if (calls.is_observing()) object.emplace_back(kObserved, Json(true));
  const bool is_complete = calls.new_calls() == ForwardCalls::NewCalls::Ignore;
  if (calls.is_observing() && is_complete) object.emplace_back("complete", Json(true));
  object.emplace_back("calls", Json(std::move(list)));
  return Json(std::move(object));
}

bool is_true(const Json& object, std::string_view name) {
  const Json* value = object.find(name);
  return value != nullptr && value->as_bool() != nullptr && *value->as_bool();
}

class Parser {
 public:
  Parser(const std::string& where, const std::string& path) : where_(where), path_(path) {}

  [[noreturn]] void refuse(std::string_view text) const {
    throw FileError(fmt::format("load_model: {}: quanta.calls: '{}': {}", where_, path_, text));
  }

  const Json::Object& object(const Json& value) const {
    if (value.as_object() == nullptr) refuse("expected an object");
    return *value.as_object();
  }

  const Json::Array& array(const Json& object, std::string_view name) const {
    const Json* value = object.find(name);
    if (value == nullptr || value->as_array() == nullptr) {
      refuse(fmt::format("expected an array '{}'", name));
    }
    return *value->as_array();
  }

  const std::string& string(const Json* value) const {
    if (value == nullptr || value->as_string() == nullptr) refuse("expected a string");
    return *value->as_string();
  }

  /// `activation` makes observers; empty when the module has no QConfig.
  ForwardCalls::Call call(const Json& value, const ObserverFactory& activation) const {
    ForwardCalls::Call call{.name = string(value.find("name"))};
    call.is_module = value.find("module") != nullptr;
    call.saw_infinite = is_true(value, "infinite");
    for (const Json& result : array(value, "results")) {
      call.results.push_back(this->result(string(&result), activation));
    }
    return call;
  }

 private:
  ForwardCalls::Result result(const std::string& kind, const ObserverFactory& activation) const {
    ForwardCalls::Result result;
    if (kind.empty()) return result;
    if (kind == kObserved) {
      QUANTA_CHECK(activation,
                   "load_model: model: expected a QConfig for '{}' (give load_model those that the "
                   "saved model was prepared with), got none",
                   path_);
      result.observer = activation();
      return result;
    }
    const std::optional<DType> dtype = dtype_from_torch_name(kind);
    if (!dtype || !is_quantized(*dtype)) {
      refuse(fmt::format("expected a dtype of codes, got '{}'", kind));
    }
    result.dtype = *dtype;
    result.scale = 1.0;  // the state has the right one
    return result;
  }

  const std::string& where_;
  const std::string& path_;
};

}  // namespace

Json describe_calls(const Module& model) {
  Json::Object result;
  for (const Module::NamedModule& entry : model.named_modules()) {
    const std::shared_ptr<ForwardCalls>& calls = entry.module->forward_calls();
    if (calls != nullptr && (calls->is_observing() || !calls->calls().empty())) {
      result.emplace_back(entry.path, describe(model, *calls));
    }
  }
  return Json(std::move(result));
}

RestoredCalls::~RestoredCalls() {
  for (auto before = before_.rbegin(); before != before_.rend(); ++before) {
    before->module->set_forward_calls(before->calls);
    before->module->set_float_call_name(before->float_call_name);
  }
}

void RestoredCalls::note(Module& module) {
  before_.push_back({&module, module.forward_calls(), module.float_call_name()});
}

namespace {

// Loading lets scales be missing, as they are in files of PyTorch; in one of save_model they are not.
void require_scales(const Parser& parser, const std::vector<ForwardCalls::Call>& list,
                    const StateDict& state, const std::string& path) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::vector<ForwardCalls::Result>& results = list[i].results;
    for (std::size_t j = 0; j < results.size(); ++j) {
      if (results[j].scale <= 0.0) continue;
      const std::string name =
          nn::detail::child_path(path, ForwardCalls::name_of(i, j, results.size())) + ".scale";
      if (state.find(name) == nullptr) parser.refuse(fmt::format("the state has no '{}'", name));
    }
  }
}

}  // namespace

void RestoredCalls::put(Module& model, const Json& calls, const StateDict& state,
                        const std::string& where) {
  const std::string top;
  for (const auto& [path, value] : Parser(where, top).object(calls)) {
    const Parser parser(where, path);
    Module& module = path.empty() ? model : *model.get_submodule(path);
    const Json::Object& entry = parser.object(value);
    const bool is_observing = is_true(entry, kObserved);
    const auto new_calls =
        is_true(entry, "complete") ? ForwardCalls::NewCalls::Ignore : ForwardCalls::NewCalls::Note;
    const QConfig* qconfig = module.qconfig();
    const ObserverFactory activation = qconfig == nullptr ? ObserverFactory{} : qconfig->activation;
    QUANTA_CHECK(!is_observing || activation,
                 "load_model: model: expected a QConfig for '{}' (give load_model those that the "
                 "saved model was prepared with), got none",
                 path);
    std::vector<ForwardCalls::Call> list;
    for (const Json& item : parser.array(value, "calls")) {
      list.push_back(parser.call(item, activation));
      if (!list.back().is_module) continue;
      const std::string& called_path = parser.string(item.find("module"));
      if (called_path.empty()) continue;  // it stood outside of what was saved
      const std::shared_ptr<Module> called = model.get_submodule(called_path);
      note(*called);
      called->set_float_call_name(list.back().name);
    }
    require_scales(parser, list, state, path);
    note(module);
    module.set_forward_calls(
        is_observing ? std::make_shared<ForwardCalls>(activation, std::move(list), new_calls)
                     : std::make_shared<ForwardCalls>(std::move(list)));
  }
}

}  // namespace quanta
