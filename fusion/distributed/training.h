#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "quanta/fusion/distributed/data_parallel.h"
#include "quanta/fusion/distributed/zero_redundancy_optimizer.h"
#include "quanta/nn/optim/checkpoint.h"

namespace quanta::distributed {

/// What a rank's training consists of, besides its own counters. Nothing is owned.
struct TrainingParts {
  DataParallel& model;
  optim::Optimizer& optimizer;
  optim::LRScheduler* scheduler = nullptr;
  /// Where the optimizer's state is divided among the ranks.
  ZeroRedundancyOptimizer* zero = nullptr;
  /// Whose sequence goes on too. Ranks that are threads of one process need one each, unless nothing
  /// draws from it.
  Generator& generator = default_generator();
};

/// optim::save_checkpoint of a training on several ranks: rank 0 writes the file, which is that of a
/// training on one rank, whole or not at all. All ranks call it between two steps, and go on with rank
/// 0's random numbers, as a training that resumes does. A write that fails throws FileError on all of them.
void save_checkpoint(const TrainingParts& training, const std::filesystem::path& path,
                     const optim::Counters& counters = {});
/// Rank 0 reads, all go on from there, on any number of ranks. Throws on all ranks as
/// optim::load_checkpoint does; then nothing was changed.
optim::Counters load_checkpoint(const std::filesystem::path& path, const TrainingParts& training,
                                const std::vector<std::string>& required = {});

/// optim::TrainingLoop for several ranks, which call its functions together:
///
///   distributed::TrainingLoop loop({parallel, optimizer, &scheduler}, {.checkpoint = "run.safetensors"});
///   Counters counters = loop.resume({"epoch"}).value_or(...);
///   for (const data::Batch& part : loader) {
///     loop.step(part.target.size(0), [&] { return cross_entropy(net(part.input), part.target); });
///     if (...) loop.save(counters);
///   }
class TrainingLoop {
 public:
  struct Options {
    /// Where save() writes and resume() reads, for rank 0; empty: neither does anything. The same on
    /// all ranks.
    std::filesystem::path checkpoint{};
    /// Gradients are scaled down to this common norm; none: they stay.
    std::optional<double> max_grad_norm{};
    /// So many calls of step() make one change of the parameters (gradient accumulation): by the mean
    /// over all of their examples.
    std::int64_t accumulate = 1;
  };

  explicit TrainingLoop(const TrainingParts& training);
  /// Throws ArgumentError for max_grad_norm < 0 and accumulate < 1.
  TrainingLoop(const TrainingParts& training, Options options);

  /// One step: `loss` gives the mean over this rank's `examples` (see DataParallel::backward), whose
  /// gradients all ranks share; then the optimizer's and the scheduler's step. Gives the mean loss over
  /// all examples, or nothing where more calls are to come before the change. NumericError names the
  /// last good checkpoint; the parameters are as they were before the step.
  std::optional<double> step(std::int64_t examples, const std::function<Tensor()>& loss);
  /// Writes the checkpoint, unless a parameter of rank 0 is NaN or infinite: NumericError then, on all
  /// ranks, and the file stays as it is. Throws ArgumentError between calls of step() that make one
  /// change, FileError.
  void save(const optim::Counters& counters = {});
  /// Goes on from the checkpoint, if there is one: its counters, or nothing. Throws as load_checkpoint,
  /// FileError also for one without a counter that is `required`. All ranks require the same.
  std::optional<optim::Counters> resume(const std::vector<std::string>& required = {});

 private:
  [[noreturn]] void refuse(const std::string& what) const;

  TrainingParts training_;
  Options options_;
  std::int64_t gathered_ = 0;               // calls since the last change
  std::optional<std::int64_t> saved_step_;  // of the checkpoint that is on disk
};

}  // namespace quanta::distributed
