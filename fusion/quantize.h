#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "quanta/fusion/accuracy/method.h"
#include "quanta/fusion/check.h"
#include "quanta/fusion/convert.h"
#include "quanta/fusion/prepare.h"
#include "quanta/observers/defaults.h"

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

/// How quantize(model, example, data) goes about it.
struct QuantizeOptions {
  QConfigMapping qconfigs = get_default_qconfig();
  /// Whether groups of layers are fused first (find_fusion_groups).
  bool fuse = true;
  /// What is done to the fused float network first, to keep accuracy, with the calibration data:
  /// {accuracy_method("cle"), accuracy_method("adaround")}.
  std::vector<AccuracyMethod> methods{};
  /// Called after each batch of calibration data, for a progress bar.
  std::function<void(std::size_t done, std::size_t total)> progress{};
  ConvertOptions convert{};
};

namespace detail {
/// eval(), fuse and check, in place. Throws ArgumentError that lists what check() finds.
void make_ready(nn::Module& model, std::span<const Tensor> example, const QuantizeOptions& options);
void calibrate(const nn::Module& prepared, std::span<const Tensor> data,
               const QuantizeOptions& options);
}  // namespace detail

/// Post-training static quantization in one call: a copy of `model` is fused (find_fusion_groups),
/// checked, changed by the options' methods, prepared, calibrated with `run`, and converted. The
/// methods run `run` several times. `example` is what one call of the model
/// takes. Where the network needs float arithmetic inside its quantized part, dequantize and quantize
/// are put around it, and a warning says so once (float_islands lists them).
///
///   auto int8 = quantize(net, x, [&](const Net& prepared) {
///     for (const auto& [image, mask] : data) prepared(image, mask);
///   });
///
/// Throws ArgumentError that lists what check() finds; what `run` and the model throw;
/// UnsupportedError for a network whose run cannot be recorded to find groups (fuse it by name, and
/// give `.fuse = false`).
template <typename T>
requires std::is_base_of_v<nn::Module, T> T quantize(const T& model,
                                                     std::span<const Tensor> example,
                                                     const std::function<void(const T&)>& run,
                                                     const QuantizeOptions& options = {}) {
  T ready = nn::deep_copy(model);
  detail::make_ready(ready, example, options);
  if (!options.methods.empty()) {
    const CalibrationData data({example.begin(), example.end()}, [&](const nn::Module& network) {
      run(static_cast<const T&>(network));
    });
    ready = apply_methods(ready, options.methods, options.qconfigs, data);
  }
  T prepared =
      prepare(ready, options.qconfigs, example, options.convert.mapping, options.convert.custom);
  run(prepared);
  convert_(prepared, options.convert);
  return prepared;
}

/// The same for a network of one input, calibrated with batches:
///   auto int8 = quantize(net, batches[0], batches);
template <typename T>
requires std::is_base_of_v<nn::Module, T> T quantize(const T& model, const Tensor& example,
                                                     std::span<const Tensor> data,
                                                     const QuantizeOptions& options = {}) {
  return quantize<T>(
      model, std::span<const Tensor>(&example, 1),
      [&](const T& prepared) { detail::calibrate(prepared, data, options); }, options);
}

}  // namespace quanta
