#include <set>
#include <string>
#include <utility>
#include <vector>

#include "dynamic_pipeline.h"
#include "network.h"
#include "quanta/fusion/convert.h"
#include "quanta/fusion/fuse_modules.h"
#include "quanta/fusion/prepare.h"
#include "quanta/fusion/quantize_dynamic.h"
#include "quanta/nn/misc.h"
#include "quanta/nn/quantized/stubs.h"
#include "quanta/observers/qconfig.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/pt_file.h"
#include "registry.h"

namespace quanta::conform {
namespace {

std::vector<std::vector<std::string>> groups_to_fuse(const Case& test) {
  if (!test.has_attr("fuse")) return {};
  return test.attr("fuse").get<std::vector<std::vector<std::string>>>();
}

Network fused(const Network& net, const Case& test) {
  Network copy = nn::deep_copy(net);
  fuse_modules(copy, groups_to_fuse(test));
  return copy;
}

/// Type, parameters and range of every observer, by the path of the observed module.
Object observers_of(const Network& prepared) {
  Object result;
  for (const auto& [path, observer] : get_observer_dict(prepared)) {
    const ObservedQParams qparams = observer->calculate_qparams();
    StateDict state;
    observer->save_state(state, "");
    Object entry;
    entry.set("type", observer->name());
    entry.set("scale", qparams.scale);
    entry.set("zero_point", qparams.zero_point);
    for (const char* name : {"min_val", "max_val"}) {
      const Tensor* tensor = state.find(name);
      if (tensor != nullptr) entry.set(name, *tensor);
    }
    result.set(path, std::move(entry));
  }
  return result;
}

/// The class's name as in torch's modules: printed trees put "Quantized" in front.
std::string class_name(const nn::Module& module) {
  constexpr std::string_view kPrefix = "Quantized";
  const std::string name = module.type_name();
  return name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
}

/// What a converted model holds: modules with output parameters of their own, and their weights.
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

/// Runs a converted network and notes the quantized results on the way.
class Recorder {
 public:
  explicit Recorder(Network& converted) : net_(&converted) {
    for (const auto& [path, module] : converted.named_modules()) {
      if (auto* block = dynamic_cast<Block*>(module)) {
        block->set_watcher([this, prefix = path + "."](const std::string& name, const Tensor& y) {
          note(prefix + name, y);
        });
      }
      watch(path, *module);
    }
  }

  /// The tensor that entered the last DeQuantStub, or the result if there is none.
  Tensor operator()(const Tensor& x) {
    const Tensor y = (*net_)(x);
    return into_dequant_.defined() ? into_dequant_ : y;
  }
  Object take_activations() { return std::move(activations_); }

 private:
  void watch(const std::string& path, nn::Module& module) {
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
  void note(const std::string& path, const Tensor& y) {
    // What a module keeps may be reused or written by those after it.
    if (y.is_quantized()) activations_.set(path, y.clone());
  }

  Network* net_;
  Object activations_;
  Tensor into_dequant_;
};

Outputs run_static_pipeline(const Case& test) {
  Network net(test.attr("modules"));
  net.load_state_dict(state_dict_from(test.object("state_dict")));
  net.eval();
  Outputs outputs;
  outputs.set("float_y", net(test.x()));

  const Network prepared = prepare(fused(net, test), qconfig_from_name(test.text("qconfig")));
  for (const Tensor& batch : test.tensors("calibration")) prepared(batch);
  outputs.set("observers", observers_of(prepared));

  Network converted = convert(prepared);
  outputs.set("modules", quantized_modules_of(converted));
  Recorder recorder(converted);
  const Tensor y = recorder(test.x());
  outputs.set("activations", recorder.take_activations());
  outputs.set("y", y);
  return outputs;
}

Outputs run_dynamic_pipeline(const Case& test) {
  Network net(test.attr("modules"));
  net.load_state_dict(state_dict_from(test.object("state_dict")));
  net.eval();
  Outputs outputs;
  outputs.set("float_y", net(test.x()));
  const Network dynamic = quantize_dynamic(net, dynamic_spec_of(test));
  outputs.set("modules", dynamic_modules_of(dynamic));
  outputs.set("y", dynamic(test.x()));
  return outputs;
}

std::set<std::string> names_of(const StateDict& state) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : state) names.insert(name);
  return names;
}

Outputs run_pt(const Case& test) {
  const StateDict state = read_pt_state_dict(test.folder / test.text("file"));
  Network net(test.attr("modules"));
  net.eval();
  Outputs outputs;
  // A file of the float network holds exactly its names; anything else is a converted one's.
  if (names_of(state) == names_of(net.state_dict())) {
    net.load_state_dict(state);
    outputs.set("y", net(test.x()));
    return outputs;
  }
  if (test.has_attr("qconfig_spec")) {
    Network dynamic = quantize_dynamic(net, dynamic_spec_of(test));
    dynamic.load_state_dict(state);
    outputs.set("y", dynamic(test.x()));
    return outputs;
  }
  ConvertOptions options;
  options.uncalibrated = Uncalibrated::Allow;
  Network converted =
      convert(prepare(fused(net, test), qconfig_from_name(test.text("qconfig"))), options);
  converted.load_state_dict(state);
  outputs.set("y", Recorder(converted)(test.x()));
  return outputs;
}

const Registration kOps{
    {"static_pipeline", run_static_pipeline},
    {"dynamic_pipeline", run_dynamic_pipeline},
    {"run_pt", run_pt},
};

}  // namespace
}  // namespace quanta::conform
