#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "quanta/nn/module.h"
#include "quanta/nn/optim/lr_scheduler.h"
#include "quanta/nn/optim/optimizer.h"
#include "quanta/runtime/random.h"

// A training is for one thread at a time, its checkpoints too. What each function throws is said
// below.

namespace quanta::optim {

/// Whole numbers by name that a training counts or that say where its data loader stands
/// ("epoch", "loader.batch").
using Counters = std::map<std::string, std::int64_t>;

/// What a training consists of, besides its own counters. Nothing is owned.
struct TrainingParts {
  nn::Module& model;
  Optimizer& optimizer;
  LRScheduler* scheduler = nullptr;
  /// Whose sequence goes on too (dropout, shuffling).
  Generator& generator = default_generator();
};

/// Writes everything that a training needs to go on exactly as if it had not been stopped: the
/// model's state (with its observers and fake quantizers), the optimizer's, the scheduler's step,
/// the random numbers and the counters; one .safetensors file, named `model.NAME`,
/// `optimizer.NAME`, the rest in the metadata. To be called between two steps: gradients are not
/// saved. Atomic as write_safetensors. Throws FileError.
void save_checkpoint(const TrainingParts& training, const std::filesystem::path& path,
                     const Counters& counters = {});
/// The same with the path first, as earlier versions had it.
inline void save_checkpoint(const std::filesystem::path& path, const TrainingParts& training,
                            const Counters& counters = {}) {
  save_checkpoint(training, path, counters);
}

/// Reads it into a training that was built in the same way, and gives the counters. Throws
/// FileError for a file that is missing, damaged, no checkpoint or without one of the counters
/// `required`, and ArgumentError for one of another model, optimizer or schedule; then nothing was
/// changed.
Counters load_checkpoint(const std::filesystem::path& path, const TrainingParts& training,
                         const std::vector<std::string>& required = {});

}  // namespace quanta::optim
