#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "quanta/nn/data/data_loader.h"
#include "quanta/nn/module.h"
#include "quanta/nn/optim/training.h"

namespace quanta::examples {

/// Goes through the loader until `epochs` of them are done: a bar each with loss and accuracy on
/// what it trains on. `before_step` gets the number of steps that are done, `after_step` the loss.
/// Where the loop has a checkpoint, the training goes on from it, and it is written four times an
/// epoch. Throws NumericError as TrainingLoop::step.
void train_epochs(const nn::Module& net, optim::TrainingLoop& loop, data::DataLoader& loader,
                  std::int64_t epochs, const std::string& label,
                  const std::function<void(std::int64_t)>& before_step = {},
                  const std::function<void(double loss)>& after_step = {});

/// How many rows of scores [N, C] are largest at their target.
std::int64_t count_right(const Tensor& scores, const Tensor& targets);

/// `--name value` from a program's arguments, or nothing. Throws ArgumentError for a name without
/// a value.
std::optional<std::string> option(int argc, char** argv, const std::string& name);
/// The same as a whole number of at least `least`.
std::int64_t number_option(int argc, char** argv, const std::string& name, std::int64_t otherwise,
                           std::int64_t least = 1);
/// The same as yes or no, which it is without the option.
bool yes_option(int argc, char** argv, const std::string& name);

}  // namespace quanta::examples
