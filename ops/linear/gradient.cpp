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

}  // namespace quanta::gradients
