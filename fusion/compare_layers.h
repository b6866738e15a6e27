#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "quanta/nn/module.h"

/// What quantization does to each layer's result, as torch.ao.ns' numeric suite tells it. Many
/// threads may compare the same models at once: copies of them are run.
namespace quanta {

/// The results of one layer in both models.
struct LayerComparison {
  std::string path;
  std::string float_type;  ///< the class in the float model: "ConvReLU2d"
  std::string type;        ///< the class in the quantized model: "QuantizedConvReLU2d"
  /// Of the quantized result; empty where it is float (dynamic layers, fake quantization) or has
  /// parameters for each channel.
  std::optional<double> scale;
  std::optional<std::int64_t> zero_point;
  double sqnr = 0.0;  ///< in dB over all elements of all calls (ops/sqnr.h)
};

namespace detail {

using RunModel = std::function<void(const nn::Module&)>;
/// Spoils both models: what observes in them is replaced.
std::vector<LayerComparison> compare_layers_of(nn::Module& float_model, nn::Module& quantized_model,
                                               const std::vector<RunModel>& runs);

}  // namespace detail

/// Runs each of `inputs` through both models and compares the results of every layer that has
/// another class in the quantized model or whose result is fake-quantized there, in the order in
/// which the quantized model first calls them. Errors add up on the way: a layer's figure has those
/// of the layers before it too.
///
/// The models have the same tree, the float one fused as the quantized one was:
///   fuse_modules(net, groups);
///   const auto int8 = convert(prepared);
///   fmt::print("{}", to_string(compare_layers(net, int8, {x})));
/// Both run in eval mode. The quantized one may come from convert, quantize_dynamic,
/// quantize_weight_only or simulate_quantization, or be a prepared model that fake-quantizes.
///
/// Throws ArgumentError: no inputs, a float model with a layer where the quantized one has none any
/// more (it was not fused), a layer that the models call unequally often or whose results have
/// different sizes; and what running the models throws.
template <typename Float, typename Quantized>
requires std::is_base_of_v<nn::Module, Float> && std::is_base_of_v<nn::Module, Quantized>
    std::vector<LayerComparison> compare_layers(const Float& float_model,
                                                const Quantized& quantized_model,
                                                const std::vector<Tensor>& inputs) {
  Float float_copy = nn::deep_copy(float_model);
  Quantized quantized_copy = nn::deep_copy(quantized_model);
  std::vector<detail::RunModel> runs;
  for (const Tensor& x : inputs) {
    runs.emplace_back([&x](const nn::Module& model) { model(x); });
  }
  return detail::compare_layers_of(float_copy, quantized_copy, runs);
}

/// A table with a line for each layer: path, class, scale, zero point and SQNR. Throws nothing.
std::string to_string(const std::vector<LayerComparison>& layers);

}  // namespace quanta
