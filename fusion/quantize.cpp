#include "quanta/fusion/quantize.h"

#include <algorithm>

#include "quanta/fusion/mapping.h"
#include "quanta/nn/dynamic/linear.h"
#include "quanta/nn/dynamic/rnn.h"
#include "quanta/nn/dynamic/rnn_cell.h"
#include "quanta/nn/embedding.h"
#include "quanta/nn/float_functional.h"
#include "quanta/nn/intrinsic/fused.h"
#include "quanta/nn/misc.h"
#include "quanta/nn/norm.h"
#include "quanta/nn/quantized/stubs.h"
#include "quanta/nn/stubs.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

namespace qd = nn::quantized::dynamic;

using nn::Module;

template <typename... Types>
bool is_any(const Module& module) {
  return ((dynamic_cast<const Types*>(&module) != nullptr) || ...);
}

void wrap_leaves(Module& parent) {
  for (const Module::NamedChild& child : parent.named_children()) {
    Module& module = *child.module;
    if (module.named_children().empty() || is_any<nn::intrinsic::FusedModule>(module)) {
      if (module.qconfig() == nullptr || is_any<nn::QuantStub, nn::DeQuantStub>(module)) continue;
      auto wrapper = nn::make_module<nn::QuantWrapper>(child.module);
      wrapper->set_qconfig(*module.qconfig());
      wrapper->train(module.is_training());
      parent.replace_child(child.name, wrapper);
    } else {
      wrap_leaves(module);
    }
  }
}

}  // namespace

void default_eval_fn(const Module& model, std::span<const Tensor> batches) {
  for (const Tensor& batch : batches) model(batch);
}

void add_quant_dequant(Module& model) {
  QUANTA_CHECK(!model.named_children().empty(),
               "add_quant_dequant: model: expected a module with children (wrap a leaf in "
               "QuantWrapper), got {}",
               model.type_name());
  wrap_leaves(model);
}

std::vector<Problem> check(const Module& model, Device device) {
  std::vector<Problem> problems;
  if (device.type != DeviceType::CPU) {
    problems.push_back(
        {"", fmt::format("device: expected cpu (the CUDA backend is not built), got {}",
                         to_string(device))});
  }
  const auto modules = model.named_modules();
  const ModuleMapping& mapping = default_static_quant_module_mappings();
  bool has_quant = false;
  bool has_dequant = false;
  bool has_layers = false;
  bool any_qconfig = false;
  bool is_dynamic = false;
  for (const Module::NamedModule& entry : modules) {
    const Module& module = *entry.module;
    has_quant = has_quant || is_any<nn::QuantStub, nn::quantized::Quantize>(module);
    has_dequant = has_dequant || is_any<nn::DeQuantStub, nn::quantized::DeQuantize>(module);
    has_layers =
        has_layers ||
        (mapping.find(module) != nullptr &&
         !is_any<nn::QuantStub, nn::DeQuantStub, nn::Dropout, nn::Embedding, nn::EmbeddingBag>(
             module));
    any_qconfig = any_qconfig || module.qconfig() != nullptr;
    is_dynamic =
        is_dynamic ||
        is_any<qd::Linear, qd::LSTM, qd::GRU, qd::LSTMCell, qd::GRUCell, qd::RNNCell>(module);
  }
  // One from quantize_dynamic takes and gives floats: nothing is missing.
  if (is_dynamic && !any_qconfig && !has_quant && !has_dequant) return problems;
  if (has_layers && !has_quant) {
    problems.push_back({"",
                        "no QuantStub: the float input would reach quantized layers (add a "
                        "QuantStub before the first one, or wrap the model in QuantWrapper)"});
  }
  if (has_layers && !has_dequant) {
    problems.push_back({"",
                        "no DeQuantStub: the output would stay quantized (add a DeQuantStub "
                        "after the last layer, or wrap the model in QuantWrapper)"});
  }
  for (const Module::NamedModule& entry : modules) {
    const Module& module = *entry.module;
    const bool wanted = !any_qconfig || module.qconfig() != nullptr;
    if (!wanted) continue;
    const bool quantizable = mapping.find(module) != nullptr ||
                             default_custom_module_mapping().find_observed(module) != nullptr;
    if (quantizable && module.is_training()) {
      problems.push_back({entry.path, module.type_name() + " is in train mode (call eval())"});
    }
    if (is_any<nn::BatchNorm1d>(module)) {
      problems.push_back({entry.path,
                          "BatchNorm1d has no quantized form: fuse it with the Conv1d or "
                          "Linear before it (fuse_modules)"});
    } else if (!quantizable && module.named_children().empty() && !module.parameters().empty()) {
      problems.push_back({entry.path, module.type_name() +
                                          " has parameters but no quantized form: it would get "
                                          "quantized tensors (exclude it with a null QConfig and "
                                          "DeQuantStub / QuantStub around it)"});
    }
    const std::shared_ptr<Observer>& observer = module.activation_post_process();
    if (observer != nullptr && !observer->has_data()) {
      problems.push_back({entry.path, module.type_name() + ": its observer saw no data"});
    }
  }
  return problems;
}

}  // namespace quanta
