#pragma once

// Private: losses of elements on their own, with their gradients.

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/ops/loss.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/parallel.h"
#include "quanta/runtime/tensor.h"

namespace quanta::gradients {

// Each loss has the value of an element and its derivatives by input and target; `positive` is the
// weight of the positive answers.

struct SquaredError {
  template <typename T>
  T value(T input, T target, T) const {
    return (input - target) * (input - target);
  }
  template <typename T>
  T by_input(T input, T target, T) const {
    return T{2} * (input - target);
  }
  template <typename T>
  T by_target(T input, T target, T) const {
    return T{2} * (target - input);
  }
};

struct AbsoluteError {
  template <typename T>
  T value(T input, T target, T) const {
    return std::abs(input - target);
  }
  template <typename T>
  T by_input(T input, T target, T) const {
    return static_cast<T>(input > target) - static_cast<T>(input < target);
  }
  template <typename T>
  T by_target(T input, T target, T positive) const {
    return -by_input(input, target, positive);
  }
};

struct SmoothAbsoluteError {
  double beta;

  template <typename T>
  T value(T input, T target, T) const {
    const T width = static_cast<T>(beta);
    const T distance = std::abs(input - target);
    if (distance < width) return static_cast<T>(0.5) * distance * distance / width;
    return distance - static_cast<T>(0.5) * width;
  }
  template <typename T>
  T by_input(T input, T target, T) const {
    const T width = static_cast<T>(beta);
    const T difference = input - target;
    if (std::abs(difference) < width) return difference / width;
    return static_cast<T>(difference > T{0}) - static_cast<T>(difference < T{0});
  }
  template <typename T>
  T by_target(T input, T target, T positive) const {
    return -by_input(input, target, positive);
  }
};

struct BinaryCrossEntropy {
  // log(1 + exp(-x)), without overflow.
  template <typename T>
  static T softplus_of_negative(T x) {
    return std::log1p(std::exp(-std::abs(x))) + std::max(-x, T{0});
  }
  template <typename T>
  T value(T input, T target, T positive) const {
    return (T{1} - target) * input +
           (T{1} + (positive - T{1}) * target) * softplus_of_negative(input);
  }
  template <typename T>
  T by_input(T input, T target, T positive) const {
    const T share = T{1} / (T{1} + std::exp(-input));
    return (T{1} - target) * share - positive * target * (T{1} - share);
  }
  template <typename T>
  T by_target(T input, T, T positive) const {
    return (positive - T{1}) * softplus_of_negative(input) - input;
  }
};

/// Contiguous and of the input's sizes, or undefined: 1.
struct LossWeights {
  Tensor weight{};
  Tensor positive{};
};

namespace detail {

// One element after the other of contiguous tensors.
template <typename T>
struct LossElements {
  const T* input;
  const T* target;
  const T* weight;
  const T* positive;

  LossElements(const Tensor& inputs, const Tensor& targets, const LossWeights& weights)
      : input(static_cast<const T*>(inputs.data_ptr())),
        target(static_cast<const T*>(targets.data_ptr())),
        weight(weights.weight.defined() ? weights.weight.data<T>() : nullptr),
        positive(weights.positive.defined() ? weights.positive.data<T>() : nullptr) {}

  T weight_at(std::int64_t i) const { return weight == nullptr ? T{1} : weight[i]; }
  T positive_at(std::int64_t i) const { return positive == nullptr ? T{1} : positive[i]; }
};

// The sum of value(i), block by block in an order that does not depend on the threads.
template <typename Value>
double sum_of(std::int64_t count, const Value& value) {
  constexpr std::int64_t kBlock = 16384;
  std::vector<double> sums(static_cast<std::size_t>((count + kBlock - 1) / kBlock));
  parallel_for(static_cast<std::int64_t>(sums.size()), 1,
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t block = begin; block < end; ++block) {
                   double sum = 0.0;
                   const std::int64_t last = std::min(count, (block + 1) * kBlock);
                   for (std::int64_t i = block * kBlock; i < last; ++i) {
                     sum += static_cast<double>(value(i));
                   }
                   sums[static_cast<std::size_t>(block)] = sum;
                 }
               });
  double total = 0.0;
  for (const double sum : sums) total += sum;
  return total;
}

