// Losses over classes: nll_loss and cross_entropy.

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/ops/activation.h"
#include "quanta/ops/cpu/softmax.h"
#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/ops/detail/elements.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/ops/loss.h"
#include "quanta/ops/loss/gradient.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/parallel.h"
#include "quanta/runtime/recorder.h"
#include "quanta/runtime/verbose.h"

namespace quanta {
namespace {

using autograd::BackwardContext;

// The scores as rows: [N, C, spatial...] becomes [N, spatial..., C], which is a view.
Tensor classes_last(const Tensor& x) {
  Dims order;
  for (std::int64_t d = 0; d < x.dim(); ++d) {
    if (d != 1 || x.dim() == 1) order.push_back(d);
  }
  if (x.dim() > 1) order.push_back(1);
  return x.permute(order);
}
// And back.
Tensor classes_second(const Tensor& x) {
  if (x.dim() <= 2) return x;
  Dims order{0, x.dim() - 1};
  for (std::int64_t d = 1; d + 1 < x.dim(); ++d) order.push_back(d);
  return x.permute(order);
}

std::int64_t classes_of(std::string_view op, const Tensor& input) {
  detail::check_floats(op, "input", input);
  QUANTA_CHECK(input.dim() >= 1, "{}: input: expected [C] or [N, C, ...], got a 0-d tensor", op);
  const std::int64_t classes = input.size(input.dim() == 1 ? 0 : 1);
  QUANTA_CHECK(classes >= 1, "{}: input: expected at least 1 class, got {}", op, input.sizes());
  return classes;
}

void check_class_options(std::string_view op, const Tensor& input, std::int64_t classes,
                         const ClassLossOptions& options) {
  const Tensor& weight = options.weight;
  QUANTA_CHECK(
      !weight.defined() || (weight.dtype() == input.dtype() && weight.sizes() == Dims{classes}),
      "{}: weight: expected {} [{}], got {} {}", op, input.dtype(), classes, weight.dtype(),
      weight.sizes());
  autograd::require_no_grad(op, weight);
  QUANTA_CHECK(options.label_smoothing >= 0.0 && options.label_smoothing <= 1.0,
               "{}: label_smoothing: expected 0..1, got {}", op, options.label_smoothing);
}

// Class indices, contiguous Int64, in range or ignored.
Tensor checked_targets(std::string_view op, const Tensor& input, const Tensor& target,
                       std::int64_t classes, std::int64_t ignore_index) {
  const Tensor indices = detail::int64_indices(op, "target", target);
  Dims expected = input.sizes();
  expected.erase(input.dim() == 1 ? 0 : 1);
  QUANTA_CHECK(indices.sizes() == expected, "{}: target: expected {} for input {}, got {}", op,
               expected, input.sizes(), target.sizes());
  const auto* classes_at = indices.data<std::int64_t>();
  for (std::int64_t i = 0; i < indices.numel(); ++i) {
    QUANTA_CHECK((classes_at[i] >= 0 && classes_at[i] < classes) || classes_at[i] == ignore_index,
                 "{}: target: expected classes in 0..{} or ignore_index {}, got {}", op,
                 classes - 1, ignore_index, classes_at[i]);
  }
  return indices;
}

// What rows of scores are asked for. Row i has the loss -sum of q[c] * log_probability[c], where
//   q[c] = ((1 - smoothing) * [c == target] + smoothing / C) * weight[c],
// or q[c] = ((1 - smoothing) * target[c] + smoothing / C) * weight[c].
template <typename T>
class Question {
 public:
  Question(std::int64_t classes, const Tensor& target, const Tensor& weight,
           std::int64_t ignore_index, double smoothing)
      : classes_(classes),
        ignore_index_(ignore_index),
        kept_(static_cast<T>(1.0 - smoothing)),
        spread_(static_cast<T>(smoothing / static_cast<double>(classes))),
        weight_(weight.defined() ? weight.data<T>() : nullptr) {
    if (target.is_floating_point()) {
      shares_ = target.data<T>();
    } else {
      indices_ = target.data<std::int64_t>();
    }
  }

  bool ignores(std::int64_t row) const {
    return indices_ != nullptr && indices_[row] == ignore_index_;
  }
  T weight(std::int64_t c) const { return weight_ == nullptr ? T{1} : weight_[c]; }
  T kept() const { return kept_; }
  T q(std::int64_t row, std::int64_t c) const {
    const T share =
        indices_ == nullptr ? shares_[row * classes_ + c] : static_cast<T>(indices_[row] == c);
    return (kept_ * share + spread_) * weight(c);
  }
  bool is_one_hot() const { return indices_ != nullptr && spread_ == T{0}; }
  std::int64_t target(std::int64_t row) const { return indices_[row]; }
  // What a row adds to the divisor of the mean.
  double part_of_mean(std::int64_t row) const {
    if (indices_ == nullptr) return 1.0;
    return ignores(row) ? 0.0 : static_cast<double>(weight(indices_[row]));
  }

