#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/fusion/distributed/communicator.h"
#include "quanta/fusion/distributed/exact_sum.h"
#include "quanta/fusion/distributed/metric.h"
#include "quanta/nn/data/data_loader.h"
#include "quanta/nn/module.h"

// What each function throws is said below. For one thread of each rank.

namespace quanta::distributed {

struct EvaluateOptions {
  /// Batches are the same on any number of ranks: each rank gets whole ones.
  std::int64_t batch_size = 64;
  data::Transform transform{};
  /// How many batches a thread makes ahead.
  std::int64_t prefetch = 2;
  /// Called by the first rank as its share of the examples goes on, scaled to all of them.
  std::function<void(std::int64_t done, std::int64_t total)> progress{};
};

/// Sums over all examples, the same on all ranks.
class Evaluation {
 public:
  std::int64_t examples() const noexcept { return examples_; }
  const std::vector<std::string>& names() const noexcept { return names_; }
  /// The sum and the mean of a metric's number, correctly rounded. Throws ArgumentError for a name
  /// that the metric does not have; the mean of no examples is NaN.
  double sum(std::string_view name) const;
  double mean(std::string_view name) const;
  /// The mean of the first number.
  double value() const { return mean(names_.front()); }

 private:
  friend Evaluation evaluate(const std::function<Tensor(const Tensor&)>& model,
                             const std::shared_ptr<const data::Dataset>& dataset,
                             const Metric& metric, const Communicator& comm,
                             const EvaluateOptions& options);
  std::int64_t examples_ = 0;
  std::vector<std::string> names_;
  std::vector<ExactSum> sums_;
};

/// Runs `model` over the data set, each rank over its whole batches, without recording gradients, and
/// adds up what `metric` says of each example, exactly: the result is the same to the last bit on any
/// number of ranks, as far as the model gives a batch the same output on each of them (it does with
/// the same number of threads on the same kind of CPU). `model` is anything that takes a batch's input
/// and gives its output: a network, a plan (`[&](const Tensor& x) { return plan(x); }`), an ONNX graph.
/// All ranks call it. Throws ArgumentError for no data set, batch_size < 1 and a metric whose values
/// do not fit, and what the model throws.
Evaluation evaluate(const std::function<Tensor(const Tensor&)>& model,
                    const std::shared_ptr<const data::Dataset>& dataset, const Metric& metric,
                    const Communicator& comm, const EvaluateOptions& options = {});
/// The same of a network. Throws ArgumentError for one in train mode, and for observers that wait for
/// all ranks (sync_observers).
Evaluation evaluate(const nn::Module& model, const std::shared_ptr<const data::Dataset>& dataset,
                    const Metric& metric, const Communicator& comm,
                    const EvaluateOptions& options = {});

}  // namespace quanta::distributed
