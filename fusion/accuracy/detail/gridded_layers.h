#pragma once

// Private: the layers whose weights methods round.

#include <string>
#include <string_view>
#include <vector>

#include "quanta/fusion/accuracy/detail/weighted_layers.h"

namespace quanta::accuracy {

/// A layer with integer weights, its grid, and the layer of the same path in the reference.
struct GriddedLayer {
  WeightedLayer layer;
  WeightedLayer reference;
  WeightGrid grid;
};

/// Those of `model` whose QConfig quantizes the weight. Throws ArgumentError, naming `method`, where
/// there is none, where `reference` has other layers, and for weights that are not finite.
std::vector<GriddedLayer> gridded_layers(std::string_view method, nn::Module& model,
                                         nn::Module& reference, const QConfigMapping& qconfigs);
std::vector<WeightedLayer> references_of(const std::vector<GriddedLayer>& layers);
/// The one of that path, which is there.
const GriddedLayer& find_layer(const std::vector<GriddedLayer>& layers, std::string_view path);

}  // namespace quanta::accuracy
