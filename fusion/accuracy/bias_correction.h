#pragma once

#include <cstdint>
#include <type_traits>

#include "quanta/fusion/accuracy/batch_norm_statistics.h"
#include "quanta/fusion/accuracy/method.h"

// Functions that take a const model may run in many threads at once; see fusion/accuracy/method.h.

namespace quanta {

/// How the error of a layer's mean is found.
enum class BiasError : std::uint8_t {
  Empirical,  ///< by running the quantized network beside the float one
  Analytic,   ///< from the mean of what a layer takes
};

struct BiasCorrectionOptions {
  BiasError error = BiasError::Empirical;
  /// Empirical: activations are rounded too, with the observers of the QConfigs, where prepare would
  /// observe modules.
  bool quantize_activations = false;
  /// Analytic: of the results of the layers before, as they are now (cross_layer_equalization keeps
  /// up with its scales). What they do not say is measured with the data.
  BatchNormStatistics statistics{};
};

namespace detail {
void bias_correction(nn::Module& model, nn::Module& reference, const QConfigMapping& qconfigs,
                     const CalibrationData& data, const BiasCorrectionOptions& options);
}  // namespace detail

/// Bias correction (Nagel et al. 2019, Data-Free Quantization Through Weight Equalization and Bias
/// Correction, section 4.2): rounding a weight moves the mean of each output channel, and the bias
/// takes that back. With W' the weight as the QConfig's observer rounds it:
///
///   Empirical  b += E[W x + b] - E[W' x' + b], means over all positions of all data; x comes from
///              the float network and x' from the one whose layers before are rounded and corrected
///              already (appendix D). The data runs once for each layer.
///   Analytic   b -= sum over the kernel of (W' - W) E[x]. Behind a layer with batch norm statistics
///              (beta, gamma) E[x] is beta, or with a ReLU (ReLU6: to 6) between that of a clipped
///              normal variable, gamma phi(-beta / gamma) + beta (1 - Phi(-beta / gamma)); elsewhere
///              the mean that the data has. What padding adds is left out.
///
/// A copy of `model`, whose batch norms are fused, in eval mode, with its float weights and other
/// biases; layers without a bias get one. Works on networks written as classes and on graph::Model.
/// Layers without a QConfig stay as they are. Throws ArgumentError when no layer has one, for weights
/// that are not finite, statistics of another number of channels, data that does not reach a layer;
/// UnsupportedError for weight observers without integer codes; what prepare and data.run throw.
template <typename T>
requires std::is_base_of_v<nn::Module, T> T
bias_correction(const T& model, const QConfigMapping& qconfigs, const CalibrationData& data,
                const BiasCorrectionOptions& options = {}) {
  return apply_method(model,
                      {"bias-correction",
                       [&options](nn::Module& copy, nn::Module& reference,
                                  const QConfigMapping& given, const CalibrationData& shown) {
                         detail::bias_correction(copy, reference, given, shown, options);
                       }},
                      qconfigs, data);
}

/// "bias-correction", for apply_methods. Throws nothing here.
AccuracyMethod bias_correction_method(const BiasCorrectionOptions& options = {});

}  // namespace quanta
