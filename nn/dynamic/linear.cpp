#include "quanta/nn/dynamic/linear.h"

#include <utility>

#include "quanta/nn/detail/from_float.h"
#include "quanta/nn/detail/quantized_state.h"
#include "quanta/nn/intrinsic/fused.h"
#include "quanta/nn/linear.h"

namespace quanta::nn::quantized::dynamic {

Linear::Linear(GateWeight weight) : weight_(std::move(weight)) {
  QUANTA_CHECK(weight_.defined(), "dynamic::Linear: weight: expected a packed weight, got none");
}

std::shared_ptr<Module> Linear::from_float(const Module& module) {
  constexpr std::string_view kOp = "dynamic::Linear.from_float";
  const auto& source = nn::detail::expect_module<nn::Linear>(kOp, module, "Linear");
  return make_module<Linear>(GateWeight::from_float(kOp, module, source.weight, source.bias));
}

std::shared_ptr<Module> Linear::from_reference(const reference::Linear& module) {
  return make_module<Linear>(module.get_quantized_weight(), module.bias);
}

void Linear::set_weight_bias(const Tensor& weight, const Tensor& bias) {
  GateWeight packed(weight, bias);
  packed.check_sizes("set_weight_bias: weight", weight_.weight().sizes());
  weight_ = std::move(packed);
}

std::string Linear::type_name() const { return "DynamicQuantized" + Module::type_name(); }

std::string Linear::extra_repr() const {
  const Tensor packed = weight();
  std::string text = fmt::format("in_features={}, out_features={}, dtype=torch.{}", packed.size(1),
                                 packed.size(0), torch_name(packed.dtype()));
  if (!packed.is_quantized()) return text;
  const QTensor codes = packed.as_quantized("Linear", "weight");
  return text + fmt::format(", qscheme=torch.{}", torch_name(codes.qscheme()));
}

void Linear::save_state(StateDict& state, const std::string& prefix) const {
  nn::detail::save_qparams(state, prefix, 1.0, 0);
  const nn::detail::LinearNames names;
  weight_.save(state, prefix + names.weight, prefix + names.bias);
  save_reduce_range(state, prefix + "reduce_range", reduce_range_);
}

void Linear::load_state(StateReader& reader) {
  // They are the constants 1 and 0.
  static_cast<void>(reader.find("scale"));
  static_cast<void>(reader.find("zero_point"));
  const nn::detail::LinearNames names = nn::detail::find_linear(reader);
  // Directly below the module only codes were stored; floats are those of an nn::Linear.
  const Tensor* found = reader.find(names.weight);
  if (names.weight == "weight" && found != nullptr && !found->is_quantized()) {
    reader.problem(
        fmt::format("{}: expected QInt8, got {} (load a float state into the float "
                    "model, then quantize_dynamic)",
                    reader.full_name(names.weight), found->dtype()));
    return;
  }
  weight_.load(reader, names.weight, names.bias);
  load_reduce_range(reader, "reduce_range", reduce_range_);
}

}  // namespace quanta::nn::quantized::dynamic

namespace quanta::nn::intrinsic::quantized::dynamic {

using nn::quantized::dynamic::GateWeight;

std::shared_ptr<Module> LinearReLU::from_float(const Module& module) {
  constexpr std::string_view kOp = "dynamic::LinearReLU.from_float";
  const auto& fused = nn::detail::expect_module<intrinsic::LinearReLU>(kOp, module, "LinearReLU");
  const auto& source = nn::detail::expect_module<nn::Linear>(kOp, fused[0], "Linear");
  return make_module<LinearReLU>(GateWeight::from_float(kOp, module, source.weight, source.bias));
}

std::shared_ptr<Module> LinearReLU::from_reference(const nn::reference::Linear& module) {
  return make_module<LinearReLU>(module.get_quantized_weight(), module.bias);
}

}  // namespace quanta::nn::intrinsic::quantized::dynamic
