#include "quanta/fusion/quantize.h"

#include "quanta/fusion/detail/whole_modules.h"
#include "quanta/fusion/fuse_modules.h"
#include "quanta/nn/stubs.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

using nn::Module;

template <typename... Types>
bool is_any(const Module& module) {
  return ((dynamic_cast<const Types*>(&module) != nullptr) || ...);
}

void wrap_leaves(Module& parent) {
  for (const Module::NamedChild& child : parent.named_children()) {
    Module& module = *child.module;
    if (module.named_children().empty() || is_fused(module)) {
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

void detail::make_ready(Module& model, std::span<const Tensor> example,
                        const QuantizeOptions& options) {
  model.eval();
  if (options.fuse) {
    fuse_modules(model, find_fusion_groups_in(model, example, nn::FuseFor::Inference));
  }
  std::vector<Problem> errors = check(model);
  std::erase_if(
      errors, [](const Problem& problem) { return problem.severity != Problem::Severity::Error; });
  QUANTA_CHECK(errors.empty(), "quantize: model: expected one that can be quantized, got:\n{}",
               to_string(errors));
}

void detail::calibrate(const Module& prepared, std::span<const Tensor> data,
                       const QuantizeOptions& options) {
  QUANTA_CHECK(!data.empty(), "quantize: data: expected batches of calibration data, got none");
  const autograd::NoGradGuard no_grad;
  for (std::size_t i = 0; i < data.size(); ++i) {
    prepared(data[i]);
    if (options.progress) options.progress(i + 1, data.size());
  }
}

}  // namespace quanta
