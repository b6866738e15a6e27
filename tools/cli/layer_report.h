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
  double scale = 0.0;  ///< of an int8 result
  std::int64_t zero_point = 0;
  double sqnr_db = 0.0;  ///< 10 log10(sum float^2 / sum (float - quantized)^2)
};

/// Runs `x` through both models (fused float, and converted or simulated, same tree) and compares
/// the output of every module that was swapped for an int8 one or fake-quantizes its result, in the
/// order of execution. The models are spoiled: their observers are replaced by ones that capture.
std::vector<LayerRow> capture_layers(nn::Module& fused_float, nn::Module& quantized,
                                     const Tensor& x);

/// The same on copies.
template <typename Net>
std::vector<LayerRow> layer_report(const Net& fused_float, const Net& quantized, const Tensor& x) {
  Net float_copy = nn::deep_copy(fused_float);
  Net quantized_copy = nn::deep_copy(quantized);
  return capture_layers(float_copy, quantized_copy, x);
}

/// 10 log10(sum reference^2 / sum (reference - value)^2); infinite when equal.
double sqnr_db(const Tensor& reference, const Tensor& value);

}  // namespace quanta::cli
