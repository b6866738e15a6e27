#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "quanta/nn/optim/checkpoint.h"
#include "quanta/runtime/tensor.h"

// A training is for one thread at a time. What each function throws is said below.

namespace quanta::optim {

/// The loss as a number. Throws NumericError that names the step when it is NaN or infinite,
/// ArgumentError when it has several elements.
double require_finite_loss(const Tensor& loss, std::int64_t step);

/// The steps of a training, whose last good state stays on disk whatever happens:
///
///   optim::TrainingLoop loop({net, optimizer, &scheduler}, {.checkpoint = "run.safetensors"});
///   Counters counters = loop.resume();
///   for (...) {
///     loop.step([&] { return cross_entropy(net(x), target); });
///     if (...) loop.save(counters);
///   }
class TrainingLoop {
 public:
  struct Options {
    /// Where save() writes and resume() reads; empty: neither does anything.
    std::filesystem::path checkpoint{};
    /// Gradients are scaled down to this common norm; none: they stay.
    std::optional<double> max_grad_norm{};
  };

  explicit TrainingLoop(const TrainingParts& training);
  /// Throws ArgumentError for max_grad_norm < 0.
  TrainingLoop(const TrainingParts& training, Options options);

  /// One step: gradients dropped, `loss` called and gone back through, the optimizer's and the
  /// scheduler's step. Gives the loss. A loss (or, with max_grad_norm, a gradient) that is NaN or
  /// infinite throws NumericError that names the last good checkpoint; the parameters are as they
  /// were before the step. So does an error within `loss` when it is parameters that broke before.
  double step(const std::function<Tensor()>& loss);
  /// Writes the checkpoint, unless a parameter is NaN or infinite: then the file stays as it is and
  /// NumericError is thrown. Throws FileError.
  void save(const Counters& counters = {});
  /// Goes on from the checkpoint, if there is one: its counters, or nothing. Throws as
  /// load_checkpoint, FileError also for one without a counter that is `required`.
  std::optional<Counters> resume(const std::vector<std::string>& required = {});

 private:
  void refuse(const std::string& what) const;

  TrainingParts training_;
  Options options_;
  std::optional<std::int64_t> saved_step_;  // of the checkpoint that is on disk
};

}  // namespace quanta::optim
