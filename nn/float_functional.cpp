#include "quanta/nn/float_functional.h"

#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/elementwise.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/module_path.h"
#include "quanta/runtime/warning.h"

namespace quanta::nn {

Tensor FloatFunctional::observed(const Tensor& result) const {
  const std::shared_ptr<Observer>& observer = activation_post_process();
  if (observer == nullptr) return result;
  const std::uint64_t caller = detail::number_of_caller();
  if (last_caller_.number.exchange(caller, std::memory_order_relaxed) == caller) {
    warn(
        fmt::format("FloatFunctional '{}' is called twice in one forward: both results would get "
                    "one scale, that of "
                    "the wider one (register a FloatFunctional for each place in forward)",
                    current_module_path()));
  }
  return observer->forward(result);
}

Tensor FloatFunctional::add(const Tensor& lhs, const Tensor& rhs) const {
  const detail::PathScope scope(this);
  return observed(quanta::add(lhs, rhs));
}

Tensor FloatFunctional::mul(const Tensor& lhs, const Tensor& rhs) const {
  const detail::PathScope scope(this);
  return observed(quanta::mul(lhs, rhs));
}

Tensor FloatFunctional::cat(std::span<const Tensor> tensors, std::int64_t dim) const {
  const detail::PathScope scope(this);
  return observed(quanta::cat(tensors, dim));
}

Tensor FloatFunctional::add_relu(const Tensor& lhs, const Tensor& rhs) const {
  const detail::PathScope scope(this);
  return observed(quanta::add_relu(lhs, rhs));
}

Tensor FloatFunctional::matmul(const Tensor& lhs, const Tensor& rhs) const {
  const detail::PathScope scope(this);
  return observed(quanta::matmul(lhs, rhs));
}

Tensor FloatFunctional::sub(const Tensor& lhs, const Tensor& rhs) const {
  const detail::PathScope scope(this);
  return observed(quanta::sub(lhs, rhs));
}

Tensor FloatFunctional::div(const Tensor& lhs, const Tensor& rhs) const {
  const detail::PathScope scope(this);
  return observed(quanta::div(lhs, rhs));
}

Tensor FloatFunctional::minimum(const Tensor& lhs, const Tensor& rhs) const {
  const detail::PathScope scope(this);
  return observed(quanta::minimum(lhs, rhs));
}

Tensor FloatFunctional::maximum(const Tensor& lhs, const Tensor& rhs) const {
  const detail::PathScope scope(this);
  return observed(quanta::maximum(lhs, rhs));
}

Tensor FloatFunctional::neg(const Tensor& x) const {
  const detail::PathScope scope(this);
  return observed(quanta::neg(x));
}

Tensor FloatFunctional::mean(const Tensor& x, const Dims& dims,
                             const ReduceOptions& options) const {
  const detail::PathScope scope(this);
  return observed(quanta::mean(x, dims, options));
}

Tensor FloatFunctional::softmax(const Tensor& x, std::int64_t dim) const {
  const detail::PathScope scope(this);
  return observed(quanta::softmax(x, dim));
}

Tensor FloatFunctional::add_scalar(const Tensor& x, double value) const {
  const detail::PathScope scope(this);
  return quanta::add_scalar(x, value);
}

Tensor FloatFunctional::mul_scalar(const Tensor& x, double value) const {
  const detail::PathScope scope(this);
  return quanta::mul_scalar(x, value);
}

Tensor FloatFunctional::forward(const Tensor&) const {
  throw UnsupportedError(with_module_path(
      "FloatFunctional: forward: expected add, mul, cat or another operation, not a call"));
}

Tensor FXFloatFunctional::add(const Tensor& lhs, const Tensor& rhs) const {
  return quanta::add(lhs, rhs);
}
Tensor FXFloatFunctional::mul(const Tensor& lhs, const Tensor& rhs) const {
  return quanta::mul(lhs, rhs);
}
Tensor FXFloatFunctional::cat(std::span<const Tensor> tensors, std::int64_t dim) const {
  return quanta::cat(tensors, dim);
}
Tensor FXFloatFunctional::add_relu(const Tensor& lhs, const Tensor& rhs) const {
  return quanta::add_relu(lhs, rhs);
}
Tensor FXFloatFunctional::matmul(const Tensor& lhs, const Tensor& rhs) const {
  return quanta::matmul(lhs, rhs);
}
Tensor FXFloatFunctional::add_scalar(const Tensor& x, double value) const {
  return quanta::add_scalar(x, value);
}
Tensor FXFloatFunctional::mul_scalar(const Tensor& x, double value) const {
  return quanta::mul_scalar(x, value);
}

Tensor FXFloatFunctional::forward(const Tensor&) const {
  throw UnsupportedError(with_module_path(
      "FXFloatFunctional: forward: expected add, mul, cat or another operation, not a call"));
}

}  // namespace quanta::nn
