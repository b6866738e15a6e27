#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "quanta/fusion/mapping.h"
#include "quanta/fusion/simulate.h"
#include "quanta/nn/module.h"

/// Methods that get back accuracy which quantization costs. Each takes a float network whose layers
/// are fused (fuse_modules, graph::fuse_conv_bn_jit) and gives a float network of the same type, to be
/// quantized as before: with other weights or biases, and where a method has chosen the codes, with
/// QConfigs on the layers (Module::set_qconfig) that keep them. They work on networks that were
/// written as classes and on a graph::Model alike. A method that throws has changed nothing. Many
/// threads may call these functions at once, on const models.
namespace quanta {

/// What methods are shown of the data. No labels are needed.
struct CalibrationData {
  /// What one call of the model takes.
  std::vector<Tensor> example{};
  /// Feeds calibration data: calls the model with each batch. It is called several times and has to
  /// do the same each time.
  Calibrate run{};
  /// Called after each step of a method, for a progress bar: "adaround: layer1.0.conv1", 3 of 12.
  std::function<void(std::string_view what, std::size_t done, std::size_t total)> progress{};

  CalibrationData() = default;
  CalibrationData(std::vector<Tensor> one_call, Calibrate feed)
      : example(std::move(one_call)), run(std::move(feed)) {}
  /// For a network of one input. Throws ArgumentError when there are no batches.
  explicit CalibrationData(std::vector<Tensor> batches);

  void report(std::string_view what, std::size_t done, std::size_t total) const {
    if (progress) progress(what, done, total);
  }
};

/// A method with its settings, for quantize(..., {.methods = {...}}) and apply_methods.
struct AccuracyMethod {
  std::string name;  ///< "adaround"
  /// Changes `model`, which is a copy in eval mode; `reference` is another copy, which may be
  /// spoiled.
  std::function<void(nn::Module& model, nn::Module& reference, const QConfigMapping& qconfigs,
                     const CalibrationData& data)>
      apply;
  /// Whether the model calculates something else afterwards, to make up for what rounding does
  /// (other biases, rounded weights). Methods that follow then have the reference of this one, and
  /// not what it has made.
  bool compensates = false;
};

/// The methods that have a name: "cle", "bias-correction", "adaround" ... Sorted.
std::vector<std::string> accuracy_method_names();
/// One of them with its default settings. Throws ArgumentError listing the names.
AccuracyMethod accuracy_method(std::string_view name);

namespace detail {
/// Throws ArgumentError for data without a run, naming the method.
void apply_method(const AccuracyMethod& method, nn::Module& model, nn::Module& reference,
                  const QConfigMapping& qconfigs, const CalibrationData& data);
}  // namespace detail

/// One method after the other, each on what the one before gave. The reference is the model as the
/// last one left it that keeps what it calculates. Throws what they throw.
template <typename T>
requires std::is_base_of_v<nn::Module, T> T apply_methods(const T& model,
                                                          std::span<const AccuracyMethod> methods,
                                                          const QConfigMapping& qconfigs,
                                                          const CalibrationData& data) {
  T copy = nn::deep_copy(model);
  copy.eval();
  T kept = nn::deep_copy(copy);
  for (const AccuracyMethod& method : methods) {
    T reference = nn::deep_copy(kept);
    detail::apply_method(method, copy, reference, qconfigs, data);
    if (!method.compensates) kept = nn::deep_copy(copy);
  }
  return copy;
}
template <typename T>
requires std::is_base_of_v<nn::Module, T> T apply_method(const T& model,
                                                         const AccuracyMethod& method,
                                                         const QConfigMapping& qconfigs,
                                                         const CalibrationData& data) {
  return apply_methods(model, std::span<const AccuracyMethod>(&method, 1), qconfigs, data);
}

}  // namespace quanta
