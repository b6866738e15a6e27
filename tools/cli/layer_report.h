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

/// Runs `x` through both models (fused float and converted, same tree) and compares the output of
/// every swapped module, in the order of execution. The models are spoiled: their observers are
/// replaced by ones that capture.
std::vector<LayerRow> capture_layers(nn::Module& fused_float, nn::Module& converted,
                                     const Tensor& x);

/// The same on copies.
template <typename Net>
std::vector<LayerRow> layer_report(const Net& fused_float, const Net& converted, const Tensor& x) {
  Net float_copy = nn::deep_copy(fused_float);
  Net converted_copy = nn::deep_copy(converted);
  return capture_layers(float_copy, converted_copy, x);
}

/// 10 log10(sum reference^2 / sum (reference - value)^2); infinite when equal.
double sqnr_db(const Tensor& reference, const Tensor& value);

}  // namespace quanta::cli
