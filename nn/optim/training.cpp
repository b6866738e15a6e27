#include "quanta/nn/optim/training.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "quanta/nn/optim/detail/gradient_norm.h"
#include "quanta/runtime/check.h"

namespace quanta::optim {
namespace {

// The first parameter that is no number any more, or "".
std::string broken_parameter(const nn::Module& model) {
  std::vector<Tensor> values;
  std::vector<std::string> paths;
  for (const auto& [path, parameter] : model.named_parameters()) {
    if (!parameter.is_floating_point()) continue;
    values.push_back(parameter.detach());
    paths.push_back(path);
  }
  const std::vector<double> largest =
      powers_of_norms(values, std::numeric_limits<double>::infinity());
  const auto broken = std::find_if_not(largest.begin(), largest.end(),
                                       [](double size) { return std::isfinite(size); });
  return broken == largest.end() ? std::string()
                                 : paths[static_cast<std::size_t>(broken - largest.begin())];
}

}  // namespace

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
  throw NumericError(fmt::format("{}; {}", what,
                                 saved_step_
                                     ? fmt::format("the last good checkpoint, of step {}, is {}",
                                                   *saved_step_, options_.checkpoint.string())
                                     : std::string("there is no checkpoint")));
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
    std::vector<Tensor> parameters;
    for (const ParameterGroup& group : training_.optimizer.groups()) {
      parameters.insert(parameters.end(), group.parameters.begin(), group.parameters.end());
    }
    const double norm = clip_grad_norm_(parameters, *options_.max_grad_norm);
    if (!std::isfinite(norm)) {
      refuse(fmt::format("training: gradients: expected a finite norm, got {} at step {}", norm,
                         number));
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

std::optional<Counters> TrainingLoop::resume() {
  if (options_.checkpoint.empty() || !std::filesystem::exists(options_.checkpoint)) {
    return std::nullopt;
  }
  Counters counters = load_checkpoint(options_.checkpoint, training_);
  saved_step_ = training_.optimizer.steps();
  return counters;
}

}  // namespace quanta::optim
