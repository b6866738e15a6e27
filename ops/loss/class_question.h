#pragma once

// Private: what losses over classes ask of each row of scores.

#include <cstdint>

#include "quanta/runtime/host_device.h"

namespace quanta::loss {

/// Row i has the loss -sum of q[c] * log_probability[c], where
///   q[c] = ((1 - smoothing) * [c == target] + smoothing / C) * weight[c],
/// or q[c] = ((1 - smoothing) * target[c] + smoothing / C) * weight[c].
template <typename T>
struct ClassQuestion {
  std::int64_t classes = 1;
  std::int64_t ignore_index = 0;
  T kept = 1;                             // 1 - smoothing
  T spread = 0;                           // smoothing / C
  const T* weights = nullptr;             // [C]; null: 1
  const T* shares = nullptr;              // targets that are probabilities, [rows, C],
  const std::int64_t* indices = nullptr;  // or classes, [rows]

  QUANTA_HOST_DEVICE bool is_allowed(std::int64_t target) const {
    return (target >= 0 && target < classes) || target == ignore_index;
  }
  QUANTA_HOST_DEVICE bool ignores(std::int64_t row) const {
    return indices != nullptr && indices[row] == ignore_index;
  }
  QUANTA_HOST_DEVICE T weight(std::int64_t c) const {
    return weights == nullptr ? T{1} : weights[c];
  }
  QUANTA_HOST_DEVICE T q(std::int64_t row, std::int64_t c) const {
    const T share =
        indices == nullptr ? shares[row * classes + c] : static_cast<T>(indices[row] == c);
    return (kept * share + spread) * weight(c);
  }
  /// Whether q is 0 but for the target's class.
  QUANTA_HOST_DEVICE bool is_one_hot() const { return indices != nullptr && spread == T{0}; }
  /// What a row adds to the divisor of the mean.
  QUANTA_HOST_DEVICE double part_of_mean(std::int64_t row) const {
    if (indices == nullptr) return 1.0;
    return ignores(row) ? 0.0 : static_cast<double>(weight(indices[row]));
  }

  // Of one-hot rows that are not ignored.
  QUANTA_HOST_DEVICE double one_hot_loss(std::int64_t row, const T* log_probabilities) const {
    const std::int64_t target = indices[row];
    return -static_cast<double>(weight(target)) *
           static_cast<double>(log_probabilities[row * classes + target]);
  }
  QUANTA_HOST_DEVICE double one_hot_total(std::int64_t row) const {
    return static_cast<double>(weight(indices[row]));
  }

  // Of others: what a class adds to minus the loss, and to the sum of q.
  QUANTA_HOST_DEVICE double gain_of_class(std::int64_t row, std::int64_t c,
                                          const T* log_probabilities) const {
    const T share = q(row, c);
    // 0 * -inf counts for nothing.
    if (share == T{0}) return 0.0;
    return static_cast<double>(share) * static_cast<double>(log_probabilities[row * classes + c]);
  }
};

/// The gradient of a score, factor * (probability * total - q), from what of it is factor *
/// probability * total (0 for scores that are log-probabilities).
template <typename T>
QUANTA_HOST_DEVICE T score_gradient(const ClassQuestion<T>& question, std::int64_t row,
                                    std::int64_t c, T factor, T up) {
  if (!question.is_one_hot()) return up - factor * question.q(row, c);
  return question.indices[row] == c ? up - factor * question.weight(c) : up;
}

/// Of a target that is a probability.
template <typename T>
QUANTA_HOST_DEVICE T share_gradient(const ClassQuestion<T>& question, std::int64_t c, T factor,
                                    T log_probability) {
  return -factor * question.kept * question.weight(c) * log_probability;
}

/// How far a loss is from the scores: by nothing, or by a log_softmax.
enum class Scores : bool { LogProbabilities, Logits };

}  // namespace quanta::loss