  // The sum of q.
  double total(std::int64_t row) const {
    if (is_one_hot()) return static_cast<double>(weight(target(row)));
    double sum = 0.0;
    for (std::int64_t c = 0; c < classes_; ++c) sum += static_cast<double>(q(row, c));
    return sum;
  }
  // to[c] -= factor * q[c].
  void subtract(std::int64_t row, T factor, T* to) const {
    if (is_one_hot()) {
      to[target(row)] -= factor * weight(target(row));
      return;
    }
    for (std::int64_t c = 0; c < classes_; ++c) to[c] -= factor * q(row, c);
  }

  // The row's loss for log-probabilities.
  double loss(std::int64_t row, const T* log_probabilities) const {
    if (ignores(row)) return 0.0;
    if (is_one_hot()) {
      const std::int64_t t = target(row);
      return -static_cast<double>(weight(t)) * static_cast<double>(log_probabilities[t]);
    }
    double sum = 0.0;
    for (std::int64_t c = 0; c < classes_; ++c) {
      const T share = q(row, c);
      // 0 * -inf counts for nothing.
      if (share != T{0}) {
        sum += static_cast<double>(share) * static_cast<double>(log_probabilities[c]);
      }
    }
    return -sum;
  }

 private:
  std::int64_t classes_;
  std::int64_t ignore_index_;
  T kept_;
  T spread_;
  const T* weight_;
  const T* shares_ = nullptr;
  const std::int64_t* indices_ = nullptr;
};

struct Losses {
  Tensor result;
  double divisor = 1.0;  // of the mean
};

std::int64_t row_grain(std::int64_t classes) {
  return std::max<std::int64_t>(1, cpu::kElementGrain / 4 / classes);
}

template <typename T>
Losses reduce_rows(const Question<T>& question, const Tensor& log_probabilities,
                   std::int64_t classes, Reduction reduction) {
  const std::int64_t rows = log_probabilities.numel() / classes;
  const auto* from = static_cast<const T*>(log_probabilities.data_ptr());
  Dims sizes = log_probabilities.sizes();
  sizes.resize(sizes.size() - 1);
  const Tensor each = Tensor::empty(sizes, DType::Float64);
  auto* losses = each.mutable_data<double>();
  parallel_for(rows, row_grain(classes), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      losses[row] = question.loss(row, from + row * classes);
    }
  });
  if (reduction == Reduction::None) return {each.to(log_probabilities.dtype()), 1.0};
  double sum = 0.0;
  double divisor = 0.0;
  for (std::int64_t row = 0; row < rows; ++row) {
    sum += losses[row];
    divisor += question.part_of_mean(row);
  }
  if (reduction == Reduction::Sum) divisor = 1.0;
  return {Tensor::scalar(sum / divisor, log_probabilities.dtype()), divisor};
}

// How far a loss is from the scores: by nothing, or by a log_softmax.
enum class Scores : bool { LogProbabilities, Logits };

// exp of log-probabilities; a softmax changes nothing else in them, and has vectors.
void probabilities_of(const float* row, std::int64_t classes, float* to) {
  cpu::softmax_row(row, classes, to);
}
void probabilities_of(const double* row, std::int64_t classes, double* to) {
  for (std::int64_t c = 0; c < classes; ++c) to[c] = std::exp(row[c]);
}

// factor * (p * sum of q - q), or -factor * q, for each row.
template <typename T>
Tensor rows_gradient(const Question<T>& question, const Tensor& gradient,
                     const Tensor& log_probabilities, std::int64_t classes, Reduction reduction,
                     double divisor, Scores scores) {
  const Tensor result = Tensor::empty(log_probabilities.sizes(), log_probabilities.dtype());
  const Tensor dense = gradient.contiguous();
  const auto* factors = static_cast<const T*>(dense.data_ptr());
  const auto* from = static_cast<const T*>(log_probabilities.data_ptr());
  auto* dst = static_cast<T*>(result.data_ptr());
  const std::int64_t step = reduction == Reduction::None ? 1 : 0;
  const std::int64_t rows = result.numel() / classes;
  parallel_for(rows, row_grain(classes), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      T* to = dst + row * classes;
      if (question.ignores(row)) {
        std::fill_n(to, classes, T{0});
        continue;
      }
      const T factor = factors[row * step] / static_cast<T>(divisor);
      if (scores == Scores::LogProbabilities) {
        std::fill_n(to, classes, T{0});
      } else {
        const T scale = factor * static_cast<T>(question.total(row));
        probabilities_of(from + row * classes, classes, to);
        for (std::int64_t c = 0; c < classes; ++c) to[c] *= scale;
      }
      question.subtract(row, factor, to);
    }
  });
  return result;
}

