#pragma once

#include <cstdint>
#include <type_traits>

#include "quanta/fusion/accuracy/method.h"

// Functions change the models that they are given and are for one thread at a time for each model;
// those that take a const model may run in many threads at once.

namespace quanta {

struct AdaRoundOptions {
  /// What a layer is fitted on. The paper fits on what the network gives whose earlier layers are
  /// rounded already, so that a layer mends what those spoil.
  enum class Inputs : std::uint8_t { Rounded, Float };

  std::int64_t iterations = 10000;  ///< steps of Adam for each layer
  std::int64_t batch_size = 256;    ///< positions (see below) of each step
  std::int64_t positions = 16384;   ///< at most so many of the data are drawn and kept
  double learning_rate = 1e-2;      ///< of Adam
  double regularization = 0.01;     ///< the paper's lambda: what pulls h(V) to 0 or 1
  double warm_start = 0.2;          ///< share of the steps without it, in [0, 1]
  Inputs inputs = Inputs::Rounded;
  bool after_activation = true;  ///< errors are measured behind the activation that follows
  std::uint64_t seed = 0;        ///< of what is drawn
};

/// AdaRound: Nagel et al. 2020, "Up or Down? Adaptive Rounding for Post-Training Quantization". For
/// each layer with integer weights it learns which of them go up and which go down, so that the
/// layer's results stay near the float network's. Layer by layer, in the order of calls, it minimizes
///
///   mean over positions of |f(W x + b) - f(W~ x~ + b)|^2 + lambda * sum over weights of
///   1 - |2 h(V) - 1|^beta
///
/// W~ is the soft weight of the paper's equation 22; f the activation that alone takes the layer's
/// result, found in a run of data.example (without one, and where that run cannot be recorded, f is
/// the identity). W x + b is `reference`'s result, x~ the input in `model`. Beta falls from 20 to 2 along a cosine. A
/// position is a row of a linear layer's input or one place of one image of a convolution's result,
/// which is all that its weights see at once: a step takes some of the whole data. Each weight
/// becomes one of the two values beside it on the grid that the QConfig's weight observer finds, and
/// the layer gets a QConfig that keeps this grid. Biases stay.
///
/// In place; both models are in eval mode, with the same layers. Throws ArgumentError: options out
/// of range, no layer with an integer QConfig, data that does not reach one or gives numbers that
/// are not finite; UnsupportedError for weight observers without an integer grid; what data.run
/// throws. The model is then in between: apply_method and `adaround` change a copy.
void adaround_(nn::Module& model, nn::Module& reference, const QConfigMapping& qconfigs,
               const CalibrationData& data, const AdaRoundOptions& options = {});
/// "adaround", for quantize and apply_methods. Throws ArgumentError for options out of range.
AccuracyMethod adaround_method(const AdaRoundOptions& options = {});

/// On a copy of the same type:
///   const auto rounded = adaround(net, qconfigs, CalibrationData(batches));
///   const auto int8 = quantize(rounded, batches[0], batches, {.qconfigs = qconfigs});
template <typename T>
requires std::is_base_of_v<nn::Module, T> T adaround(const T& model, const QConfigMapping& qconfigs,
                                                     const CalibrationData& data,
                                                     const AdaRoundOptions& options = {}) {
  return apply_method(model, adaround_method(options), qconfigs, data);
}

}  // namespace quanta
