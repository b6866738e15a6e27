#include "quanta/nn/quantized/activation.h"

#include "quanta/nn/activation.h"
#include "quanta/nn/detail/from_float.h"
#include "quanta/nn/detail/layer_options.h"
#include "quanta/nn/detail/quantized_state.h"
#include "quanta/nn/misc.h"
#include "quanta/ops/activation.h"

namespace quanta::nn::quantized {

namespace ops = quanta::quantized;

std::shared_ptr<Module> ReLU::from_float(const Module& module) {
  static_cast<void>(detail::expect_module<nn::ReLU>("ReLU.from_float", module, "ReLU"));
  return make_module<ReLU>();
}

Tensor ReLU::forward(const Tensor& x) const { return relu(x.as_quantized("quantized::relu", "x")); }

std::shared_ptr<Module> ReLU6::from_float(const Module& module) {
  static_cast<void>(detail::expect_module<nn::ReLU6>("ReLU6.from_float", module, "ReLU6"));
  return make_module<ReLU6>();
}

Tensor ReLU6::forward(const Tensor& x) const {
  return relu6(x.as_quantized("quantized::relu6", "x"));
}

std::shared_ptr<Module> Dropout::from_float(const Module& module) {
  const auto& source = detail::expect_module<nn::Dropout>("Dropout.from_float", module, "Dropout");
  return make_module<Dropout>(source.p());
}

std::string Dropout::extra_repr() const {
  return fmt::format("p={}, inplace=False", detail::python_float(p_));
}

std::shared_ptr<Module> Hardswish::from_float(const Module& module) {
  constexpr std::string_view kOp = "Hardswish.from_float";
  static_cast<void>(detail::expect_module<nn::Hardswish>(kOp, module, "Hardswish"));
  const detail::OutputParams output = detail::output_params(kOp, module);
  return make_module<Hardswish>(output.scale, output.zero_point);
}

Tensor Hardswish::forward(const Tensor& x) const {
  return ops::hardswish(x.as_quantized("quantized::hardswish", "x"), scale, zero_point);
}

std::shared_ptr<Module> LeakyReLU::from_float(const Module& module) {
  constexpr std::string_view kOp = "LeakyReLU.from_float";
  const auto& source = detail::expect_module<nn::LeakyReLU>(kOp, module, "LeakyReLU");
  const detail::OutputParams output = detail::output_params(kOp, module);
  return make_module<LeakyReLU>(output.scale, output.zero_point, source.negative_slope());
}

Tensor LeakyReLU::forward(const Tensor& x) const {
  return ops::leaky_relu(x.as_quantized("quantized::leaky_relu", "x"), negative_slope_, scale,
                         zero_point);
}

std::string LeakyReLU::extra_repr() const {
  return "negative_slope=" + detail::python_float(negative_slope_);
}

void OutputQuantizedUnsaved::load_state(StateReader& reader) {
  const bool in_file = reader.find("scale") != nullptr || reader.find("zero_point") != nullptr;
  const bool known = scale != 1.0 || zero_point != 0;
  if (in_file || !known) OutputQuantized::load_state(reader);
}

std::shared_ptr<Module> ELU::from_float(const Module& module) {
  constexpr std::string_view kOp = "ELU.from_float";
  const auto& source = detail::expect_module<nn::ELU>(kOp, module, "ELU");
  const detail::OutputParams output = detail::output_params(kOp, module);
  return make_module<ELU>(output.scale, output.zero_point, source.alpha());
}

Tensor ELU::forward(const Tensor& x) const {
  return ops::elu(x.as_quantized("quantized::elu", "x"), scale, zero_point, alpha_);
}

std::string ELU::extra_repr() const { return "alpha=" + detail::python_float(alpha_); }

std::shared_ptr<Module> Sigmoid::from_float(const Module& module) {
  constexpr std::string_view kOp = "Sigmoid.from_float";
  static_cast<void>(detail::expect_module<nn::Sigmoid>(kOp, module, "Sigmoid"));
  const detail::OutputParams output = detail::output_params(kOp, module);
  return make_module<Sigmoid>(output.scale, output.zero_point);
}

Tensor Sigmoid::forward(const Tensor& x) const {
  return ops::sigmoid(x.as_quantized("quantized::sigmoid", "x"), scale, zero_point);
}

std::shared_ptr<Module> Softmax::from_float(const Module& module) {
  constexpr std::string_view kOp = "Softmax.from_float";
  const auto& source = detail::expect_module<nn::Softmax>(kOp, module, "Softmax");
  const detail::OutputParams output = detail::output_params(kOp, module);
  return make_module<Softmax>(source.dim(), output.scale, output.zero_point);
}

Tensor Softmax::forward(const Tensor& x) const {
  return ops::softmax(x.as_quantized("quantized::softmax", "x"), dim_, scale, zero_point);
}

std::string Softmax::extra_repr() const { return fmt::format("dim={}", dim_); }

std::shared_ptr<Module> GELU::from_float(const Module& module) {
  constexpr std::string_view kOp = "GELU.from_float";
  const auto& source = detail::expect_module<nn::GELU>(kOp, module, "GELU");
  const detail::OutputParams output = detail::output_params(kOp, module);
  return make_module<GELU>(output.scale, output.zero_point, source.approximate());
}

Tensor GELU::forward(const Tensor& x) const {
  return ops::gelu(x.as_quantized("quantized::gelu", "x"), scale, zero_point, approximate_);
}

std::string GELU::extra_repr() const { return nn::GELU(approximate_).extra_repr(); }

std::shared_ptr<Module> SiLU::from_float(const Module& module) {
  constexpr std::string_view kOp = "SiLU.from_float";
  static_cast<void>(detail::expect_module<nn::SiLU>(kOp, module, "SiLU"));
  const detail::OutputParams output = detail::output_params(kOp, module);
  return make_module<SiLU>(output.scale, output.zero_point);
}

Tensor SiLU::forward(const Tensor& x) const {
  return ops::silu(x.as_quantized("quantized::silu", "x"), scale, zero_point);
}

std::shared_ptr<Module> Mish::from_float(const Module& module) {
  constexpr std::string_view kOp = "Mish.from_float";
  static_cast<void>(detail::expect_module<nn::Mish>(kOp, module, "Mish"));
  const detail::OutputParams output = detail::output_params(kOp, module);
  return make_module<Mish>(output.scale, output.zero_point);
}

Tensor Mish::forward(const Tensor& x) const {
  return ops::mish(x.as_quantized("quantized::mish", "x"), scale, zero_point);
}

std::shared_ptr<Module> CELU::from_float(const Module& module) {
  constexpr std::string_view kOp = "CELU.from_float";
  const auto& source = detail::expect_module<nn::CELU>(kOp, module, "CELU");
  const detail::OutputParams output = detail::output_params(kOp, module);
  return make_module<CELU>(output.scale, output.zero_point, source.alpha());
}

Tensor CELU::forward(const Tensor& x) const {
  return ops::celu(x.as_quantized("quantized::celu", "x"), scale, zero_point, alpha_);
}

std::string CELU::extra_repr() const { return "alpha=" + detail::python_float(alpha_); }

std::shared_ptr<Module> SELU::from_float(const Module& module) {
  constexpr std::string_view kOp = "SELU.from_float";
  static_cast<void>(detail::expect_module<nn::SELU>(kOp, module, "SELU"));
  const detail::OutputParams output = detail::output_params(kOp, module);
  return make_module<SELU>(output.scale, output.zero_point);
}

Tensor SELU::forward(const Tensor& x) const {
  return ops::selu(x.as_quantized("quantized::selu", "x"), scale, zero_point);
}

std::shared_ptr<Module> Softplus::from_float(const Module& module) {
  constexpr std::string_view kOp = "Softplus.from_float";
  const auto& source = detail::expect_module<nn::Softplus>(kOp, module, "Softplus");
  const detail::OutputParams output = detail::output_params(kOp, module);
  return make_module<Softplus>(output.scale, output.zero_point, source.beta(), source.threshold());
}

Tensor Softplus::forward(const Tensor& x) const {
  return ops::softplus(x.as_quantized("quantized::softplus", "x"), scale, zero_point, beta_,
                       threshold_);
}

std::string Softplus::extra_repr() const { return nn::Softplus(beta_, threshold_).extra_repr(); }

std::shared_ptr<Module> Softsign::from_float(const Module& module) {
  constexpr std::string_view kOp = "Softsign.from_float";
  static_cast<void>(detail::expect_module<nn::Softsign>(kOp, module, "Softsign"));
  const detail::OutputParams output = detail::output_params(kOp, module);
  return make_module<Softsign>(output.scale, output.zero_point);
}

Tensor Softsign::forward(const Tensor& x) const {
  return ops::softsign(x.as_quantized("quantized::softsign", "x"), scale, zero_point);
}

std::shared_ptr<Module> LogSigmoid::from_float(const Module& module) {
  constexpr std::string_view kOp = "LogSigmoid.from_float";
  static_cast<void>(detail::expect_module<nn::LogSigmoid>(kOp, module, "LogSigmoid"));
  const detail::OutputParams output = detail::output_params(kOp, module);
  return make_module<LogSigmoid>(output.scale, output.zero_point);
}

Tensor LogSigmoid::forward(const Tensor& x) const {
  return ops::logsigmoid(x.as_quantized("quantized::logsigmoid", "x"), scale, zero_point);
}

std::shared_ptr<Module> Tanh::from_float(const Module& module) {
  constexpr std::string_view kOp = "Tanh.from_float";
  static_cast<void>(detail::expect_module<nn::Tanh>(kOp, module, "Tanh"));
  const detail::OutputParams output = detail::output_params(kOp, module);
  return make_module<Tanh>(output.scale, output.zero_point);
}

Tensor Tanh::forward(const Tensor& x) const {
  return ops::tanh(x.as_quantized("quantized::tanh", "x"), scale, zero_point);
}

std::shared_ptr<Module> LogSoftmax::from_float(const Module& module) {
  constexpr std::string_view kOp = "LogSoftmax.from_float";
  const auto& source = detail::expect_module<nn::LogSoftmax>(kOp, module, "LogSoftmax");
  const detail::OutputParams output = detail::output_params(kOp, module);
  return make_module<LogSoftmax>(source.dim(), output.scale, output.zero_point);
}

Tensor LogSoftmax::forward(const Tensor& x) const {
  return ops::log_softmax(x.as_quantized("quantized::log_softmax", "x"), dim_, scale, zero_point);
}

std::string LogSoftmax::extra_repr() const { return fmt::format("dim={}", dim_); }

PReLU::PReLU(const QTensor& weight, double output_scale, std::int64_t output_zero_point)
    : OutputQuantizedUnsaved(output_scale, output_zero_point), weight_(weight) {
  QUANTA_CHECK(weight.defined() && weight.dtype() == DType::QUInt8 && !weight.is_per_channel() &&
                   weight.dim() == 1,
               "PReLU: weight: expected 1-d per-tensor QUInt8");
}

std::shared_ptr<Module> PReLU::from_float(const Module& module) {
  constexpr std::string_view kOp = "PReLU.from_float";
  const auto& source = detail::expect_module<nn::PReLU>(kOp, module, "PReLU");
  const detail::OutputParams output = detail::output_params(kOp, module);
  const QTensor weight = detail::quantize_weight_per_tensor(
      kOp, module, source.weight, "use default_quint8_weight_qconfig", DType::QUInt8);
  return make_module<PReLU>(weight, output.scale, output.zero_point);
}

Tensor PReLU::forward(const Tensor& x) const {
  return ops::prelu(x.as_quantized("quantized::prelu", "x"), weight_, scale, zero_point);
}

std::string PReLU::extra_repr() const {
  return fmt::format("num_parameters={}, scale={}, zero_point={}", weight_.numel(),
                     detail::python_float(scale), zero_point);
}

void PReLU::save_state(StateDict& state, const std::string& prefix) const {
  state.set(prefix + "weight", weight_);
  OutputQuantizedUnsaved::save_state(state, prefix);
}

void PReLU::load_state(StateReader& reader) {
  OutputQuantizedUnsaved::load_state(reader);
  const Tensor* loaded = reader.find("weight");
  if (loaded == nullptr) return;
  try {
    QTensor weight = loaded->as_quantized("load_state_dict", "weight");
    QUANTA_CHECK(weight.dtype() == DType::QUInt8 && !weight.is_per_channel() &&
                     weight.sizes() == weight_.sizes(),
                 "weight: expected per-tensor QUInt8 {}, got {} {}", weight_.sizes(),
                 weight.dtype(), weight.sizes());
    reader.on_commit([this, weight = std::move(weight)] { weight_ = weight; });
  } catch (const Error& error) {
    reader.problem(fmt::format("{}: {}", reader.full_name("weight"), error.what()));
  }
}

}  // namespace quanta::nn::quantized
