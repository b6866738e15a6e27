#include "quanta/nn/quantized/qfunctional.h"

#include <typeinfo>
#include <vector>

#include "quanta/nn/detail/from_float.h"
#include "quanta/nn/detail/layer_options.h"
#include "quanta/nn/detail/quantized_state.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/arithmetic_quantized.h"

namespace quanta::nn::quantized {

namespace ops = quanta::quantized;

QFunctional::QFunctional(double output_scale, std::int64_t output_zero_point)
    : scale(output_scale), zero_point(output_zero_point) {
  detail::check_qparams("QFunctional", output_scale, output_zero_point);
}

std::shared_ptr<Module> QFunctional::from_float(const Module& module) {
  constexpr std::string_view kOp = "QFunctional.from_float";
  QUANTA_CHECK(typeid(module) == typeid(FloatFunctional),
               "{}: module: expected FloatFunctional, got {}", kOp, module.type_name());
  const detail::OutputParams output = detail::output_params(kOp, module);
  return make_module<QFunctional>(output.scale, output.zero_point);
}

Tensor QFunctional::add(const Tensor& lhs, const Tensor& rhs) const {
  const nn::detail::PathScope scope(this);
  return observed(ops::add(lhs.as_quantized("quantized::add", "lhs"),
                           rhs.as_quantized("quantized::add", "rhs"), scale, zero_point));
}

Tensor QFunctional::mul(const Tensor& lhs, const Tensor& rhs) const {
  const nn::detail::PathScope scope(this);
  return observed(ops::mul(lhs.as_quantized("quantized::mul", "lhs"),
                           rhs.as_quantized("quantized::mul", "rhs"), scale, zero_point));
}

Tensor QFunctional::cat(std::span<const Tensor> tensors, std::int64_t dim) const {
  const nn::detail::PathScope scope(this);
  std::vector<QTensor> quantized;
  quantized.reserve(tensors.size());
  for (const Tensor& tensor : tensors) {
    quantized.push_back(tensor.as_quantized("quantized::cat", "tensors"));
  }
  return observed(ops::cat(quantized, dim, scale, zero_point));
}

Tensor QFunctional::add_relu(const Tensor& lhs, const Tensor& rhs) const {
  const nn::detail::PathScope scope(this);
  return observed(ops::add_relu(lhs.as_quantized("quantized::add_relu", "lhs"),
                                rhs.as_quantized("quantized::add_relu", "rhs"), scale, zero_point));
}

Tensor QFunctional::matmul(const Tensor& lhs, const Tensor& rhs) const {
  const nn::detail::PathScope scope(this);
  return observed(ops::matmul(lhs.as_quantized("quantized::matmul", "lhs"),
                              rhs.as_quantized("quantized::matmul", "rhs"), scale, zero_point));
}

Tensor QFunctional::sub(const Tensor& lhs, const Tensor& rhs) const {
  const nn::detail::PathScope scope(this);
  return observed(ops::sub(lhs.as_quantized("quantized::sub", "lhs"),
                           rhs.as_quantized("quantized::sub", "rhs"), scale, zero_point));
}

Tensor QFunctional::div(const Tensor& lhs, const Tensor& rhs) const {
  const nn::detail::PathScope scope(this);
  return observed(ops::div(lhs.as_quantized("quantized::div", "lhs"),
                           rhs.as_quantized("quantized::div", "rhs"), scale, zero_point));
}

Tensor QFunctional::minimum(const Tensor& lhs, const Tensor& rhs) const {
  const nn::detail::PathScope scope(this);
  return observed(ops::minimum(lhs.as_quantized("quantized::minimum", "lhs"),
                               rhs.as_quantized("quantized::minimum", "rhs"), scale, zero_point));
}

Tensor QFunctional::maximum(const Tensor& lhs, const Tensor& rhs) const {
  const nn::detail::PathScope scope(this);
  return observed(ops::maximum(lhs.as_quantized("quantized::maximum", "lhs"),
                               rhs.as_quantized("quantized::maximum", "rhs"), scale, zero_point));
}

Tensor QFunctional::neg(const Tensor& x) const {
  const nn::detail::PathScope scope(this);
  return observed(ops::neg(x.as_quantized("quantized::neg", "x"), scale, zero_point));
}

Tensor QFunctional::mean(const Tensor& x, const Dims& dims, const ReduceOptions& options) const {
  const nn::detail::PathScope scope(this);
  return observed(
      ops::mean(x.as_quantized("quantized::mean", "x"), dims, scale, zero_point, options));
}

Tensor QFunctional::softmax(const Tensor& x, std::int64_t dim) const {
  const nn::detail::PathScope scope(this);
  return observed(ops::softmax(x.as_quantized("quantized::softmax", "x"), dim, scale, zero_point));
}

Tensor QFunctional::add_scalar(const Tensor& x, double value) const {
  const nn::detail::PathScope scope(this);
  return ops::add_scalar(x.as_quantized("quantized::add_scalar", "x"), value);
}

Tensor QFunctional::mul_scalar(const Tensor& x, double value) const {
  const nn::detail::PathScope scope(this);
  return ops::mul_scalar(x.as_quantized("quantized::mul_scalar", "x"), value);
}

std::string QFunctional::extra_repr() const {
  return fmt::format("scale={}, zero_point={}", detail::python_float(scale), zero_point);
}

void QFunctional::save_state(StateDict& state, const std::string& prefix) const {
  detail::save_qparams(state, prefix, scale, zero_point);
}

void QFunctional::load_state(StateReader& reader) {
  detail::load_qparams(reader, scale, zero_point);
}

}  // namespace quanta::nn::quantized
