#include "quanta/fusion/freeze.h"

#include <algorithm>
#include <cmath>
#include <set>
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

[[noreturn]] void throw_unequal() {
  throw Error(
      "freeze: x: expected the plan to give what the eager run gives, got another result: the "
      "network's steps depend on values that it calculates, or the network is not deterministic");
}

void check_equal(std::span<const Tensor> frozen, std::span<const Tensor> eager) {
  if (frozen.size() != eager.size()) throw_unequal();
  for (std::size_t i = 0; i < frozen.size(); ++i) {
    if (!same_bits(frozen[i], eager[i])) throw_unequal();
  }
}

// Other values of nearly the same distribution: the elements in reverse, and smaller.
Tensor other_values(const Tensor& x) {
  if (x.dtype() != DType::Float32 || x.numel() == 0) return x;
  if (!x.device().is_cpu()) return other_values(x.cpu()).to(x.device());
  const Tensor flat = mul_scalar(x.contiguous().view({x.numel()}), 0.875);
  return flip(flat, {0}).view(x.sizes()).clone(x.suggested_format());
}

std::vector<Tensor> other_values(std::span<const Tensor> inputs) {
  std::vector<Tensor> result;
  for (const Tensor& x : inputs) result.push_back(other_values(x));
  return result;
}

using PlanPtr = std::shared_ptr<const replay::ReplayPlan>;

PlanPtr make_plan(const nn::Module& model, std::span<const Tensor> inputs) {
  const std::vector<Tensor> expected = model(inputs);  // packs what is packed at first
  PlanPtr plan;
  {
    const replay::Recording recording(inputs);
    const std::vector<Tensor> outputs = model(inputs);
    plan = std::make_shared<const replay::ReplayPlan>(recording, inputs, outputs);
  }
  check_equal(plan->run(inputs), expected);
  const std::vector<Tensor> others = other_values(inputs);
  check_equal(plan->run(others), model(others));
  return plan;
}

// The rows of x from `begin` on; where they end, they begin again.
Tensor take_rows(const Tensor& x, std::int64_t begin, std::int64_t count) {
  std::vector<Tensor> pieces;
  while (count > 0) {
    const std::int64_t length = std::min(count, x.size(0) - begin);
    pieces.push_back(x.narrow(0, begin, length));
    count -= length;
    begin = 0;
  }
  if (pieces.size() == 1) return pieces[0].clone(x.suggested_format());
  return cat(pieces, 0).clone(x.suggested_format());
}

std::vector<Tensor> take_rows(std::span<const Tensor> inputs, const std::vector<bool>& is_batched,
                              std::int64_t begin, std::int64_t count) {
  std::vector<Tensor> result;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    result.push_back(is_batched[i] ? take_rows(inputs[i], begin, count) : inputs[i]);
  }
  return result;
}

bool nearly_equal(const Tensor& a, const Tensor& b) {
  if (same_bits(a, b)) return true;
  if (a.dtype() != DType::Float32 || b.dtype() != a.dtype() || a.sizes() != b.sizes()) return false;
  // Float sums are added up in another order.
  constexpr float kTolerance = 1e-4F;
  const std::vector<float> left = a.to_float_vector();
  const std::vector<float> right = b.to_float_vector();
  float largest = 0.0F;
  float difference = 0.0F;
  for (std::size_t i = 0; i < left.size(); ++i) {
    largest = std::max(largest, std::abs(right[i]));
    difference = std::max(difference, std::abs(left[i] - right[i]));
  }
  return difference <= kTolerance * largest;
}

