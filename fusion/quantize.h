#pragma once

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "quanta/fusion/convert.h"
#include "quanta/fusion/prepare.h"
#include "quanta/runtime/device.h"

// What changes a model (names that end in an underscore) is for one thread at a time for each
// model, while nobody calls it; what takes a const model may run in many threads at once.

namespace quanta {

/// Post-training static quantization in one call: eval(), prepare, `run(prepared)`, convert.
/// `run` feeds calibration data. Throws what prepare, `run` and convert throw.
template <typename T>
requires std::is_base_of_v<nn::Module, T> T quantize(const T& model, const QConfigMapping& qconfigs,
                                                     const std::function<void(const T&)>& run,
                                                     const ConvertOptions& options = {}) {
  T copy = nn::deep_copy(model);
  copy.eval();
  prepare_(copy, qconfigs, options.mapping, options.custom);
  run(copy);
  convert_(copy, options);
  return copy;
}

/// Training with quantization in the loop in one call: train(), prepare_qat, `run(prepared)`,
/// eval(), convert. `run` trains: it calls requires_grad_(), makes an optimizer and steps. Throws
/// what prepare_qat, `run` and convert throw.
template <typename T>
requires std::is_base_of_v<nn::Module, T> T quantize_qat(const T& model,
                                                         const QConfigMapping& qconfigs,
                                                         const std::function<void(T&)>& run,
                                                         const ConvertOptions& options = {}) {
  T copy = nn::deep_copy(model);
  copy.train();
  prepare_qat_(copy, qconfigs, default_qat_module_mappings(), options.custom);
  run(copy);
  copy.eval();
  convert_(copy, options);
  return copy;
}

/// Runs the model on every batch and drops the outputs; to be used as `run` above.
void default_eval_fn(const nn::Module& model, std::span<const Tensor> batches);

/// Replaces each leaf that has a QConfig by QuantWrapper(leaf), in place, so that it takes and
/// gives float tensors. A root that is a leaf itself is refused with ArgumentError.
void add_quant_dequant(nn::Module& model);

/// One thing that will not work, and where.
struct Problem {
  std::string path;
  std::string text;
};

/// Everything in the tree that would fail or stay in float by mistake once the model is prepared,
/// converted and run on `device`: no QuantStub or DeQuantStub, a BatchNorm that was not fused and
/// has no quantized form, train mode (unless it is made for training with quantization in the
/// loop), observers without data (once prepared), unsupported types.
/// In a graph::Model, where prepare_jit places the stubs, train mode and observers are what counts.
/// Runs nothing.
std::vector<Problem> check(const nn::Module& model, Device device = Device::cpu());

}  // namespace quanta
