#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "quanta/nn/module.h"

namespace quanta::cli {

/// What quantization did to one layer's output.
struct LayerRow {
  std::string path;
  std::string type;
  double scale = 0.0;
  std::int64_t zero_point = 0;
  double sqnr_db = 0.0;  ///< 10 log10(sum float^2 / sum (float - int8)^2)
};

/// Runs `x` through copies of both models (fused float and converted, same tree) and compares the
/// output of every swapped module, in the order of execution.
std::vector<LayerRow> layer_report(const nn::Module& fused_float, const nn::Module& converted,
                                   const Tensor& x);

/// 10 log10(sum reference^2 / sum (reference - value)^2); infinite when equal.
double sqnr_db(const Tensor& reference, const Tensor& value);

}  // namespace quanta::cli