// Rows that are unlike: of the sizes 1 to 1/2 of what they were.
std::vector<Tensor> unlike_rows(std::span<const Tensor> inputs, const std::vector<bool>& is_batched,
                                std::int64_t batch) {
  std::vector<Tensor> result(inputs.begin(), inputs.end());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!is_batched[i] || inputs[i].dtype() != DType::Float32 || batch < 2) continue;
    result[i] = inputs[i].cpu().clone(inputs[i].suggested_format());
    for (std::int64_t row = 1; row < batch; ++row) {
      const double factor = 1.0 - 0.5 * static_cast<double>(row) / static_cast<double>(batch - 1);
      const Tensor part = result[i].narrow(0, row, 1);
      part.copy_(mul_scalar(part, factor));
    }
    result[i] = result[i].to(inputs[i].device());
  }
  return result;
}

// The last row of a batch, the smallest one, has to give alone what it gives among others.
void require_independent_rows(const nn::Module& model, const replay::ReplayPlan& plan,
                              std::span<const Tensor> example, const std::vector<bool>& is_batched,
                              std::int64_t batch) {
  const std::vector<Tensor> inputs = unlike_rows(example, is_batched, batch);
  const std::vector<Tensor> results = plan.run(inputs);
  const std::vector<Tensor> one = model(take_rows(inputs, is_batched, batch - 1, 1));
  for (std::size_t i = 0; i < results.size(); ++i) {
    QUANTA_CHECK(
        results[i].dim() > 0 && results[i].size(0) == batch && one[i].size(0) == 1,
        "freeze: batch_sizes: expected outputs whose dimension 0 is the batch ({}), got {}", batch,
        results[i].sizes());
    QUANTA_CHECK(
        nearly_equal(results[i].narrow(0, batch - 1, 1), one[i]),
        "freeze: batch_sizes: expected a network that calculates each row by itself, got "
        "another result for a row in a batch of {} (dynamic quantization has one scale for "
        "the whole batch: freeze a plan for each size)",
        batch);
  }
}

std::int64_t batch_of(std::span<const Tensor> inputs, const std::vector<bool>& is_batched) {
  std::int64_t rows = -1;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!is_batched[i]) continue;
    QUANTA_CHECK(inputs[i].defined() && inputs[i].dim() > 0,
                 "freeze: inputs[{}]: expected a batch, got {}", i,
                 inputs[i].defined() ? "a scalar" : "an undefined tensor");
    QUANTA_CHECK(rows < 0 || inputs[i].size(0) == rows,
                 "freeze: inputs[{}]: expected {} rows as the first input has, got {}", i, rows,
                 inputs[i].size(0));
    rows = inputs[i].size(0);
  }
  QUANTA_CHECK(rows > 0, "freeze: inputs: expected at least one row, got none");
  return rows;
}

}  // namespace

std::vector<std::int64_t> FrozenModel::batch_sizes() const {
  std::vector<std::int64_t> result;
  for (const Plan& plan : plans_) {
    if (has_range_) result.push_back(plan.batch);
  }
  return result;
}

Tensor FrozenModel::only_result(std::vector<Tensor> results) {
  QUANTA_CHECK(results.size() == 1,
               "freeze: outputs: expected one for model(x, y), got {} (model({{x, y}}) gives all)",
               results.size());
  return std::move(results[0]);
}

const replay::ReplayPlan& FrozenModel::largest() const {
  QUANTA_CHECK(!plans_.empty(), "freeze: model: expected a frozen model, got an empty one");
  return *plans_.back().plan;
}

const FrozenModel::Plan& FrozenModel::plan_for(std::int64_t rows) const {
  const auto fits = std::find_if(plans_.begin(), plans_.end(),
                                 [rows](const Plan& plan) { return plan.batch >= rows; });
  return fits == plans_.end() ? plans_.back() : *fits;
}

