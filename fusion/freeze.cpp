#include "quanta/fusion/freeze.h"

#include <utility>

#include "quanta/ops/arithmetic.h"
#include "quanta/ops/shape.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

void check_model(const nn::Module& model) {
  for (const auto& [path, module] : model.named_modules()) {
    QUANTA_CHECK(
        !module->is_training(),
        "freeze: model: expected a model in eval mode (call eval() first), got {} in train "
        "mode",
        path.empty() ? "the model" : path);
    QUANTA_CHECK(module->is_plain_call(),
                 "freeze: model: expected no hooks and observers, got one on {}",
                 path.empty() ? "the model" : path);
  }
}

// NaN equals NaN here: the same bits.
bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.sizes() != b.sizes()) return false;
  if (a.equal(b)) return true;
  if (!a.is_floating_point()) return false;
  const std::vector<float> left = a.to_float_vector();
  const std::vector<float> right = b.to_float_vector();
  for (std::size_t i = 0; i < left.size(); ++i) {
    const bool both_nan = !(left[i] == left[i]) && !(right[i] == right[i]);
    if (!both_nan && left[i] != right[i]) return false;
  }
  return true;
}

void check_equal(const Tensor& frozen, const Tensor& eager) {
  if (same_bits(frozen, eager)) return;
  throw Error(
      "freeze: x: expected the plan to give what the eager run gives, got another result: the "
      "network's steps depend on values that it calculates, or the network is not deterministic");
}

// Other values of nearly the same distribution: the elements in reverse, and smaller.
Tensor other_values(const Tensor& x) {
  if (x.dtype() != DType::Float32 || x.numel() == 0) return x;
  const Tensor flat = mul_scalar(x.contiguous().view({x.numel()}), 0.875);
  return flip(flat, {0}).view(x.sizes()).clone(x.suggested_format());
}

}  // namespace

Tensor FrozenModel::operator()(const Tensor& x) const {
  QUANTA_CHECK(plan_ != nullptr, "freeze: model: expected a frozen model, got an empty one");
  Tensor y = plan_->run(x);
  if (eager_ != nullptr) check_equal(y, (*eager_)(x));
  return y;
}

namespace detail {

FrozenModel freeze(const nn::Module& model, const Tensor& example_input,
                   [[maybe_unused]] CopyModule copy) {
  QUANTA_CHECK(example_input.defined(),
               "freeze: example_input: expected a tensor, got an undefined one");
  check_model(model);
  const autograd::NoGradGuard no_grad;
  // Dense and in memory of its own: its storage stands for the input's.
  const Tensor x = example_input.detach().clone(example_input.suggested_format());
  const Tensor expected = model(x);  // packs what is packed at the first call
  FrozenModel frozen;
  {
    const replay::Recording recording(x);
    const Tensor y = model(x);
    frozen.plan_ = std::make_shared<const replay::ReplayPlan>(recording, x, y);
  }
  check_equal(frozen.plan_->run(x), expected);
  const Tensor other = other_values(x);
  check_equal(frozen.plan_->run(other), model(other));
#ifndef NDEBUG
  frozen.eager_ = copy(model);
#endif
  return frozen;
}

}  // namespace detail

FrozenModel freeze(const nn::Module& model, const Tensor& example_input) {
  return detail::freeze(model, example_input,
                        [](const nn::Module& given) -> std::shared_ptr<const nn::Module> {
                          try {
                            return given.clone();
                          } catch (const ArgumentError&) {
                            return nullptr;  // nobody knows how to copy it
                          }
                        });
}

}  // namespace quanta
