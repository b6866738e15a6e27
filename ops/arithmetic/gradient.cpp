#include "quanta/ops/arithmetic/gradient.h"

#include <limits>

#include "quanta/ops/arithmetic.h"
#include "quanta/ops/detail/pointwise_gradient.h"

namespace quanta::arithmetic {

using autograd::BackwardContext;
using cpu::FloatBinary;

// A product needs of each side the other one only; a sum's sign tells from the result of a relu.
GradientUse binary_gradient_use(FloatBinary op, std::uint64_t needed) {
  const std::uint64_t lhs_needed = needed & 1U;
  const std::uint64_t rhs_needed = needed >> 1U & 1U;
  switch (op) {
    case FloatBinary::Add:
    case FloatBinary::Sub:
      return GradientUse::of(0);
    case FloatBinary::Mul:
      return GradientUse::of(rhs_needed | lhs_needed << 1U);
    case FloatBinary::Div:
      return GradientUse::of(rhs_needed | 0b10U);
    case FloatBinary::AddReLU:
      break;
  }
  return GradientUse::of(0, 1);
}

std::vector<Tensor> binary_gradient(FloatBinary op, const BackwardContext& context) {
  const auto lhs = [&](const Tensor& gradient) {
    return autograd::sum_to_size(gradient, context.input_sizes(0));
  };
  const auto rhs = [&](const Tensor& gradient) {
    return autograd::sum_to_size(gradient, context.input_sizes(1));
  };
  Tensor gradient = context.grad();
  std::vector<Tensor> results(2);
  switch (op) {
    case FloatBinary::AddReLU:
      gradient = detail::through_gate(gradient, context.output(), 0.0,
                                      std::numeric_limits<double>::infinity());
      [[fallthrough]];
    case FloatBinary::Add:
      if (context.needs(0)) results[0] = lhs(gradient);
      if (context.needs(1)) results[1] = rhs(gradient);
      break;
    case FloatBinary::Sub:
      if (context.needs(0)) results[0] = lhs(gradient);
      if (context.needs(1)) results[1] = mul_scalar(rhs(gradient), -1.0);
      break;
    case FloatBinary::Mul:
      if (context.needs(0)) results[0] = lhs(mul(gradient, context.input(1)));
      if (context.needs(1)) results[1] = rhs(mul(gradient, context.input(0)));
      break;
    case FloatBinary::Div: {
      const Tensor divisor = context.input(1);
      const Tensor share = div(gradient, divisor);
      if (context.needs(0)) results[0] = lhs(share);
      if (context.needs(1)) {
        results[1] = rhs(mul(share, div(mul_scalar(context.input(0), -1.0), divisor)));
      }
      break;
    }
  }
  return results;
}

}  // namespace quanta::arithmetic
