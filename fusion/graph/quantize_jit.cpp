#include "quanta/fusion/graph/quantize_jit.h"

#include <optional>
#include <utility>

#include "quanta/fusion/convert.h"
#include "quanta/fusion/graph/detail/parts.h"
#include "quanta/fusion/graph/passes/passes.h"
#include "quanta/fusion/prepare.h"
#include "quanta/nn/module_forms.h"
#include "quanta/observers/defaults.h"
#include "quanta/runtime/check.h"

namespace quanta::graph {
namespace {

/// Transposed convolutions have one scale for all of their weight: where the mapping asks for one a
/// channel they get the default per-tensor observer, as torch's default mapping does.
void use_per_tensor_weights(const Model& model, const QConfigMapping& qconfigs) {
  for (const auto& [name, module] : model.named_children()) {
    if (!nn::module_forms().kind(*module).per_tensor_weight || module->has_qconfig_attribute()) {
      continue;
    }
    const auto found = qconfigs.find(*module, name);
    std::optional<QConfig> qconfig = found ? *found : qconfigs.global();
    if (!qconfig || !qconfig->weight || !is_per_channel(qconfig->weight()->qscheme())) continue;
    qconfig->weight = default_weight_observer();
    module->set_qconfig(std::move(qconfig));
  }
}

}  // namespace

Model fuse_conv_bn_jit(const Model& model) {
  detail::Parts parts = detail::take_apart(model);
  detail::fuse_layers(parts, true);
  detail::fold_linear_scales(parts);
  return detail::put_together(std::move(parts));
}

Model prepare_jit(const Model& model, const QConfigMapping& qconfigs,
                  const PrepareJitOptions& options) {
  detail::Parts parts = detail::take_apart(fuse_conv_bn_jit(model));
  follow_types(parts.graph);
  if (options.fuse_relu6) detail::split_relu6(parts);
  detail::fuse_layers(parts, false);
  if (options.fuse_add_relu) detail::fuse_add_relu(parts);
  Model fused = detail::put_together(std::move(parts));
  use_per_tensor_weights(fused, qconfigs);
  // Where codes begin and end depends on which layers have a QConfig.
  propagate_qconfig_(fused, qconfigs);
  parts = detail::take_apart(fused);
  QUANTA_CHECK(
      detail::insert_stubs(parts, options.observe_means),
      "prepare_jit: qconfigs: expected a QConfig for some layer with an int8 form, got none");
  Model prepared = detail::put_together(std::move(parts));
  // Recurrent layers stay in float here: their int8 forms are the dynamic ones.
  prepare_(prepared, qconfigs, default_static_quant_module_mappings(), CustomModuleMapping());
  return prepared;
}

Model convert_jit(const Model& prepared, const ConvertJitOptions& options) {
  if (!options.debug) {
    detail::Parts parts = detail::take_apart(convert(prepared));
    detail::absorb_relu6(parts, prepared);
    detail::absorb_means(parts);
    return detail::put_together(std::move(parts));
  }
  // What cannot be converted is refused in the same words.
  static_cast<void>(convert(prepared));
  return detail::convert_literally(prepared);
}

Model quantize_jit(const Model& model, const QConfigMapping& qconfigs, const RunFunction& run,
                   const QuantizeJitOptions& options) {
  QUANTA_CHECK(run != nullptr, "quantize_jit: run: expected a function, got none");
  const auto changed = [&] {
    const CalibrationData data(options.example, [&](const nn::Module& network) {
      run(static_cast<const Model&>(network));
    });
    return apply_methods(fuse_conv_bn_jit(model), options.methods, qconfigs, data);
  };
  const Model prepared =
      prepare_jit(options.methods.empty() ? model : changed(), qconfigs, options.prepare);
  run(prepared);
  return convert_jit(prepared, options.convert);
}

Model prepare_dynamic_jit(const Model& model, const DynamicSpec& spec) {
  // Tried, so that a layer that cannot be quantized is named before data is prepared for it.
  static_cast<void>(quantize_dynamic(model, spec));
  return nn::deep_copy(model);
}

Model convert_dynamic_jit(const Model& prepared, const DynamicSpec& spec, DType dtype) {
  return quantize_dynamic(prepared, spec, dtype);
}

Model quantize_dynamic_jit(const Model& model, const DynamicSpec& spec, DType dtype) {
  return convert_dynamic_jit(model, spec, dtype);
}

Model quantize_weight_only_jit(const Model& model, const WeightOnlyOptions& options,
                               const WeightOnlyFilter& filter) {
  return quantize_weight_only(model, options, filter);
}

}  // namespace quanta::graph
