#pragma once

#include <functional>
#include <type_traits>

#include "quanta/fusion/mapping.h"
#include "quanta/nn/module.h"

// What changes a model (names that end in an underscore) is for one thread at a time for each
// model, while nobody calls it; what takes a const model may run in many threads at once.

namespace quanta {

/// Runs data through a model, so that what watches inside sees the values that will pass.
using Calibrate = std::function<void(const nn::Module&)>;

/// In place: what a network would give with its weights and activations in other number formats,
/// computed in float. Layers become qat modules in eval mode whose weights are fake-quantized, and
/// every module that static quantization would observe fake-quantizes its result. `calibrate` is
/// called with the model while fake quantizers observe and change nothing; after that they change
/// what passes and observe no more. Formats that look at each tensor alone (mxfp8, mxfp6, mxfp4)
/// need no data.
///
/// A QConfig has fake quantizers in both places, or none in one of them: qconfig_for_format,
/// get_default_qat_qconfig, or any classes derived from FakeQuantizeBase. Best after fuse_modules,
/// so that a convolution with its batch norm and ReLU is rounded once. convert() makes an int8
/// network of the result where the formats have integer codes.
///
/// Throws ArgumentError: observers that are not fake quantizers, no QConfig at all, and a fake
/// quantizer that saw no data in calibration and needs some; `model` is then left in between.
void simulate_quantization_(nn::Module& model, const QConfigMapping& qconfigs,
                            const Calibrate& calibrate,
                            const ModuleMapping& mapping = default_qat_module_mappings());

/// simulate_quantization_ on a copy of the same type; the copy is in eval mode:
///   const auto fp8 = simulate_quantization(net, qconfig_for_format("fp8"),
///                                          [&](const nn::Module& m) { m(images); });
///   const Tensor y = fp8(x);
template <typename T>
requires std::is_base_of_v<nn::Module, T> T
simulate_quantization(const T& model, const QConfigMapping& qconfigs, const Calibrate& calibrate,
                      const ModuleMapping& mapping = default_qat_module_mappings()) {
  T copy = nn::deep_copy(model);
  simulate_quantization_(copy, qconfigs, calibrate, mapping);
  return copy;
}

}  // namespace quanta
