// Modules that train with fake quantization, and the workflow around them.

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compare.h"
#include "network.h"
#include "pipeline.h"
#include "quanta/fusion/convert.h"
#include "quanta/fusion/fuse_modules.h"
#include "quanta/fusion/mapping.h"
#include "quanta/fusion/prepare.h"
#include "quanta/nn/activation.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/intrinsic/fused.h"
#include "quanta/nn/optim/optimizer.h"
#include "quanta/nn/qat/batch_norm.h"
#include "quanta/nn/qat/module.h"
#include "quanta/observers/fake_quantize.h"
#include "quanta/observers/qconfig.h"
#include "quanta/ops/loss.h"
#include "quanta/runtime/error.h"
#include "registry.h"

namespace quanta::conform {
namespace {

namespace ni = nn::intrinsic;
using ModulePtr = std::shared_ptr<nn::Module>;

/// The default qat QConfig of a backend, or any QConfig by its name.
QConfig qat_qconfig(const std::string& name) {
  const bool backend = name == "fbgemm" || name == "x86" || name == "qnnpack" || name == "onednn";
  return backend ? get_default_qat_qconfig(name) : qconfig_from_name(name);
}

// One module --------------------------------------------------------------------------------------

/// The float module that a qat one stands for, from its torch arguments.
using FloatForm = ModulePtr (*)(const std::string& layer, const Json& args);

ModulePtr alone(const std::string& layer, const Json& args) { return make_module(layer, args); }

template <typename Fused>
ModulePtr with_relu(const std::string& layer, const Json& args) {
  return nn::make_module<Fused>(make_module(layer, args), nn::make_module<nn::ReLU>());
}

/// The arguments of the batch norm, taken out of those of its layer.
Json take_batch_norm_args(Json& args) {
  Json result = Json::object();
  result["num_features"] =
      args.contains("out_channels") ? args["out_channels"] : args["out_features"];
  for (const char* name : {"eps", "momentum"}) {
    if (args.contains(name)) result[name] = args[name];
    args.erase(name);
  }
  return result;
}

template <typename Fused>
ModulePtr with_batch_norm(const std::string& layer, const Json& args) {
  Json layer_args = args;
  // torch's classes of this kind have no bias unless told.
  if (layer != "Linear" && !args.contains("bias")) layer_args["bias"] = false;
  const Json norm_args = take_batch_norm_args(layer_args);
  const std::string rank = layer == "Linear" ? "1d" : layer.substr(layer.size() - 2);
  const ModulePtr first = make_module(layer, layer_args);
  const ModulePtr norm = make_module("BatchNorm" + rank, norm_args);
  if constexpr (std::is_constructible_v<Fused, ModulePtr, ModulePtr, ModulePtr>) {
    return nn::make_module<Fused>(first, norm, nn::make_module<nn::ReLU>());
  } else {
    return nn::make_module<Fused>(first, norm);
  }
}

struct QatClass {
  std::string layer;
  FloatForm make;
};

const std::map<std::string, QatClass, std::less<>>& qat_classes() {
  static const std::map<std::string, QatClass, std::less<>> classes = {
      {"qat.Linear", {"Linear", alone}},
      {"qat.Conv1d", {"Conv1d", alone}},
      {"qat.Conv2d", {"Conv2d", alone}},
      {"qat.Conv3d", {"Conv3d", alone}},
      {"qat.Embedding", {"Embedding", alone}},
      {"qat.EmbeddingBag", {"EmbeddingBag", alone}},
      {"intrinsic.qat.LinearReLU", {"Linear", with_relu<ni::LinearReLU>}},
      {"intrinsic.qat.ConvReLU1d", {"Conv1d", with_relu<ni::ConvReLU1d>}},
      {"intrinsic.qat.ConvReLU2d", {"Conv2d", with_relu<ni::ConvReLU2d>}},
      {"intrinsic.qat.ConvReLU3d", {"Conv3d", with_relu<ni::ConvReLU3d>}},
      {"intrinsic.qat.LinearBn1d", {"Linear", with_batch_norm<ni::LinearBn1d>}},
      {"intrinsic.qat.ConvBn1d", {"Conv1d", with_batch_norm<ni::ConvBn1d>}},
      {"intrinsic.qat.ConvBn2d", {"Conv2d", with_batch_norm<ni::ConvBn2d>}},
      {"intrinsic.qat.ConvBn3d", {"Conv3d", with_batch_norm<ni::ConvBn3d>}},
      {"intrinsic.qat.ConvBnReLU1d", {"Conv1d", with_batch_norm<ni::ConvBnReLU1d>}},
      {"intrinsic.qat.ConvBnReLU2d", {"Conv2d", with_batch_norm<ni::ConvBnReLU2d>}},
      {"intrinsic.qat.ConvBnReLU3d", {"Conv3d", with_batch_norm<ni::ConvBnReLU3d>}},
  };
  return classes;
}

ModulePtr make_qat_module(const Case& test) {
  const std::string name = test.text("class");
  const auto found = qat_classes().find(name);
  if (found == qat_classes().end())
    throw UnsupportedError("qat_module: no class " + name + " here");
  const ModulePtr source = found->second.make(found->second.layer, test.attr("args"));
  source->set_qconfig(qat_qconfig(test.text("qconfig")));
  return swap_module(source, default_qat_module_mappings());
}

FakeQuantizeBase& weight_fake_quant(const nn::Module& module) {
  const auto& qat = dynamic_cast<const nn::qat::QatModule&>(module);
  return dynamic_cast<FakeQuantizeBase&>(*qat.weight_fake_quant());
}

/// Running statistics, and what the fake quantizer of the weight noted and chose: nothing while it
/// is switched off.
Object tracked_state(const nn::Module& module) {
  std::vector<std::string_view> tails = {
      "bn.running_mean", "bn.running_var", "bn.num_batches_tracked",
      "activation_post_process.min_val", "activation_post_process.max_val"};
  if (weight_fake_quant(module).is_fake_quant_enabled()) {
    tails.insert(tails.end(), {"weight_fake_quant.scale", "weight_fake_quant.zero_point"});
  }
  Object result;
  for (const auto& [name, tensor] : module.state_dict()) {
    for (const std::string_view tail : tails) {
      if (name.ends_with(tail)) result.set(name, tensor.clone());
    }
  }
  return result;
}

Tensor tensor_of(const Object& object, std::string_view name) {
  const Value* value = object.find(name);
  const Tensor* tensor = value == nullptr ? nullptr : value->get_if<Tensor>();
  if (tensor == nullptr) throw FormatError("steps: expected a tensor " + std::string(name));
  return *tensor;
}

Object run_step(nn::Module& module, const Object& step) {
  module.zero_grad();
  Tensor x = tensor_of(step, "x");
  const bool indices = !is_floating_point(x.dtype());
  if (!indices) x.set_requires_grad();
  const Tensor out = module(x);
  out.backward(tensor_of(step, "grad_out"));
  Object result;
  result.set("out", out.detach());
  if (!indices) result.set("grad_x", x.grad());
  Object grads;
  for (const auto& [name, parameter] : module.named_parameters()) {
    grads.set(name, parameter.grad());
  }
  result.set("grads", std::move(grads));
  result.set("state", tracked_state(module));
  return result;
}

Outputs run_qat_module(const Case& test) {
  const ModulePtr module = make_qat_module(test);
  module->load_state_dict(state_dict_from(test.object("state_dict")));
  module->train(test.flag("train", true));
  if (test.flag("frozen_bn", false)) freeze_bn_stats(*module);
  weight_fake_quant(*module).enable_fake_quant(test.integer("fake_quant_enabled") != 0);
  weight_fake_quant(*module).enable_observer(test.integer("observer_enabled") != 0);
  module->requires_grad_();

  List results;
  const Value* steps = test.inputs.find("steps");
  const List* items = steps == nullptr ? nullptr : steps->get_if<List>();
  if (items == nullptr) throw FormatError(test.id + ": expected a list of steps");
  for (const Value& item : *items) {
    results.emplace_back(run_step(*module, *item.get_if<Object>()));
  }
  Outputs outputs;
  outputs.set("steps", std::move(results));
  return outputs;
}

// The workflow ------------------------------------------------------------------------------------

/// torch's get_default_qat_module_mappings(): 1-d convolutions without batch norm train in float.
ModuleMapping torch_qat_mapping() {
  ModuleMapping mapping = default_qat_module_mappings();
  return mapping.remove<nn::Conv1d>().remove<ni::ConvReLU1d>();
}

Network prepared_for_training(const Case& test) {
  Network net(test.attr("modules"));
  net.load_state_dict(state_dict_from(test.object("state_dict")));
  net.train();
  fuse_modules_qat(net, groups_to_fuse(test));
  Network prepared = prepare_qat(net, qat_qconfig(test.text("qconfig")), torch_qat_mapping());
  prepared.requires_grad_();
  return prepared;
}

optim::SGD make_optimizer(const Case& test, const Network& net) {
  const Json& settings = test.attr("optimizer");
  if (settings.at("class") != "SGD" || test.text("loss") != "CrossEntropyLoss") {
    throw UnsupportedError("qat_pipeline: expected SGD and CrossEntropyLoss");
  }
  return optim::SGD(net.parameters(), {.lr = settings.at("lr").get<double>(),
                                       .momentum = settings.at("momentum").get<double>(),
                                       .weight_decay = settings.at("weight_decay").get<double>()});
}

/// The loss of every batch, each before its step.
Tensor train(const Case& test, Network& net) {
  optim::SGD optimizer = make_optimizer(test, net);
  const std::vector<Tensor> batches = test.tensors("batches");
  const std::vector<Tensor> targets = test.tensors("targets");
  std::vector<float> losses;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    optimizer.zero_grad();
    const Tensor loss = cross_entropy(net(batches[i]), targets.at(i));
    loss.backward();
    optimizer.step();
    losses.push_back(static_cast<float>(loss.item()));
  }
  return Tensor::from_values(losses, {static_cast<std::int64_t>(losses.size())});
}

Object state_of(const Network& net) {
  Object result;
  for (const auto& [name, tensor] : net.state_dict()) result.set(name, tensor);
  return result;
}

/// Fake quantizers of activations, and the observers inside, which are modules of their own in
/// torch.
Object fake_quantizers_of(const Network& prepared) {
  Object result;
  for (const Network::NamedModule& entry : prepared.named_modules()) {
    const auto& observer = entry.module->activation_post_process();
    if (observer == nullptr) continue;
    result.set(entry.path, observer_entry(*observer));
    const auto* fake = dynamic_cast<const FakeQuantizeBase*>(observer.get());
    if (fake == nullptr || fake->observer() == nullptr) continue;
    result.set(entry.path + ".activation_post_process", observer_entry(*fake->observer()));
  }
  return result;
}

void convert_and_run(const Case& test, Network& net, Outputs& outputs) {
  net.eval();
  Network converted = convert(net);
  outputs.set("modules", quantized_modules_of(converted));
  outputs.set("y", Recorder(converted)(test.x()));
}

/// Conversion apart from training: from the recorded state the recorded network has to come.
void require_conversion(const Case& test) {
  Network net = prepared_for_training(test);
  const Object& expected = *test.expected.get_if<Object>();
  net.load_state_dict(state_dict_from(*expected.find("state_dict")->get_if<Object>()));
  Outputs outputs;
  convert_and_run(test, net, outputs);
  Object converted;
  for (const char* name : {"modules", "y"}) converted.set(name, *expected.find(name));
  const Comparison comparison =
      compare(outputs, converted, test.tolerance, rules_for(test.op, test.tolerance));
  if (!comparison.passed) {
    throw ArgumentError("qat_pipeline: converted from the recorded state: " + comparison.mismatch);
  }
}

Outputs run_qat_pipeline(const Case& test) {
  require_conversion(test);
  Network net = prepared_for_training(test);
  Outputs outputs;
  outputs.set("losses", train(test, net));
  outputs.set("state_dict", state_of(net));
  outputs.set("observers", fake_quantizers_of(net));
  convert_and_run(test, net, outputs);
  return outputs;
}

const Registration kOps{
    {"qat_module", run_qat_module},
    {"qat_pipeline", run_qat_pipeline},
};

}  // namespace
}  // namespace quanta::conform
