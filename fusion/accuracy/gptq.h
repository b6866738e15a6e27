#pragma once

#include <cstdint>
#include <type_traits>

#include "quanta/fusion/accuracy/method.h"
#include "quanta/fusion/quantize_weight_only.h"
#include "quanta/ops/linear_weight_only.h"

// Functions that take a const model may run in many threads at once; see fusion/accuracy/method.h.

namespace quanta {

struct GptqOptions {
  double percdamp = 0.01;         ///< added to the Hessian's diagonal, as a share of its mean; >= 0
  bool act_order = false;         ///< columns with the largest diagonal first ("desc_act")
  std::int64_t block_size = 128;  ///< columns after which those beyond are told the errors: speed
};

/// GPTQ: Frantar et al. 2022, "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained
/// Transformers". Layer by layer, in the order of calls, with the inputs X of the network whose
/// earlier layers are rounded already: H = 2 X X^T / positions, its diagonal raised by percdamp times
/// its mean, U the upper Cholesky factor of H^-1. The columns of a weight are rounded to nearest one
/// after the other, and those that are left take over the error e of column j: w_k -= e / U_jj *
/// U_jk. Weights of columns that are 0 in all the data become 0. In float64.
///
/// Codes lie on the grid that the QConfig's weight observer finds for the float weight, and the layer
/// gets a QConfig that keeps this grid. Biases stay. Convolutions are products of patches.
///
/// A copy of `model` in eval mode. Works on networks written as classes and on graph::Model. Throws
/// ArgumentError: options out of range, no layer with an integer QConfig, data that does not reach
/// one or gives numbers that are not finite, a Hessian that is not positive definite in float64;
/// UnsupportedError for weight observers without an integer grid; what data.run throws.
///
///   const auto rounded = gptq(net, qconfigs, CalibrationData(batches));
///   const auto int8 = quantize(rounded, batches[0], batches, {.qconfigs = qconfigs});
AccuracyMethod gptq_method(const GptqOptions& options = {});
template <typename T>
requires std::is_base_of_v<nn::Module, T> T gptq(const T& model, const QConfigMapping& qconfigs,
                                                 const CalibrationData& data,
                                                 const GptqOptions& options = {}) {
  return apply_method(model, gptq_method(options), qconfigs, data);
}

struct GptqWeightOnlyOptions {
  double percdamp = 0.01;  ///< these three as in GptqOptions
  bool act_order = false;
  std::int64_t block_size = 128;
  /// Scales of all groups come from the float weight; otherwise from the weights as they are when
  /// the turn of the group comes. act_order needs it where there are groups: a group's columns then
  /// do not follow one another.
  bool static_groups = false;
  /// Convolutions too. There is no layer for them whose weights alone are quantized: they stay float
  /// ones with a weight that lies on the grid. Groups are of input channels times kernel; a
  /// convolution whose number of those the group size does not divide has one for each output
  /// channel.
  bool convolutions = false;
};

namespace detail {
void gptq_weight_only(nn::Module& model, nn::Module& scratch, const WeightOnlyOptions& weight,
                      const CalibrationData& data, const GptqWeightOnlyOptions& options,
                      const WeightOnlyFilter& filter);
}  // namespace detail

/// The same for weights alone: a copy in eval mode whose nn::Linear layers, those that
/// quantize_weight_only takes with this filter, are weight_only::Linear with the codes that GPTQ
/// chose. Scales follow quantize_weight_only's rule. nn::MultiheadAttention stays in float. Throws
/// as gptq and quantize_weight_only do, and UnsupportedError for act_order with groups that are not
/// static.
///
///   const auto small = gptq_weight_only(net, CalibrationData(batches), {.bits = 4, .group_size = 32});
template <typename T>
requires std::is_base_of_v<nn::Module, T> T
gptq_weight_only(const T& model, const CalibrationData& data,
                 const WeightOnlyOptions& weight = {.bits = 4, .group_size = 32},
                 const GptqWeightOnlyOptions& options = {}, const WeightOnlyFilter& filter = {}) {
  T copy = nn::deep_copy(model);
  copy.eval();
  T scratch = nn::deep_copy(copy);
  detail::gptq_weight_only(copy, scratch, weight, data, options, filter);
  return copy;
}

}  // namespace quanta
