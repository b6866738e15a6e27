#include "quanta/fusion/accuracy/adaround.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "quanta/fusion/accuracy/detail/following_activation.h"
#include "quanta/fusion/accuracy/detail/gridded_layers.h"
#include "quanta/fusion/accuracy/detail/layer_matrix.h"
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
  const auto at_least_one = [](const char* name, std::int64_t value) {
    QUANTA_CHECK(value >= 1, "adaround: {}: expected at least 1, got {}", name, value);
  };
  at_least_one("iterations", options.iterations);
  at_least_one("batch_size", options.batch_size);
  at_least_one("positions", options.positions);
  QUANTA_CHECK(std::isfinite(options.learning_rate) && options.learning_rate > 0.0,
               "adaround: learning_rate: expected more than 0, got {}", options.learning_rate);
  QUANTA_CHECK(std::isfinite(options.regularization) && options.regularization >= 0.0,
               "adaround: regularization: expected at least 0, got {}", options.regularization);
  QUANTA_CHECK(options.warm_start >= 0.0 && options.warm_start <= 1.0,
               "adaround: warm_start: expected a share in [0, 1], got {}", options.warm_start);
}

// Numbers in [0, count), of which each comes once before one comes again.
Tensor next_batch(std::vector<std::int64_t>& order, std::size_t& next, std::int64_t size,
                  Generator& generator) {
  Tensor batch = Tensor::empty({size}, DType::Int64);
  for (std::int64_t& number : batch.mutable_span<std::int64_t>()) {
    if (next == 0) {
      for (std::size_t i = order.size(); i > 1; --i) {
        const auto other = generator.integer(0, static_cast<std::int64_t>(i) - 1);
        std::swap(order[i - 1], order[static_cast<std::size_t>(other)]);
      }
    }
    number = order[next];
    next = (next + 1) % order.size();
  }
  return batch;
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
  std::vector<std::int64_t> order(static_cast<std::size_t>(positions));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i);
  std::size_t next = 0;

  SoftRounding rounding(*layer.weight, gridded.grid);
  const autograd::EnableGradGuard with_tape;
  for (std::int64_t i = 0; i < options.iterations; ++i) {
    const Tensor batch = next_batch(order, next, size, generator);
    const Tensor soft = rounding.soft();
    soft.set_requires_grad();
    const Tensor weight = matrix.as_matrix(soft).transpose(1, 2);
    Tensor y = bmm(index_select(x, 1, batch), weight);
    if (bias.defined()) y = y + bias;
    const Tensor error = activated(y) - activated(index_select(target, 1, batch));
    mul_scalar(sum(error * error), 1.0 / static_cast<double>(size)).backward();
    const double done = static_cast<double>(i) / static_cast<double>(options.iterations);
    rounding.step(soft.grad(),
                  accuracy::rounding_step(done, options.warm_start, options.learning_rate,
                                          options.regularization));
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
