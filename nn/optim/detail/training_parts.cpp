#include "quanta/nn/optim/detail/training_parts.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "quanta/nn/optim/detail/gradient_norm.h"
#include "quanta/runtime/check.h"

namespace quanta::optim {

std::vector<Tensor> parameters_of(const Optimizer& optimizer) {
  std::vector<Tensor> parameters;
  for (const ParameterGroup& group : optimizer.groups()) {
    parameters.insert(parameters.end(), group.parameters.begin(), group.parameters.end());
  }
  return parameters;
}

std::string broken_parameter(const nn::Module& model) {
  std::vector<Tensor> values;
  std::vector<std::string> paths;
  for (const auto& [path, parameter] : model.named_parameters()) {
    if (!parameter.is_floating_point()) continue;
    // Norms are those of floats and doubles.
    values.push_back(parameter.dtype() == DType::Float64 ? parameter.detach()
                                                         : parameter.detach().to(DType::Float32));
    paths.push_back(path);
  }
  const std::vector<double> largest =
      powers_of_norms(values, std::numeric_limits<double>::infinity());
  const auto broken = std::find_if_not(largest.begin(), largest.end(),
                                       [](double size) { return std::isfinite(size); });
  return broken == largest.end() ? std::string()
                                 : paths[static_cast<std::size_t>(broken - largest.begin())];
}

std::optional<std::string> clip_gradients(const Optimizer& optimizer, double max_grad_norm) {
  const double norm = clip_grad_norm_(parameters_of(optimizer), max_grad_norm);
  if (std::isfinite(norm)) return std::nullopt;
  return fmt::format("training: gradients: expected a finite norm, got {} at step {}", norm,
                     optimizer.steps() + 1);
}

void refuse_to_go_on(const std::string& what, std::optional<std::int64_t> saved_step,
                     const std::filesystem::path& checkpoint) {
  throw NumericError(fmt::format("{}; {}", what,
                                 saved_step
                                     ? fmt::format("the last good checkpoint, of step {}, is {}",
                                                   *saved_step, checkpoint.string())
                                     : std::string("there is no checkpoint")));
}

}  // namespace quanta::optim
