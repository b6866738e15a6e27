#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "quanta/fusion/accuracy/method.h"

// Functions change the models that they are given and are for one thread at a time for each model;
// those that take a const model may run in many threads at once.

namespace quanta {

struct BrecqOptions {
  std::int64_t iterations = 20000;  ///< steps of Adam for each block
  std::int64_t batch_size = 32;     ///< samples of each step
  std::int64_t samples = 1024;      ///< at most so many of the data, the first, are kept
  double learning_rate = 1e-3;      ///< of Adam
  double regularization = 0.01;     ///< the paper's lambda: what pulls h(V) to 0 or 1
  double warm_start = 0.2;          ///< share of the steps without it, in [0, 1]
  /// Paths of the modules that are blocks; layers elsewhere are fitted alone. Empty: the lowest
  /// modules below the root, Sequential and ModuleList aside, with two or more integer layers in
  /// them, as residual blocks are.
  std::vector<std::string> blocks{};
  std::uint64_t seed = 0;  ///< of what is drawn
};

/// Block reconstruction: Li et al. 2021, "BRECQ: Pushing the Limit of Post-Training Quantization by
/// Block Reconstruction"; layer by layer it is what Hubara et al. 2020, "Improving Post Training
/// Neural Quantization: Layer-wise Calibration and Integer Programming" (AdaQuant) does with
/// AdaRound's variables. For each block, in the order of calls, it learns which weights go up and
/// which down, all layers of the block together, by gradients through it:
///
///   mean over samples and places of |f(x) - f~(x~)|^2 + lambda * sum over weights of
///   1 - |2 h(V) - 1|^beta
///
/// f is the block of `reference`, f~ the one with the soft weights of AdaRound (see adaround), x~ its
/// input in `model`, whose earlier blocks are rounded. All squares weigh the same, as in the paper's
/// release by default: not by the Fisher information. Beta falls from 20 to 2 along a cosine. A
/// sample is a row of a block's input where all calls have rows of the same sizes, otherwise a step
/// takes a whole call.
///
/// A block is a module that gives the same when its first input comes again. Modules that take more,
/// and layers outside of blocks, are fitted layer by layer, with the activation that alone follows
/// one. In a graph::Model each layer stands alone. Each weight becomes one of the two values beside it
/// on the grid that the QConfig's weight observer finds, and the layer gets a QConfig that keeps this
/// grid. Biases and what is not a convolution or linear layer stay; activations stay in float.
///
/// In place; both models are in eval mode, with the same layers. Throws ArgumentError: options out
/// of range, `blocks` that are no paths of modules with such layers, lie in one another or take more
/// than one input, no layer with an integer QConfig, data that does not reach one or gives numbers
/// that are not finite; UnsupportedError for weight observers without an integer grid and for blocks
/// without gradients; what data.run throws. The model is then in between: apply_method and `brecq`
/// change a copy.
void brecq_(nn::Module& model, nn::Module& reference, const QConfigMapping& qconfigs,
            const CalibrationData& data, const BrecqOptions& options = {});
/// "brecq", also "block-reconstruction". Throws ArgumentError for options out of range.
AccuracyMethod brecq_method(const BrecqOptions& options = {});

/// On a copy of the same type:
///   const auto rounded = brecq(net, qconfigs, CalibrationData(batches));
///   const auto int8 = quantize(rounded, batches[0], batches, {.qconfigs = qconfigs});
template <typename T>
requires std::is_base_of_v<nn::Module, T> T brecq(const T& model, const QConfigMapping& qconfigs,
                                                  const CalibrationData& data,
                                                  const BrecqOptions& options = {}) {
  return apply_method(model, brecq_method(options), qconfigs, data);
}

}  // namespace quanta
