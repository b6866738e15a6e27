#include "quanta/fusion/detail/saved_calls.h"

#include <optional>
#include <utility>

#include "quanta/runtime/check.h"

namespace quanta {
namespace {

using detail::Json;
using nn::ForwardCalls;
using nn::Module;

constexpr const char* kObserved = "observed";

Json describe(const ForwardCalls& calls) {
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
    if (call.is_module) entry.emplace_back("module", Json(true));
    entry.emplace_back("results", Json(std::move(results)));
    list.emplace_back(std::move(entry));
  }
  Json::Object object;
  if (calls.is_observing()) object.emplace_back(kObserved, Json(true));
  object.emplace_back("calls", Json(std::move(list)));
  return Json(std::move(object));
}

const Json* find(const Json::Object& object, std::string_view name) {
  for (const auto& [key, value] : object) {
    if (key == name) return &value;
  }
  return nullptr;
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

  const Json::Array& array(const Json::Object& object, std::string_view name) const {
    const Json* value = find(object, name);
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
    const Json::Object& entry = object(value);
    ForwardCalls::Call call{.name = string(find(entry, "name"))};
    call.is_module = find(entry, "module") != nullptr;
    for (const Json& result : array(entry, "results")) {
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
      result.emplace_back(entry.path, describe(*calls));
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

void RestoredCalls::put(Module& model, const Json& calls, const std::string& where) {
  const std::string top;
  for (const auto& [path, value] : Parser(where, top).object(calls)) {
    const Parser parser(where, path);
    Module& module = path.empty() ? model : *model.get_submodule(path);
    const Json::Object& entry = parser.object(value);
    const bool is_observing = find(entry, kObserved) != nullptr;
    const QConfig* qconfig = module.qconfig();
    const ObserverFactory activation = qconfig == nullptr ? ObserverFactory{} : qconfig->activation;
    QUANTA_CHECK(!is_observing || activation,
                 "load_model: model: expected a QConfig for '{}' (give load_model those that the "
                 "saved model was prepared with), got none",
                 path);
    std::vector<ForwardCalls::Call> list;
    for (const Json& item : parser.array(entry, "calls")) {
      list.push_back(parser.call(item, activation));
      if (!list.back().is_module) continue;
      const std::shared_ptr<Module> called = model.get_submodule(list.back().name);
      note(*called);
      called->set_float_call_name(list.back().name);
    }
    note(module);
    module.set_forward_calls(is_observing
                                 ? std::make_shared<ForwardCalls>(activation, std::move(list))
                                 : std::make_shared<ForwardCalls>(std::move(list)));
  }
}

}  // namespace quanta
