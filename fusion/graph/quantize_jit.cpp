#include "quanta/fusion/graph/quantize_jit.h"

#include <utility>

#include "quanta/fusion/convert.h"
#include "quanta/fusion/graph/detail/parts.h"
#include "quanta/fusion/graph/passes/passes.h"
#include "quanta/fusion/prepare.h"
#include "quanta/runtime/check.h"

namespace quanta::graph {

Model fuse_conv_bn_jit(const Model& model) {
  detail::Parts parts = detail::take_apart(model);
  detail::fuse_layers(parts, true);
  detail::fold_scales(parts);
  return detail::put_together(std::move(parts));
}

Model prepare_jit(const Model& model, const QConfigMapping& qconfigs,
                  const PrepareJitOptions& options) {
  detail::Parts parts = detail::take_apart(fuse_conv_bn_jit(model));
  follow_types(parts.graph);
  detail::fuse_layers(parts, false);
  if (options.fuse_add_relu) detail::fuse_add_relu(parts);
  Model fused = detail::put_together(std::move(parts));
  // Where codes begin and end depends on which layers have a QConfig.
  propagate_qconfig_(fused, qconfigs);
  parts = detail::take_apart(fused);
  QUANTA_CHECK(
      detail::insert_stubs(parts),
      "prepare_jit: qconfigs: expected a QConfig for some layer with an int8 form, got none");
  Model prepared = detail::put_together(std::move(parts));
  prepare_(prepared, qconfigs);
  return prepared;
}

Model convert_jit(const Model& prepared, const ConvertJitOptions& options) {
  if (!options.debug) return convert(prepared);
  // What cannot be converted is refused in the same words.
  static_cast<void>(convert(prepared));
  return detail::convert_literally(prepared);
}

Model quantize_jit(const Model& model, const QConfigMapping& qconfigs, const RunFunction& run,
                   const QuantizeJitOptions& options) {
  QUANTA_CHECK(run != nullptr, "quantize_jit: run: expected a function, got none");
  const Model prepared = prepare_jit(model, qconfigs, options.prepare);
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
