#include "quanta/fusion/accuracy/gptq.h"

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "quanta/fusion/accuracy/detail/gptq_columns.h"
#include "quanta/fusion/accuracy/detail/gridded_layers.h"
#include "quanta/fusion/accuracy/detail/layer_matrix.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/runtime/autograd.h"

namespace quanta {
namespace {

using accuracy::GptqSettings;
using accuracy::GriddedLayer;
using accuracy::LayerMatrix;
using accuracy::WeightedLayer;

GptqSettings settings_of(const GptqOptions& options) {
  return {options.percdamp, options.act_order, options.block_size};
}

Tensor round_on_grid(nn::Module& model, const GriddedLayer& gridded, const Calibrate& run,
                     const GptqSettings& settings) {
  const WeightedLayer& layer = gridded.layer;
  const accuracy::WeightGrid& grid = gridded.grid;
  const LayerMatrix matrix(layer);
  const Tensor zeros = Tensor::zeros(layer.weight->sizes());
  const auto for_each_weight = [&](const Tensor& values) {
    return matrix.as_matrix(zeros + values).to_float_vector();
  };
  const std::vector<float> scales = for_each_weight(grid.scale_for(layer.weight->dim()));
  const std::vector<float> zero_points = for_each_weight(grid.zero_point_for(layer.weight->dim()));
  const std::vector<float> floats = matrix.as_matrix(layer.weight->detach()).to_float_vector();
  std::vector<double> weight(floats.begin(), floats.end());
  const std::vector<std::vector<double>> hessians = accuracy::input_hessians(model, layer, run);
  const auto n = static_cast<std::size_t>(matrix.columns());
  const std::size_t size = static_cast<std::size_t>(matrix.rows()) * n;
  const auto low = static_cast<double>(grid.quant_min);
  const auto high = static_cast<double>(grid.quant_max);
  for (std::size_t g = 0; g < hessians.size(); ++g) {
    const std::span<double> group = std::span(weight).subspan(g * size, size);
    const accuracy::GptqColumns columns(hessians[g], group, settings, layer.path);
    columns.round(0, n, group, [&](std::size_t row, std::size_t column, double value) {
      const std::size_t i = g * size + row * n + column;
      const auto zero_point = static_cast<double>(zero_points[i]);
      const double code = accuracy::code_of(value, scales[i], zero_point, low, high);
      return accuracy::value_of(code, scales[i], zero_point);
    });
  }
  const std::vector<float> rounded(weight.begin(), weight.end());
  return matrix.as_weight(
      Tensor::from_values(rounded, {matrix.groups(), matrix.rows(), matrix.columns()}));
}

void round_layers(nn::Module& model, nn::Module& reference, const QConfigMapping& qconfigs,
                  const CalibrationData& data, const GptqSettings& settings) {
  const autograd::NoGradGuard no_grad;
  const std::vector<GriddedLayer> layers =
      accuracy::gridded_layers("gptq", model, reference, qconfigs);
  const accuracy::CallSizes calls =
      accuracy::sizes_of_calls("gptq", reference, accuracy::references_of(layers), data.run);
  std::size_t done = 0;
  for (const std::string& path : calls.order) {
    const GriddedLayer& gridded = accuracy::find_layer(layers, path);
    *gridded.layer.weight = round_on_grid(model, gridded, data.run, settings);
    accuracy::keep_grid(gridded.layer, gridded.grid);
    data.report("gptq: " + path, ++done, layers.size());
  }
}

}  // namespace

AccuracyMethod gptq_method(const GptqOptions& options) {
  const GptqSettings settings = settings_of(options);
  accuracy::check(settings);
  return {.name = "gptq",
          .apply =
              [settings](nn::Module& model, nn::Module& reference, const QConfigMapping& qconfigs,
                         const CalibrationData& data) {
                round_layers(model, reference, qconfigs, data, settings);
              },
          .compensates = true};
}

}  // namespace quanta
