#include "quanta/nn/detail/dynamic_linear.h"

#include <typeinfo>
#include <vector>

#include "quanta/nn/dynamic/linear.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/linear/dynamic_fused.h"

namespace quanta::nn::detail {
namespace {

namespace ops = quanta::quantized::detail;
using DynamicLinear = nn::quantized::dynamic::Linear;

/// Null unless the slot holds just a dynamic linear layer with an int8 weight, called on a float
/// tensor.
const DynamicLinear* plain_int8(const Child<Linear>& slot, const Tensor& x) {
  const Module* module = slot.module().get();
  if (module == nullptr || !module->is_plain_call()) return nullptr;
  const Module& occupant = *module;
  if (typeid(occupant) != typeid(DynamicLinear)) return nullptr;
  const auto& linear = static_cast<const DynamicLinear&>(occupant);
  const bool fits =
      linear.int8_weight() != nullptr && x.defined() && x.dtype() == DType::Float32 && x.dim() >= 1;
  return fits ? &linear : nullptr;
}

/// Whether `addend` has the sizes of the layer's result.
bool fits_result(const Tensor& addend, const DynamicLinear& linear, const Tensor& x) {
  if (!addend.defined() || addend.dtype() != DType::Float32) return false;
  Dims sizes = x.sizes();
  sizes[sizes.size() - 1] = linear.weight().size(0);
  return addend.sizes() == sizes;
}

}  // namespace

Tensor gelu_of_linear(const Child<Linear>& linear, const Tensor& x) {
  const DynamicLinear* int8 = plain_int8(linear, x);
  if (int8 == nullptr) return gelu(linear(x));
  const PathScope scope(int8);
  return ops::linear_gelu_dynamic(x, *int8->int8_weight(), int8->reduce_range());
}

Tensor add_linear(const Tensor& addend, const Child<Linear>& linear, const Tensor& x) {
  const DynamicLinear* int8 = plain_int8(linear, x);
  if (int8 == nullptr || !fits_result(addend, *int8, x)) return add(addend, linear(x));
  const PathScope scope(int8);
  return ops::linear_add_dynamic(x, *int8->int8_weight(), int8->reduce_range(), addend);
}

std::array<Tensor, 3> linear_of_three(const Child<Linear>& first, const Child<Linear>& second,
                                      const Child<Linear>& third, const Tensor& x) {
  std::array<const quanta::quantized::LinearPackedParams*, 3> weights{};
  const DynamicLinear* one = plain_int8(first, x);
  bool together = one != nullptr;
  std::size_t i = 0;
  for (const Child<Linear>* slot : {&first, &second, &third}) {
    const DynamicLinear* linear = plain_int8(*slot, x);
    together = together && linear != nullptr && linear->reduce_range() == one->reduce_range() &&
               linear->int8_weight()->weight().sizes()[1] == x.sizes().back();
    if (!together) return {first(x), second(x), third(x)};
    weights[i++] = linear->int8_weight();
  }
  const PathScope scope(one);
  std::vector<Tensor> results = ops::linear_each_dynamic(x, weights, one->reduce_range());
  return {results[0], results[1], results[2]};
}

}  // namespace quanta::nn::detail
