#pragma once

// Private: what the training loops share.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "quanta/nn/module.h"
#include "quanta/nn/optim/optimizer.h"
#include "quanta/runtime/tensor.h"

namespace quanta::optim {

/// Those of all groups, in order.
std::vector<Tensor> parameters_of(const Optimizer& optimizer);

/// The first floating parameter that is no number any more, or "".
std::string broken_parameter(const nn::Module& model);

/// Scales the gradients down to the common norm. What is wrong where that is not finite, or nothing.
std::optional<std::string> clip_gradients(const Optimizer& optimizer, double max_grad_norm);

/// Throws NumericError: `what`, and the last good checkpoint if there is one.
[[noreturn]] void refuse_to_go_on(const std::string& what, std::optional<std::int64_t> saved_step,
                                  const std::filesystem::path& checkpoint);

}  // namespace quanta::optim
