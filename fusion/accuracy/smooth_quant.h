#pragma once

#include <type_traits>

#include "quanta/fusion/accuracy/method.h"

// Functions that take a const model may run in many threads at once; see fusion/accuracy/method.h.

namespace quanta {

struct SmoothQuantOptions {
  /// How much of the difficulty moves into the weights: 0 none, 1 all.
  double alpha = 0.5;
  /// Each group takes that of 0, 0.05 .. 1 with which its layers lose least when activations (one
  /// scale) and weights (one for each output channel) are rounded to 8 bits, and not `alpha`. What the
  /// layers take is kept for that, one group at a time.
  bool search_alpha = false;
};

namespace detail {
void smooth_quant(nn::Module& model, const CalibrationData& data,
                  const SmoothQuantOptions& options);
}  // namespace detail

/// SmoothQuant (Xiao et al. 2022, SmoothQuant: Accurate and Efficient Post-Training Quantization for
/// Large Language Models): channels of activations that are much larger than others are made smaller
/// before a linear layer, and its weight larger. For channel j of what a group of linear layers takes,
///
///   s_j = max |X_j|^alpha / max |W_j|^(1 - alpha),  X_j /= s_j,  W_j *= s_j
///
/// with the largest magnitudes of all data and of all weights of the group (at least 1e-5; s_j too). A
/// group is all that takes the result of a norm (LayerNorm, batch norm, rms_norm) or layer in a run of
/// data.example, where those are linear layers alone; 1 / s goes into the weight and bias of the norm
/// or layer. Channels that are always 0 keep their scales.
///
/// A copy of `model` in eval mode that calculates the same. Works on networks written as classes and
/// on graph::Model. Throws ArgumentError for an alpha outside of 0..1, a model without such a group
/// (saying what else takes the results), weights and activations that are not finite; UnsupportedError
/// for a run that cannot be recorded; what data.run throws.
template <typename T>
requires std::is_base_of_v<nn::Module, T> T smooth_quant(const T& model,
                                                         const CalibrationData& data,
                                                         const SmoothQuantOptions& options = {}) {
  return apply_method(
      model,
      {"smooth-quant",
       [&options](nn::Module& copy, nn::Module&, const QConfigMapping&,
                  const CalibrationData& shown) { detail::smooth_quant(copy, shown, options); }},
      {}, data);
}

/// "smooth-quant", for apply_methods. Throws nothing here.
AccuracyMethod smooth_quant_method(const SmoothQuantOptions& options = {});

}  // namespace quanta
