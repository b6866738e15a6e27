#pragma once

#include "quanta/observers/qconfig.h"

// QConfigs are plain values, and many threads may call this at once.

namespace quanta {

struct LsqOptions {
  int weight_bits = 8;       ///< 2 .. 8
  int activation_bits = 8;   ///< 2 .. 8
  bool per_channel = false;  ///< a step size for each output channel of a weight; the paper: one
};

/// For prepare_qat: learned step sizes (Esser et al. 2019, "Learned Step Size Quantization"). Weights
/// and activations have LearnableFakeQuantize, whose scales are trained with the network, with
/// gradients times 1 / sqrt(elements * Qp), Qp = 2^(bits - 1) - 1 of weights and 2^bits - 1 of
/// activations. A weight's scale begins at 2 * mean |w| / sqrt(Qp), codes are signed and symmetric.
/// Activations are unsigned with a zero point, which is learned too, and begin at the moving range of
/// the batches before (Bhalgat et al. 2020, "LSQ+"): the paper's unsigned codes without a zero point
/// have no negative numbers. Elements are those of a batch, as torch counts them.
///
///   auto prepared = prepare_qat(net, lsq_qconfig({.weight_bits = 4}));
///   prepared(batch);                  // where scales begin
///   enable_param_learning(prepared);  // from now on they are parameters
///   optim::SGD optimizer(prepared.parameters(), ...);
///   ...
///   auto int8 = convert(prepared);
///
/// Throws ArgumentError for other bits.
QConfig lsq_qconfig(const LsqOptions& options = {});

}  // namespace quanta
