#include "quanta/nn/optim/training.h"

#include <cmath>
#include <string>
#include <utility>

#include "quanta/nn/optim/detail/training_parts.h"
#include "quanta/runtime/check.h"

namespace quanta::optim {
double require_finite_loss(const Tensor& loss, std::int64_t step) {
  QUANTA_CHECK(loss.defined() && loss.numel() == 1,
               "require_finite_loss: loss: expected a single number, got {}",
               loss.defined() ? to_string(loss.sizes()) : "none");
  const double value = loss.item();
  if (!std::isfinite(value)) {
    throw NumericError(
        fmt::format("training: loss: expected a finite number, got {} at step {}", value, step));
  }
  return value;
}

TrainingLoop::TrainingLoop(const TrainingParts& training) : TrainingLoop(training, Options()) {}

TrainingLoop::TrainingLoop(const TrainingParts& training, Options options)
    : training_(training), options_(std::move(options)) {
  QUANTA_CHECK(!options_.max_grad_norm || *options_.max_grad_norm >= 0.0,
               "TrainingLoop: max_grad_norm: expected >= 0, got {}", *options_.max_grad_norm);
}

void TrainingLoop::refuse(const std::string& what) const {
  refuse_to_go_on(what, saved_step_, options_.checkpoint);
}

double TrainingLoop::step(const std::function<Tensor()>& loss) {
  const std::int64_t number = training_.optimizer.steps() + 1;
  training_.optimizer.zero_grad();
  Tensor result;
  try {
    result = loss();
  } catch (const ArgumentError& error) {
    // Observers do not take NaN: after a step that broke the parameters that is what is seen first.
    const std::string broken = broken_parameter(training_.model);
    if (broken.empty()) throw;
    refuse(fmt::format("training: {}: expected finite parameters, got others at step {} ({})",
                       broken, number, error.what()));
  }
  double value = 0.0;
  try {
    value = require_finite_loss(result, number);
  } catch (const NumericError& error) {
    refuse(error.what());
  }
  result.backward();
  if (options_.max_grad_norm) {
    if (const auto wrong = clip_gradients(training_.optimizer, *options_.max_grad_norm)) {
      refuse(*wrong);
    }
  }
  training_.optimizer.step();
  if (training_.scheduler != nullptr) training_.scheduler->step();
  return value;
}

void TrainingLoop::save(const Counters& counters) {
  if (options_.checkpoint.empty()) return;
  if (const std::string broken = broken_parameter(training_.model); !broken.empty()) {
    refuse(fmt::format("training: {}: expected finite parameters, got others after step {}", broken,
                       training_.optimizer.steps()));
  }
  save_checkpoint(training_, options_.checkpoint, counters);
  saved_step_ = training_.optimizer.steps();
}

std::optional<Counters> TrainingLoop::resume(const std::vector<std::string>& required) {
  if (options_.checkpoint.empty() || !std::filesystem::exists(options_.checkpoint)) {
    return std::nullopt;
  }
  Counters counters = load_checkpoint(options_.checkpoint, training_, required);
  saved_step_ = training_.optimizer.steps();
  return counters;
}

}  // namespace quanta::optim
