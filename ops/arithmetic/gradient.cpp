#include "quanta/ops/arithmetic/gradient.h"

#include <limits>
#include <utility>
#include <vector>

#include "quanta/ops/arithmetic.h"
#include "quanta/ops/detail/pointwise_gradient.h"
#include "quanta/runtime/autograd.h"

namespace quanta::gradients {
namespace {

using autograd::BackwardContext;
using autograd::sum_to_size;

Tensor record_add(std::string_view name, const Tensor& lhs, const Tensor& rhs, Tensor out,
                  double rhs_sign) {
  return autograd::record(
      name, {lhs, rhs}, std::move(out), {},
      [left = lhs.sizes(), right = rhs.sizes(), rhs_sign](const BackwardContext& backward) {
        std::vector<Tensor> results(2);
        if (backward.needs(0)) results[0] = sum_to_size(backward.grad(), left);
        if (backward.needs(1)) {
          const Tensor sum = sum_to_size(backward.grad(), right);
          results[1] = rhs_sign == 1.0 ? sum : mul_scalar(sum, rhs_sign);
        }
        return results;
      });
}

// The result tells where the sum was positive.
Tensor record_add_relu(const Tensor& lhs, const Tensor& rhs, Tensor out) {
  const Tensor result = out;
  return autograd::record(
      "add_relu", {lhs, rhs}, std::move(out), {result},
      [left = lhs.sizes(), right = rhs.sizes()](const BackwardContext& backward) {
        const Tensor gradient = detail::through_gate(backward.grad(), backward.saved(0), 0.0,
                                                     std::numeric_limits<double>::infinity());
        std::vector<Tensor> results(2);
        if (backward.needs(0)) results[0] = sum_to_size(gradient, left);
        if (backward.needs(1)) results[1] = sum_to_size(gradient, right);
        return results;
      });
}

Tensor record_mul(std::string_view name, const Tensor& lhs, const Tensor& rhs, Tensor out) {
  // Each side's gradient needs the other side only.
  const bool needs_lhs = lhs.requires_grad();
  const bool needs_rhs = rhs.requires_grad();
  return autograd::record(
      name, {lhs, rhs}, std::move(out), {needs_rhs ? lhs : Tensor(), needs_lhs ? rhs : Tensor()},
      [left = lhs.sizes(), right = rhs.sizes()](const BackwardContext& backward) {
        std::vector<Tensor> results(2);
        if (backward.needs(0)) {
          results[0] = sum_to_size(mul(backward.grad(), backward.saved(1)), left);
        }
        if (backward.needs(1)) {
          results[1] = sum_to_size(mul(backward.grad(), backward.saved(0)), right);
        }
        return results;
      });
}

Tensor record_div(const Tensor& lhs, const Tensor& rhs, Tensor out) {
  return autograd::record(
      "div", {lhs, rhs}, std::move(out), {rhs.requires_grad() ? lhs : Tensor(), rhs},
      [left = lhs.sizes(), right = rhs.sizes()](const BackwardContext& backward) {
        const Tensor divisor = backward.saved(1);
        const Tensor share = div(backward.grad(), divisor);
        std::vector<Tensor> results(2);
        if (backward.needs(0)) results[0] = sum_to_size(share, left);
        if (backward.needs(1)) {
          const Tensor slope = div(mul_scalar(backward.saved(0), -1.0), divisor);
          results[1] = sum_to_size(mul(share, slope), right);
        }
        return results;
      });
}

}  // namespace

Tensor record_binary(std::string_view name, cpu::FloatBinary op, const Tensor& lhs,
                     const Tensor& rhs, Tensor out) {
  switch (op) {
    case cpu::FloatBinary::Add:
      return record_add(name, lhs, rhs, std::move(out), 1.0);
    case cpu::FloatBinary::Sub:
      return record_add(name, lhs, rhs, std::move(out), -1.0);
    case cpu::FloatBinary::Mul:
      return record_mul(name, lhs, rhs, std::move(out));
    case cpu::FloatBinary::Div:
      return record_div(lhs, rhs, std::move(out));
    case cpu::FloatBinary::AddReLU:
      break;
  }
  return record_add_relu(lhs, rhs, std::move(out));
}

}  // namespace quanta::gradients
