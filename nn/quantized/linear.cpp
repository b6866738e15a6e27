#include "quanta/nn/quantized/linear.h"

#include "quanta/nn/detail/from_float.h"
#include "quanta/nn/detail/layer_options.h"
#include "quanta/nn/detail/quantized_state.h"
#include "quanta/nn/linear.h"

namespace quanta::nn::quantized {
namespace {

using quanta::quantized::LinearPackedParams;

}  // namespace

Linear::Linear(const QTensor& weight, const Tensor& bias, double output_scale,
               std::int64_t output_zero_point)
    : OutputQuantized(output_scale, output_zero_point, quant_range(DType::QUInt8)),
      packed_(weight, bias) {}

std::shared_ptr<Module> Linear::from_float(const Module& module) {
  constexpr std::string_view kOp = "Linear.from_float";
  const auto& source = detail::expect_module<nn::Linear>(kOp, module, "Linear");
  const detail::OutputParams output = detail::quint8_output_params(kOp, module);
  return make_module<Linear>(detail::quantize_weight(kOp, module, source.weight), source.bias,
                             output.scale, output.zero_point);
}

std::shared_ptr<Module> Linear::from_reference(const reference::Linear& module, double scale,
                                               std::int64_t zero_point) {
  return make_module<Linear>(module.get_quantized_weight(), module.bias, scale, zero_point);
}

void Linear::set_weight_bias(const QTensor& weight, const Tensor& bias) {
  QUANTA_CHECK(weight.sizes() == packed_.weight().sizes(),
               "set_weight_bias: weight: expected sizes {}, got {}", packed_.weight().sizes(),
               weight.sizes());
  packed_ = LinearPackedParams(weight, bias);
}

Tensor Linear::forward(const Tensor& x) const {
  return quanta::quantized::linear(x.as_quantized("quantized::linear", "x"), packed_, scale,
                                   zero_point);
}

std::string Linear::extra_repr() const {
  return fmt::format("in_features={}, out_features={}, scale={}, zero_point={}, qscheme=torch.{}",
                     weight().size(1), weight().size(0), detail::python_float(scale), zero_point,
                     torch_name(weight().qscheme()));
}

void Linear::save_state(StateDict& state, const std::string& prefix) const {
  OutputQuantized::save_state(state, prefix);
  const detail::LinearNames names;
  state.set(prefix + names.weight, packed_.weight());
  if (packed_.bias().defined()) state.set(prefix + names.bias, packed_.bias());
}

void Linear::load_state(StateReader& reader) {
  OutputQuantized::load_state(reader);
  const detail::LinearNames names = detail::find_linear(reader);
  const Tensor* new_weight = reader.require(names.weight);
  // The file decides whether there is a bias, as for convolutions.
  const Tensor* found = reader.find(names.bias);
  const Tensor new_bias = found != nullptr ? *found : Tensor();
  if (new_weight == nullptr ||
      detail::is_packed_already(*new_weight, new_bias, packed_.weight(), packed_.bias())) {
    return;
  }
  if (new_weight->sizes() != packed_.weight().sizes()) {
    reader.problem(fmt::format("{}: expected sizes {}, got {}", reader.full_name(names.weight),
                               packed_.weight().sizes(), new_weight->sizes()));
    return;
  }
  try {
    LinearPackedParams loaded(new_weight->as_quantized("load_state_dict", "weight"), new_bias);
    reader.on_commit([this, loaded = std::move(loaded)] { packed_ = loaded; });
  } catch (const Error& error) {
    reader.problem(fmt::format("{}: {}", reader.full_name(names.weight), error.what()));
  }
}

}  // namespace quanta::nn::quantized
