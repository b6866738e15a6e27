#pragma once

// Private: which layers a WeightOnlyFilter takes.

#include <string>

#include "quanta/fusion/quantize_weight_only.h"

namespace quanta {

/// Throws ArgumentError for names that are no paths of the model.
void check_names(const nn::Module& model, const WeightOnlyFilter& filter);
bool takes(const WeightOnlyFilter& filter, const std::string& path, const nn::Module& layer);

}  // namespace quanta
