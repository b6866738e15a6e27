#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "quanta/runtime/tensor.h"

// Metrics are plain values: threads may share what none of them changes. What each function throws is
// said below.

namespace quanta::distributed {

/// What an evaluation asks of every example: some numbers, of which it gives the means.
struct Metric {
  /// What the numbers are called: "top-1".
  std::vector<std::string> names;
  /// For a batch: Float32 or Float64 [N, names.size()] or, of one name, [N].
  std::function<Tensor(const Tensor& output, const Tensor& target)> values;
};

/// "top-1": 1 where the largest of an example's outputs [N, C, ...] is at the target's place (Int64
/// [N, ...]), else 0; the first of equal ones. With more dimensions the share of the places. Throws
/// ArgumentError for outputs and targets that do not fit.
Metric accuracy();
/// "top-k": 1 where fewer than `k` outputs of [N, C] are larger than the target's, else 0. Throws
/// ArgumentError for k < 1.
Metric top_k(std::int64_t k);
/// "loss": cross_entropy of each example, logits [N, C], target Int64 [N].
Metric cross_entropy_loss();
/// "mse": the mean of an example's squared differences, in Float64.
Metric mean_squared_error();
/// C * C numbers named "row:column": 1 where the target (row) and the largest output (column) are
/// these classes. Their sums are the confusion matrix. Throws ArgumentError for classes < 1 or more
/// than 4096.
Metric confusion_matrix(std::int64_t classes);
/// The numbers of several metrics, one after the other, all of which get the same dense tensors in the
/// host's memory.
Metric combine(std::vector<Metric> metrics);

}  // namespace quanta::distributed
