#include "quanta/fusion/accuracy/adaround.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "quanta/fusion/accuracy/detail/following_activation.h"
#include "quanta/fusion/accuracy/detail/gridded_layers.h"
#include "quanta/fusion/accuracy/detail/layer_matrix.h"
#include "quanta/fusion/accuracy/detail/shuffled_numbers.h"
#include "quanta/fusion/accuracy/detail/soft_rounding.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/indexing.h"
#include "quanta/ops/matmul.h"
#include "quanta/ops/reduce.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/random.h"

namespace quanta {
namespace {

using accuracy::GriddedLayer;
using accuracy::LayerMatrix;
using accuracy::SoftRounding;
using accuracy::WeightedLayer;

void check(const AdaRoundOptions& options) {
  accuracy::check("adaround", accuracy::rounding_of(options));
  QUANTA_CHECK(options.positions >= 1, "adaround: positions: expected at least 1, got {}",
               options.positions);
}

// x [groups, positions, columns], target [groups, positions, rows].
Tensor fit(const GriddedLayer& gridded, const Operation* activation, const Tensor& x,
           const Tensor& target, const AdaRoundOptions& options, Generator& generator) {
  const WeightedLayer& layer = gridded.layer;
  const LayerMatrix matrix(layer);
  const auto activated = [&](const Tensor& y) {
    return activation != nullptr ? run(*activation, std::span<const Tensor>(&y, 1)) : y;
  };
  const Tensor bias = layer.bias->defined()
                          ? layer.bias->detach().reshape({matrix.groups(), 1, matrix.rows()})
                          : Tensor();
  const std::int64_t positions = x.size(1);
  const std::int64_t size = std::min(options.batch_size, positions);
  accuracy::ShuffledNumbers numbers(positions);

  SoftRounding rounding(*layer.weight, gridded.grid);
  const autograd::EnableGradGuard with_tape;
  for (std::int64_t i = 0; i < options.iterations; ++i) {
    const Tensor batch = numbers.next(size, generator);
    const Tensor soft = rounding.soft();
    soft.set_requires_grad();
    const Tensor weight = matrix.as_matrix(soft).transpose(1, 2);
    Tensor y = bmm(index_select(x, 1, batch), weight);
    if (bias.defined()) y = y + bias;
    const Tensor error = activated(y) - activated(index_select(target, 1, batch));
    mul_scalar(sum(error * error), 1.0 / static_cast<double>(size)).backward();
    rounding.step(soft.grad(), accuracy::rounding_step(i, accuracy::rounding_of(options)));
  }
  return rounding.hard();
}

}  // namespace

void adaround_(nn::Module& model, nn::Module& reference, const QConfigMapping& qconfigs,
               const CalibrationData& data, const AdaRoundOptions& options) {
  check(options);
  const std::vector<GriddedLayer> layers =
      accuracy::gridded_layers("adaround", model, reference, qconfigs);
  const accuracy::CallSizes calls =
      accuracy::sizes_of_calls("adaround", reference, accuracy::references_of(layers), data.run);
  std::map<std::string, std::shared_ptr<const Operation>> activations;
  if (options.after_activation && !data.example.empty()) {
    activations =
        accuracy::following_activations(reference, accuracy::references_of(layers), data.example);
  }
  Generator generator(options.seed);
  std::size_t done = 0;
  for (const std::string& path : calls.order) {
    const GriddedLayer& gridded = accuracy::find_layer(layers, path);
    const auto positions =
        accuracy::draw_positions(calls.positions.at(path), options.positions, generator);
    const bool rounded = options.inputs == AdaRoundOptions::Inputs::Rounded;
    const Tensor target =
        accuracy::drawn_results(reference, gridded.reference, data.run, positions);
    const Tensor x =
        rounded ? accuracy::drawn_patches(model, gridded.layer, data.run, positions)
                : accuracy::drawn_patches(reference, gridded.reference, data.run, positions);
    *gridded.layer.weight = fit(gridded, activations[path].get(), x, target, options, generator);
    accuracy::keep_grid(gridded.layer, gridded.grid);
    data.report("adaround: " + path, ++done, layers.size());
  }
}

AccuracyMethod adaround_method(const AdaRoundOptions& options) {
  check(options);
  return {.name = "adaround",
          .apply =
              [options](nn::Module& model, nn::Module& reference, const QConfigMapping& qconfigs,
                        const CalibrationData& data) {
                adaround_(model, reference, qconfigs, data, options);
              },
          .compensates = true};
}

}  // namespace quanta