std::vector<Tensor> FrozenModel::run_batches(std::span<const Tensor> inputs) const {
  QUANTA_CHECK(inputs.size() == is_batched_.size(), "freeze: inputs: expected {}, got {}",
               is_batched_.size(), inputs.size());
  const std::int64_t rows = batch_of(inputs, is_batched_);
  if (const Plan& plan = plan_for(rows); plan.batch == rows) return plan.plan->run(inputs);
  std::vector<std::vector<Tensor>> pieces;  // of each output
  for (std::int64_t begin = 0; begin < rows;) {
    const Plan& plan = plan_for(rows - begin);
    const std::int64_t count = std::min(plan.batch, rows - begin);
    const std::vector<Tensor> results =
        plan.plan->run(take_rows(inputs, is_batched_, begin, plan.batch));
    pieces.resize(results.size());
    for (std::size_t i = 0; i < results.size(); ++i) {
      pieces[i].push_back(results[i].narrow(0, 0, count));
    }
    begin += count;
  }
  std::vector<Tensor> outputs;
  for (const std::vector<Tensor>& parts : pieces) {
    outputs.push_back(parts.size() == 1 ? parts[0] : cat(parts, 0));
  }
  return outputs;
}

std::vector<Tensor> FrozenModel::operator()(std::span<const Tensor> inputs) const {
  QUANTA_CHECK(!plans_.empty(), "freeze: model: expected a frozen model, got an empty one");
  if (has_range_) return run_batches(inputs);
  std::vector<Tensor> outputs = plans_[0].plan->run(inputs);
  if (eager_ != nullptr) check_equal(outputs, (*eager_)(inputs));
  return outputs;
}

Tensor FrozenModel::operator()(const Tensor& x) const {
  if (has_range_ || plans_.size() != 1 || eager_ != nullptr) {
    return only_result((*this)(std::span<const Tensor>(&x, 1)));
  }
  return plans_[0].plan->run(x);
}

namespace detail {

FrozenModel freeze(const nn::Module& model, std::span<const Tensor> example,
                   const FreezeOptions& options, [[maybe_unused]] CopyModule copy) {
  QUANTA_CHECK(!example.empty(), "freeze: example: expected tensors, got none");
  check_model(model);
  const autograd::NoGradGuard no_grad;
  // Dense and in memory of its own: its storage stands for the input's.
  std::vector<Tensor> inputs;
  for (const Tensor& x : example) {
    QUANTA_CHECK(x.defined(), "freeze: example_input: expected a tensor, got an undefined one");
    inputs.push_back(x.detach().clone(x.suggested_format()));
  }
  FrozenModel frozen;
#ifndef NDEBUG
  frozen.eager_ = copy(model);
#endif
  if (options.batch_sizes.empty()) {
    frozen.plans_.push_back({.plan = make_plan(model, inputs)});
    return frozen;
  }
  frozen.has_range_ = true;
  const std::int64_t rows = inputs[0].dim() == 0 ? 0 : inputs[0].size(0);
  QUANTA_CHECK(rows > 0, "freeze: example: expected a batch in dimension 0, got {}",
               inputs[0].sizes());
  for (const Tensor& x : inputs) {
    frozen.is_batched_.push_back(x.dim() > 0 && x.size(0) == rows);
  }
  const std::set<std::int64_t> sizes(options.batch_sizes.begin(), options.batch_sizes.end());
  QUANTA_CHECK(*sizes.begin() > 0, "freeze: batch_sizes: expected sizes of at least 1, got {}",
               *sizes.begin());
  for (const std::int64_t batch : sizes) {
    const std::vector<Tensor> batched = take_rows(inputs, frozen.is_batched_, 0, batch);
    frozen.plans_.push_back({.batch = batch, .plan = make_plan(model, batched)});
    require_independent_rows(model, *frozen.plans_.back().plan, batched, frozen.is_batched_, batch);
  }
  return frozen;
}

}  // namespace detail

FrozenModel freeze(const nn::Module& model, std::span<const Tensor> example,
                   const FreezeOptions& options) {
  return detail::freeze(model, example, options,
                        [](const nn::Module& given) -> std::shared_ptr<const nn::Module> {
                          try {
                            return given.clone();
                          } catch (const ArgumentError&) {
                            return nullptr;  // nobody knows how to copy it
                          }
                        });
}

}  // namespace quanta
