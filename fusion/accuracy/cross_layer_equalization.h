#pragma once

#include <cstdint>
#include <type_traits>

#include "quanta/fusion/accuracy/batch_norm_statistics.h"
#include "quanta/fusion/accuracy/method.h"

// Functions that take a const model may run in many threads at once; see fusion/accuracy/method.h.

namespace quanta {

struct CrossLayerEqualizationOptions {
  /// One is what AIMET does.
  std::int64_t max_iterations = 20;
  /// No more iterations when no scale of the last one is further from 1.
  double tolerance = 1e-3;
  /// A ReLU6 between two layers becomes a ReLU, which is fused with the layer before it: scaled
  /// channels would be cut at 6 otherwise. The network then calculates something else where it cuts.
  /// Without, such layers are left alone.
  bool replace_relu6 = true;
  /// Of the same layers before; they become those of the result. Null: nobody needs them.
  BatchNormStatistics* statistics = nullptr;
};

struct HighBiasAbsorptionOptions {
  /// Of the layers as they are; where there are none, mean and deviation are measured with the data.
  BatchNormStatistics statistics{};
  double deviations = 3.0;
};

namespace detail {
void cross_layer_equalization(nn::Module& model, const CalibrationData& data,
                              const CrossLayerEqualizationOptions& options);
void absorb_high_biases(nn::Module& model, const CalibrationData& data,
                        const HighBiasAbsorptionOptions& options);
}  // namespace detail

/// Cross-layer equalization (Nagel et al. 2019, Data-Free Quantization Through Weight Equalization
/// and Bias Correction, section 4.1): channels between two layers are scaled so that all have the
/// same range in both, which is what one scale for a whole weight needs. With r1 and r2 the largest
/// magnitudes of channel i in the weight of the first layer and of the second,
///
///   s_i = sqrt(r1_i * r2_i) / r2_i,  W1_i /= s_i,  b1_i /= s_i,  W2_i *= s_i
///
/// and for a depthwise convolution between two layers s12 = r1 / cbrt(r1 r2 r3) and
/// s23 = cbrt(r1 r2 r3) / r3, pair after pair, again until little changes. Pairs are layers
/// (convolutions, transposed ones, linear layers) that alone take each other's channels in a run of
/// data.example, with ReLUs, LeakyReLUs, PReLUs, pools, means, products and views between them; what
/// is added to something else stays as it is. Channels that are 0 in a weight keep their scales.
///
/// A copy of `model`, whose batch norms are fused, in eval mode; it calculates the same (but for
/// `replace_relu6`). Works on networks written as classes and on graph::Model. Throws ArgumentError
/// for a model without such layers (saying where their results go), weights that are not finite,
/// max_iterations < 1 and a tolerance that is no number >= 0; UnsupportedError for a run that cannot
/// be recorded; what the model throws.
template <typename T>
requires std::is_base_of_v<nn::Module, T> T
cross_layer_equalization(const T& model, const CalibrationData& data,
                         const CrossLayerEqualizationOptions& options = {}) {
  T copy = nn::deep_copy(model);
  detail::cross_layer_equalization(copy, data, options);
  return copy;
}

/// High bias absorption (section 4.1.3 of the same paper), best after cross-layer equalization: what
/// a layer gives before its ReLU is taken to be normal with mean beta and deviation gamma for each
/// channel, and the part that nearly never falls below 0 moves into the next layer's bias,
///
///   c = max(0, beta - 3 gamma),  b1 -= c,  b2 += W2 c
///
/// so that activations need a smaller range. The network calculates nearly the same: not where a
/// channel is below c, nor at borders that the next convolution pads with zeros. Pairs as above with
/// a ReLU, and else only pools and means, in between; layers without a bias get one. Throws as
/// cross_layer_equalization does, and ArgumentError for statistics of another number of channels,
/// deviations < 0, and data that does not reach a layer; what data.run throws.
template <typename T>
requires std::is_base_of_v<nn::Module, T> T absorb_high_biases(
    const T& model, const CalibrationData& data, const HighBiasAbsorptionOptions& options = {}) {
  T copy = nn::deep_copy(model);
  detail::absorb_high_biases(copy, data, options);
  return copy;
}

/// "cle" and "bias-absorption", for apply_methods. They throw nothing here.
AccuracyMethod cross_layer_equalization_method(const CrossLayerEqualizationOptions& options = {});
AccuracyMethod high_bias_absorption_method(const HighBiasAbsorptionOptions& options = {});

}  // namespace quanta