template <typename T, typename Loss>
Tensor loss_of(const Tensor& input, const Tensor& target, const LossWeights& weights,
               Reduction reduction, const Loss& loss) {
  const LossElements<T> at(input, target, weights);
  const auto value = [&](std::int64_t i) {
    return loss.value(at.input[i], at.target[i], at.positive_at(i)) * at.weight_at(i);
  };
  if (reduction == Reduction::None) {
    const Tensor result = Tensor::empty(input.sizes(), input.dtype());
    auto* to = static_cast<T*>(result.data_ptr());
    cpu::parallel_elements(input.numel(), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) to[i] = value(i);
    });
    return result;
  }
  const double sum = sum_of(input.numel(), value);
  const double divisor = reduction == Reduction::Mean ? static_cast<double>(input.numel()) : 1.0;
  return Tensor::scalar(sum / divisor, input.dtype());
}

// derivative(input, target, positive) times the weight and the gradient.
template <typename T, typename Derivative>
Tensor loss_gradient(const Tensor& gradient, const Tensor& input, const Tensor& target,
                     const LossWeights& weights, Reduction reduction,
                     const Derivative& derivative) {
  const LossElements<T> at(input, target, weights);
  const Tensor result = Tensor::empty(input.sizes(), input.dtype());
  auto* to = static_cast<T*>(result.data_ptr());
  const Tensor dense = gradient.contiguous();
  const auto* from = static_cast<const T*>(dense.data_ptr());
  const T share = reduction == Reduction::Mean ? T{1} / static_cast<T>(input.numel()) : T{1};
  const std::int64_t step = reduction == Reduction::None ? 1 : 0;
  cpu::parallel_elements(input.numel(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      to[i] = derivative(at.input[i], at.target[i], at.positive_at(i)) * at.weight_at(i) *
              from[i * step] * share;
    }
  });
  return result;
}

}  // namespace detail

/// The loss of tensors of the same sizes, recorded where it has to be.
template <typename Loss>
Tensor pointwise_loss(std::string_view op, const Tensor& input, const Tensor& target,
                      const LossWeights& weights, Reduction reduction, const Loss& loss) {
  const Tensor inputs = quanta::detail::off_tape(input).contiguous();
  const Tensor targets = quanta::detail::off_tape(target).contiguous();
  Tensor result = quanta::detail::visit_floats(input.dtype(), [&](auto zero) {
    return detail::loss_of<decltype(zero)>(inputs, targets, weights, reduction, loss);
  });
  if (!autograd::needs_grad(input, target)) return result;
  return autograd::record(
      op, {input, target}, std::move(result), {input, target, weights.weight, weights.positive},
      [reduction, loss](const autograd::BackwardContext& backward) {
        const Tensor x = backward.saved(0).contiguous();
        const Tensor t = backward.saved(1).contiguous();
        const LossWeights saved{backward.saved(2), backward.saved(3)};
        return quanta::detail::visit_floats(x.dtype(), [&](auto zero) {
          using T = decltype(zero);
          std::vector<Tensor> results(2);
          if (backward.needs(0)) {
            results[0] = detail::loss_gradient<T>(
                backward.grad(), x, t, saved, reduction,
                [&](T a, T b, T positive) { return loss.by_input(a, b, positive); });
          }
          if (backward.needs(1)) {
            results[1] = detail::loss_gradient<T>(
                backward.grad(), x, t, saved, reduction,
                [&](T a, T b, T positive) { return loss.by_target(a, b, positive); });
          }
          return results;
        });
      });
}

}  // namespace quanta::gradients
