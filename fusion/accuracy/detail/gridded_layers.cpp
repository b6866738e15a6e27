#include "quanta/fusion/accuracy/detail/gridded_layers.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "quanta/runtime/check.h"
#include "quanta/runtime/error.h"

namespace quanta::accuracy {

std::vector<GriddedLayer> gridded_layers(std::string_view method, nn::Module& model,
                                         nn::Module& reference, const QConfigMapping& qconfigs) {
  const std::vector<WeightedLayer> references = weighted_layers(reference);
  std::vector<GriddedLayer> layers;
  for (WeightedLayer& layer : weighted_layers(model, qconfigs)) {
    if (!layer.qconfig || !layer.qconfig->weight) continue;
    const auto same =
        std::find_if(references.begin(), references.end(),
                     [&](const WeightedLayer& other) { return other.path == layer.path; });
    QUANTA_CHECK(same != references.end() && same->weight->sizes() == layer.weight->sizes(),
                 "{}: reference: expected the model's layers, got none like '{}'", method,
                 layer.path);
    const std::vector<float> values = layer.weight->to_float_vector();
    QUANTA_CHECK(
        std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); }),
        "{}: '{}': expected a weight of finite numbers, got NaN or infinity", method, layer.path);
    std::optional<WeightGrid> grid = weight_grid(layer);
    layers.push_back({std::move(layer), *same, std::move(*grid)});
  }
  QUANTA_CHECK(!layers.empty(),
               "{}: qconfigs: expected one with integer weights for a convolution or linear layer "
               "of the model (fuse batch norms first), got none",
               method);
  return layers;
}

std::vector<WeightedLayer> references_of(const std::vector<GriddedLayer>& layers) {
  std::vector<WeightedLayer> references;
  references.reserve(layers.size());
  for (const GriddedLayer& layer : layers) references.push_back(layer.reference);
  return references;
}

const GriddedLayer& find_layer(const std::vector<GriddedLayer>& layers, std::string_view path) {
  const auto found =
      std::find_if(layers.begin(), layers.end(),
                   [path](const GriddedLayer& gridded) { return gridded.layer.path == path; });
  if (found == layers.end()) throw InternalError("find_layer: no layer of that path");
  return *found;
}

}  // namespace quanta::accuracy
