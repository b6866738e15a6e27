#include "quanta/fusion/accuracy/brecq.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "quanta/fusion/accuracy/detail/blocks.h"
#include "quanta/fusion/accuracy/detail/following_activation.h"
#include "quanta/fusion/accuracy/detail/shuffled_numbers.h"
#include "quanta/fusion/accuracy/detail/soft_rounding.h"
#include "quanta/fusion/detail/module_hooks.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/cat.h"
#include "quanta/ops/indexing.h"
#include "quanta/ops/reduce.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/random.h"

namespace quanta {
namespace {

using accuracy::Block;
using accuracy::GriddedLayer;
using accuracy::SoftRounding;

constexpr const char* kOp = "brecq";

void check(const BrecqOptions& options) {
  accuracy::check(kOp, accuracy::rounding_of(options));
  QUANTA_CHECK(options.samples >= 1, "{}: samples: expected at least 1, got {}", kOp,
               options.samples);
}

// What a module is given or gives, call by call, until there are enough samples.
std::vector<Tensor> collect(nn::Module& model, nn::Module& module, const std::string& path,
                            const Calibrate& run, std::int64_t samples, bool results) {
  const autograd::NoGradGuard no_grad;
  std::vector<Tensor> found;
  std::int64_t count = 0;
  ModuleHooks hooks;
  hooks.watch(module, [&](const Tensor& input, const Tensor& output) {
    if (count >= samples || input.dim() == 0 || input.numel() == 0) return;
    const Tensor& seen = results ? output : input;
    QUANTA_CHECK(std::isfinite(sum(seen * seen).item()),
                 "{}: data.run: expected finite numbers, got NaN or infinity at '{}'", kOp, path);
    // A copy: whoever calls may use the memory again. Of the last call what is still wanted.
    const std::int64_t rows = input.size(0);
    const bool is_cut =
        count + rows > samples && input.dim() >= 2 && output.dim() >= 2 && output.size(0) == rows;
    found.push_back((is_cut ? seen.narrow(0, 0, samples - count) : seen).clone());
    count += rows;
  });
  run(model);
  QUANTA_CHECK(!found.empty(), "{}: data.run: expected data that reaches '{}', got none", kOp,
               path);
  return found;
}

// Inputs and wanted results of a block, of which each step takes some.
class Samples {
 public:
  Samples(const std::string& path, std::vector<Tensor> inputs, std::vector<Tensor> results)
      : inputs_(std::move(inputs)), results_(std::move(results)) {
    QUANTA_CHECK(inputs_.size() == results_.size(),
                 "{}: data.run: expected the same calls each time, got {} and {} of '{}'", kOp,
                 results_.size(), inputs_.size(), path);
    const auto fits = [](const Tensor& tensor, const Tensor& first, std::int64_t rows) {
      return tensor.dim() == first.dim() && tensor.dim() >= 2 && tensor.size(0) == rows &&
             std::equal(tensor.sizes().begin() + 1, tensor.sizes().end(),
                        first.sizes().begin() + 1);
    };
    in_rows_ = true;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const std::int64_t rows = inputs_[i].size(0);
      in_rows_ =
          in_rows_ && fits(inputs_[i], inputs_[0], rows) && fits(results_[i], results_[0], rows);
    }
    if (in_rows_) {
      inputs_ = {cat(inputs_, 0)};
      results_ = {cat(results_, 0)};
    }
  }
  std::int64_t count() const {
    return in_rows_ ? inputs_[0].size(0) : static_cast<std::int64_t>(inputs_.size());
  }
  std::pair<Tensor, Tensor> draw(accuracy::ShuffledNumbers& numbers, std::int64_t size,
                                 Generator& generator) const {
    if (in_rows_) {
      const Tensor rows = numbers.next(std::min(size, count()), generator);
      return {index_select(inputs_[0], 0, rows), index_select(results_[0], 0, rows)};
    }
    const auto call = static_cast<std::size_t>(numbers.next(1, generator).span<std::int64_t>()[0]);
    return {inputs_[call], results_[call]};
  }

