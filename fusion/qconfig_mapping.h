#pragma once

#include <string_view>

#include "quanta/fusion/mapping.h"

// What throws says so. Many threads may call these functions at once.

namespace quanta {

/// A QConfig for each type of module, as torch.ao.quantization.get_default_qconfig_mapping:
///
///   all                          get_default_qconfig(backend)
///   ConvTranspose1d, 2d, 3d      its activation, per-tensor weights (torch: fbgemm and x86 only)
///   LayerNorm                    its activation, weights in float
///   PReLU                        default_quint8_weight_qconfig()
///   Sigmoid, Hardsigmoid,        the fixed range 0..1 (Tanh: -1..1), per-tensor weights
///   Softmax, Tanh
///   Embedding, EmbeddingBag      float_qparams_weight_only_qconfig(); torch leaves them to the user
///
/// prepare(net, get_default_qconfig()) fits the QConfig to such modules as well (see
/// propagate_qconfig_), but for Softmax, whose range is observed there, and PReLU, whose range of
/// slopes holds 1 there. Throws ArgumentError for another backend or version, listing them.
///   auto prepared = prepare(net, get_default_qconfig_mapping("fbgemm"));
QConfigMapping get_default_qconfig_mapping(std::string_view backend = "x86", int version = 0);

/// The same for training, of get_default_qat_qconfig(backend, version): fake quantizers of fixed
/// ranges, default_embedding_qat_qconfig() for embeddings.
QConfigMapping get_default_qat_qconfig_mapping(std::string_view backend = "x86", int version = 1);

}  // namespace quanta