// Of targets that are probabilities: -factor * (1 - smoothing) * weight * log_probability.
template <typename T>
Tensor targets_gradient(const Question<T>& question, const Tensor& gradient,
                        const Tensor& log_probabilities, std::int64_t classes, Reduction reduction,
                        double divisor) {
  const Tensor result = Tensor::empty(log_probabilities.sizes(), log_probabilities.dtype());
  const Tensor dense = gradient.contiguous();
  const auto* factors = static_cast<const T*>(dense.data_ptr());
  const auto* from = static_cast<const T*>(log_probabilities.data_ptr());
  auto* dst = static_cast<T*>(result.data_ptr());
  const std::int64_t step = reduction == Reduction::None ? 1 : 0;
  for (std::int64_t i = 0; i < result.numel(); ++i) {
    const T factor = factors[i / classes * step] / static_cast<T>(divisor);
    dst[i] = -factor * question.kept() * question.weight(i % classes) * from[i];
  }
  return result;
}

// The loss of rows of log-probabilities; `target` are class indices, or probabilities with classes
// last.
Tensor class_loss(std::string_view op, const Tensor& input, const Tensor& target_input,
                  const Tensor& log_probabilities, const Tensor& target, std::int64_t classes,
                  const ClassLossOptions& options, Scores scores) {
  const Tensor weight = options.weight.defined() ? options.weight.contiguous() : options.weight;
  return detail::visit_floats(input.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto question_of = [classes, ignore = options.ignore_index,
                              smoothing = options.label_smoothing](const Tensor& t,
                                                                   const Tensor& w) {
      return Question<T>(classes, t, w, ignore, smoothing);
    };
    const Losses losses =
        reduce_rows<T>(question_of(target, weight), log_probabilities, classes, options.reduction);
    if (!autograd::needs_grad(input, target_input)) return losses.result;
    return autograd::record(
        op, {input, target_input}, losses.result, {log_probabilities, target, weight},
        [question_of, classes, scores, divisor = losses.divisor,
         reduction = options.reduction](const BackwardContext& backward) {
          const Tensor rows = backward.saved(0);
          const Question<T> question = question_of(backward.saved(1), backward.saved(2));
          std::vector<Tensor> results(2);
          if (backward.needs(0)) {
            results[0] = classes_second(rows_gradient<T>(question, backward.grad(), rows, classes,
                                                         reduction, divisor, scores));
          }
          if (backward.needs(1)) {
            results[1] = classes_second(
                targets_gradient<T>(question, backward.grad(), rows, classes, reduction, divisor));
          }
          return results;
        });
  });
}

// One step of a plan for the whole loss; the weight is an input of it.
Tensor recorded(std::string_view op,
                Tensor (*loss)(const Tensor&, const Tensor&, const ClassLossOptions&),
                const Tensor& input, const Tensor& target, const ClassLossOptions& options) {
  return replay::call(
      op,
      [=](const Tensor& a, const Tensor& b, const Tensor& weight) {
        ClassLossOptions given = options;
        given.weight = weight;
        return loss(a, b, given);
      },
      input, target, options.weight);
}

}  // namespace

Tensor nll_loss(const Tensor& input, const Tensor& target, const ClassLossOptions& options) {
  constexpr std::string_view kOp = "nll_loss";
  if (replay::is_recording()) {
    return recorded(kOp, nll_loss, input, target, options);
  }
  OpScope scope(kOp);
  const std::int64_t classes = classes_of(kOp, input);
  check_class_options(kOp, input, classes, options);
  QUANTA_CHECK(options.label_smoothing == 0.0,
               "{}: label_smoothing: expected 0 (cross_entropy has it), got {}", kOp,
               options.label_smoothing);
  const Tensor indices = checked_targets(kOp, input, target, classes, options.ignore_index);
  const Tensor rows = classes_last(detail::off_tape(input)).contiguous();
  return class_loss(kOp, input, Tensor(), rows, indices, classes, options,
                    Scores::LogProbabilities);
}

Tensor cross_entropy(const Tensor& input, const Tensor& target, const ClassLossOptions& options) {
  constexpr std::string_view kOp = "cross_entropy";
  if (replay::is_recording()) {
    return recorded(kOp, cross_entropy, input, target, options);
  }
  OpScope scope(kOp);
  const std::int64_t classes = classes_of(kOp, input);
  check_class_options(kOp, input, classes, options);
  QUANTA_CHECK(target.defined(), "{}: target: expected a tensor, got an undefined one", kOp);
  const bool probabilities = target.is_floating_point();
  QUANTA_CHECK(
      !probabilities || (target.dtype() == input.dtype() && target.sizes() == input.sizes()),
      "{}: target: expected class indices, or probabilities {} {} as input is, got {} {}", kOp,
      input.dtype(), input.sizes(), target.dtype(), target.sizes());
  const Tensor asked = probabilities
                           ? classes_last(detail::off_tape(target)).contiguous()
                           : checked_targets(kOp, input, target, classes, options.ignore_index);
  const Tensor rows = log_softmax(classes_last(detail::off_tape(input)).contiguous(), -1);
  return class_loss(kOp, input, probabilities ? target : Tensor(), rows, asked, classes, options,
                    Scores::Logits);
}

}  // namespace quanta