 private:
  std::vector<Tensor> inputs_, results_;
  bool in_rows_ = false;
};

// Channels of an image, or features of a row.
std::int64_t channels_of(const Tensor& y) { return y.dim() >= 4 ? y.size(1) : y.size(-1); }

// The block's layers calculate with whatever weights they have now, on the tape, while it lives: in
// eval mode they keep packed copies.
class LayersInTraining {
 public:
  explicit LayersInTraining(const Block& block) {
    for (const GriddedLayer* layer : block.layers) {
      units_.push_back(layer->layer.unit);
      layer->layer.unit->train();
    }
  }
  LayersInTraining(const LayersInTraining&) = delete;
  LayersInTraining& operator=(const LayersInTraining&) = delete;
  ~LayersInTraining() {
    for (nn::Module* unit : units_) unit->eval();
  }

 private:
  std::vector<nn::Module*> units_;
};

void fit(const Block& block, const Operation* activation, const Samples& samples,
         const BrecqOptions& options, Generator& generator) {
  const auto activated = [&](const Tensor& y) {
    return activation != nullptr ? run(*activation, std::span<const Tensor>(&y, 1)) : y;
  };
  std::vector<SoftRounding> roundings;
  roundings.reserve(block.layers.size());
  for (const GriddedLayer* layer : block.layers) {
    roundings.emplace_back(*layer->layer.weight, layer->grid);
  }
  accuracy::ShuffledNumbers numbers(samples.count());
  {
    const LayersInTraining in_training(block);
    const autograd::EnableGradGuard with_tape;
    for (std::int64_t i = 0; i < options.iterations; ++i) {
      const auto [x, target] = samples.draw(numbers, options.batch_size, generator);
      std::vector<Tensor> soft;
      for (std::size_t l = 0; l < roundings.size(); ++l) {
        soft.push_back(roundings[l].soft());
        soft.back().set_requires_grad();
        *block.layers[l]->layer.weight = soft.back();
      }
      const Tensor error = activated((*block.module)(x)) - activated(target);
      const std::int64_t places = error.numel() / channels_of(error);
      mul_scalar(sum(error * error), 1.0 / static_cast<double>(places)).backward();
      for (std::size_t l = 0; l < roundings.size(); ++l) {
        const Tensor gradient = soft[l].grad();
        roundings[l].step(gradient.defined() ? gradient : Tensor::zeros(soft[l].sizes()),
                          accuracy::rounding_step(i, accuracy::rounding_of(options)));
      }
    }
  }
  for (std::size_t l = 0; l < roundings.size(); ++l) {
    *block.layers[l]->layer.weight = roundings[l].hard();
    accuracy::keep_grid(block.layers[l]->layer, block.layers[l]->grid);
  }
}

}  // namespace

void brecq_(nn::Module& model, nn::Module& reference, const QConfigMapping& qconfigs,
            const CalibrationData& data, const BrecqOptions& options) {
  check(options);
  QUANTA_CHECK(data.run, "{}: data.run: expected a function that feeds data, got none", kOp);
  const std::vector<GriddedLayer> layers =
      accuracy::gridded_layers(kOp, model, reference, qconfigs);
  const std::vector<Block> blocks =
      accuracy::find_blocks(kOp, model, reference, layers, options.blocks, data.run);
  std::map<std::string, std::shared_ptr<const Operation>> activations;
  if (!data.example.empty()) {
    activations =
        accuracy::following_activations(reference, accuracy::references_of(layers), data.example);
  }
  Generator generator(options.seed);
  std::size_t done = 0;
  for (const Block& block : blocks) {
    const Samples samples(
        block.path, collect(model, *block.module, block.path, data.run, options.samples, false),
        collect(reference, *block.reference, block.path, data.run, options.samples, true));
    const bool is_layer = block.module == block.layers[0]->layer.unit;
    fit(block, is_layer ? activations[block.path].get() : nullptr, samples, options, generator);
    data.report(fmt::format("{}: {}", kOp, block.path), ++done, blocks.size());
  }
}

AccuracyMethod brecq_method(const BrecqOptions& options) {
  check(options);
  return {.name = kOp,
          .apply =
              [options](nn::Module& model, nn::Module& reference, const QConfigMapping& qconfigs,
                        const CalibrationData& data) {
                brecq_(model, reference, qconfigs, data, options);
              },
          .compensates = true};
}

}  // namespace quanta
