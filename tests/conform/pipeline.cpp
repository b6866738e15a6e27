#include "pipeline.h"

#include <string_view>

#include "quanta/fusion/prepare.h"
#include "quanta/nn/misc.h"
#include "quanta/nn/quantized/stubs.h"

namespace quanta::conform {
namespace {

/// The class's name as in torch's modules: printed trees put "Quantized" in front.
std::string class_name(const nn::Module& module) {
  constexpr std::string_view kPrefix = "Quantized";
  const std::string name = module.type_name();
  return name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
}

}  // namespace

std::vector<std::vector<std::string>> groups_to_fuse(const Case& test) {
  if (!test.has_attr("fuse")) return {};
  return test.attr("fuse").get<std::vector<std::vector<std::string>>>();
}

Object observer_entry(const Observer& observer) {
  const ObservedQParams qparams = observer.calculate_qparams();
  StateDict state;
  observer.save_state(state, "");
  Object entry;
  entry.set("type", observer.name());
  entry.set("scale", qparams.scale);
  entry.set("zero_point", qparams.zero_point);
  for (const char* name : {"min_val", "max_val"}) {
    const Tensor* tensor = state.find(name);
    if (tensor != nullptr) entry.set(name, *tensor);
  }
  return entry;
}

Object observers_of(const Network& prepared) {
  Object result;
  for (const Network::NamedModule& entry : prepared.named_modules()) {
    if (const auto& observer = entry.module->activation_post_process(); observer != nullptr) {
      result.set(entry.path, observer_entry(*observer));
    }
  }
  return result;
}

Object quantized_modules_of(const Network& converted) {
  Object result;
  for (const auto& [path, module] : converted.named_modules()) {
    if (!module->named_children().empty()) continue;
    const StateDict state = module->state_dict();
    const Tensor* scale = state.find("scale");
    const Tensor* zero_point = state.find("zero_point");
    if (scale == nullptr || zero_point == nullptr) continue;
    Object entry;
    entry.set("type", class_name(*module));
    entry.set("scale", scale->item());
    entry.set("zero_point", static_cast<std::int64_t>(zero_point->item()));
    const auto copy = [&](const char* from, const char* to) {
      const Tensor* tensor = state.find(from);
      if (tensor != nullptr) entry.set(to, *tensor);
    };
    copy("weight", "weight");
    copy("bias", "bias");
    copy("_packed_params._packed_params/0", "weight");
    copy("_packed_params._packed_params/1", "bias");
    result.set(path, std::move(entry));
  }
  return result;
}

Recorder::Recorder(Network& converted) : net_(&converted) {
  for (const auto& [path, module] : converted.named_modules()) {
    if (auto* block = dynamic_cast<Block*>(module)) {
      block->set_watcher([this, prefix = path + "."](const std::string& name, const Tensor& y) {
        note(prefix + name, y);
      });
    }
    watch(path, *module);
  }
}

Tensor Recorder::operator()(const Tensor& x) {
  const Tensor y = (*net_)(x);
  return into_dequant_.defined() ? into_dequant_ : y;
}

void Recorder::watch(const std::string& path, nn::Module& module) {
  if (dynamic_cast<nn::quantized::DeQuantize*>(&module) != nullptr) {
    module.register_forward_pre_hook([this](const nn::Module&, const Tensor& x) {
      into_dequant_ = x;
      return x;
    });
    return;
  }
  // Fusing leaves an Identity in the places that it emptied.
  const bool records =
      module.named_children().empty() && dynamic_cast<nn::Identity*>(&module) == nullptr;
  if (!records) return;
  module.register_forward_hook([this, path](const nn::Module&, const Tensor&, const Tensor& y) {
    note(path, y);
    return y;
  });
}

void Recorder::note(const std::string& path, const Tensor& y) {
  // What a module keeps may be reused or written by those after it.
  if (y.is_quantized()) activations_.set(path, y.clone());
}

}  // namespace quanta::conform
