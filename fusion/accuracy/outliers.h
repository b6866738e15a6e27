#pragma once

#include <string>
#include <type_traits>
#include <vector>

#include "quanta/fusion/accuracy/method.h"

// Functions that take a const model may run in many threads at once; see fusion/accuracy/method.h.

namespace quanta {

struct FloatOutliersOptions {
  /// A channel of what a layer takes is an outlier when its largest magnitude is more than `ratio`
  /// times the median of all channels' and at least `magnitude`.
  double ratio = 20.0;
  double magnitude = 6.0;
  /// Where the layers' paths are written that stay in float. Null: nobody asks.
  std::vector<std::string>* kept = nullptr;
};

struct SplitOutliersOptions {
  /// How many channels are added for each that there is; at least one.
  double expand = 0.02;
};

namespace detail {
void keep_outliers_in_float(nn::Module& model, const QConfigMapping& qconfigs,
                            const CalibrationData& data, const FloatOutliersOptions& options);
void split_outlier_channels(nn::Module& model, const CalibrationData& data,
                            const SplitOutliersOptions& options);
}  // namespace detail

/// Layers that take channels with outliers are left in float, by set_qconfig(std::nullopt) on them: the
/// decomposition of Dettmers et al. 2022, LLM.int8(): 8-bit Matrix Multiplication for Transformers at
/// Scale, by layers instead of columns. What prepare with these QConfigs would quantize is looked at
/// while data.run feeds the model; quantize puts dequantize and quantize around what stays.
///
/// A copy of `model` in eval mode with the same weights; without outliers nothing else changes. Works
/// on networks written as classes and on graph::Model. Throws ArgumentError for a ratio < 1 or a
/// negative magnitude, and data that does not reach a layer; what prepare and data.run throw.
template <typename T>
requires std::is_base_of_v<nn::Module, T> T
keep_outliers_in_float(const T& model, const QConfigMapping& qconfigs, const CalibrationData& data,
                       const FloatOutliersOptions& options = {}) {
  return apply_method(model,
                      {"outlier-float",
                       [&options](nn::Module& copy, nn::Module&, const QConfigMapping& given,
                                  const CalibrationData& shown) {
                         detail::keep_outliers_in_float(copy, given, shown, options);
                       }},
                      qconfigs, data);
}

/// Outlier channel splitting (Zhao et al. 2019, Improving Neural Network Quantization without
/// Retraining using Outlier Channel Splitting): the channel between two layers whose weight in the
/// second one has the largest magnitude is given twice by the first layer and taken with half its
/// weight each time, again and again, so that the range of the second weight shrinks. Pairs as those of
/// cross_layer_equalization, convolutions without groups and linear layers, that take channel c as
/// input c, with no PReLU or product between them.
///
/// A copy of `model`, whose batch norms are fused, in eval mode; it calculates the same and its layers
/// are larger: load_state_dict and load_model want a network of the same sizes. Throws ArgumentError
/// for an expansion outside of (0, 1], a model without such pairs, weights that are not finite;
/// UnsupportedError for a run that cannot be recorded and for a network that does not run with other
/// numbers of channels (a reshape to fixed sizes); what the model throws.
template <typename T>
requires std::is_base_of_v<nn::Module, T> T split_outlier_channels(
    const T& model, const CalibrationData& data, const SplitOutliersOptions& options = {}) {
  T copy = nn::deep_copy(model);
  detail::split_outlier_channels(copy, data, options);
  return copy;
}

/// "outlier-float" and "outlier-split", for apply_methods. They throw nothing here.
AccuracyMethod keep_outliers_in_float_method(const FloatOutliersOptions& options = {});
AccuracyMethod split_outlier_channels_method(const SplitOutliersOptions& options = {});

}  // namespace quanta
