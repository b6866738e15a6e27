#include "quanta/ops/linear/gradient.h"

#include "quanta/ops/arithmetic.h"
#include "quanta/runtime/autograd.h"

namespace quanta::gradients {

using autograd::BackwardContext;

Tensor record_linear(Tensor y, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return autograd::record("linear", {x, weight, bias}, std::move(y), {x, weight},
                          [](const BackwardContext& context) {
                            const Tensor x = context.saved(0);
                            const Tensor weight = context.saved(1);
                            const Tensor gradient = context.grad().reshape({-1, weight.sizes()[0]});
                            Tensor for_x, for_weight, for_bias;
                            if (context.needs(0)) {
                              for_x = matmul(gradient, weight).view(x.sizes());
                            }
                            if (context.needs(1)) {
                              for_weight = matmul(gradient.t(), x.reshape({-1, x.sizes().back()}));
                            }
                            if (context.needs(2)) {
                              for_bias = autograd::sum_to_size(gradient, {weight.sizes()[0]});
                            }
                            return std::vector<Tensor>{for_x, for_weight, for_bias};
                          });
}

Tensor record_matmul(Tensor y, const Tensor& lhs, const Tensor& rhs) {
  return autograd::record(
      "matmul", {lhs, rhs}, std::move(y), {lhs, rhs}, [](const BackwardContext& context) {
        const Tensor lhs = context.saved(0);
        const Tensor rhs = context.saved(1);
        // A vector stands for a row on the left, a column on the right.
        const Tensor left = lhs.dim() == 1 ? lhs.unsqueeze(0) : lhs;
        const Tensor right = rhs.dim() == 1 ? rhs.unsqueeze(1) : rhs;
        Tensor gradient = context.grad();
        if (lhs.dim() == 1) gradient = gradient.unsqueeze(rhs.dim() == 1 ? -1 : -2);
        if (rhs.dim() == 1) gradient = gradient.unsqueeze(-1);
        Tensor for_left, for_right;
        if (context.needs(0)) {
          for_left = autograd::sum_to_size(matmul(gradient, right.transpose(-2, -1)), left.sizes())
                         .view(lhs.sizes());
        }
        if (context.needs(1)) {
          for_right = autograd::sum_to_size(matmul(left.transpose(-2, -1), gradient), right.sizes())
                          .view(rhs.sizes());
        }
        return std::vector<Tensor>{for_left, for_right};
      });
}

}  // namespace quanta::gradients
