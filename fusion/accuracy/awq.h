#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "quanta/fusion/accuracy/method.h"
#include "quanta/fusion/quantize_weight_only.h"
#include "quanta/ops/linear_weight_only.h"

// Functions that take a const model may run in many threads at once; see fusion/accuracy/method.h.

namespace quanta {

struct AwqOptions {
  bool search_scales = true;
  std::int64_t scale_steps = 20;
  bool search_ranges = true;
  std::int64_t range_steps = 20;
  double largest_cut = 0.5;  ///< of a range, 0..1
  /// Layers whose path has one of these parts keep their ranges: what queries and keys lose, their
  /// product loses twice.
  std::vector<std::string> keep_ranges{"q_", "k_", "query", "key", "Wqkv"};
};

/// Activation-aware weight quantization (Lin et al. 2023, AWQ: Activation-aware Weight Quantization
/// for LLM Compression and Acceleration): prepares a float network for quantize_weight_only with the
/// same `weight` options, in two searches that look at what weights do to the data.
///
/// Scales: channels that carry much lose less when their weights are larger. For linear layers that
/// alone take what a norm or layer gives (see smooth_quant), of all
///
///   s_j = mean |X_j|^(i / scale_steps),  i = 0 .. scale_steps - 1,  divided by sqrt(max s * min s)
///
/// (at least 1e-4) the one whose rounded layers, Q(W diag(s)) diag(s)^-1 X, lose least; W is
/// multiplied with it and the norm or layer before divided by it. Ranges: each group of a weight is
/// clipped to the share 1 - i / range_steps, i < largest_cut * range_steps, of its largest magnitude
/// with which its part of the layer's result loses least. Losses are sums of squares over all data.
///
/// A network without a place for scales (BERT adds what its norms give to something), or whose run
/// cannot be recorded, only gets its ranges cut, as the paper's release does with layers that it
/// knows no scales for: data.report says so ("awq: no scales: ...", 0 of the steps).
///
/// A copy of `model` in eval mode; without range search it calculates the same. nn::Linear layers
/// count, of the exact type and outside of fused modules, as quantize_weight_only takes them with
/// `filter`. Works on networks written as classes and on graph::Model. Throws ArgumentError for steps < 1, a cut outside
/// of 0..1, bits and group sizes that quantize_weight_only refuses, a model without such layers,
/// values that are not finite, names in `filter` that are no paths; without search_ranges a network
/// without a place for scales, and UnsupportedError for a run that cannot be recorded; what data.run
/// throws.
///
///   const auto prepared = awq(net, {.bits = 4, .group_size = 32}, data);
///   const auto small = quantize_weight_only(prepared, {.bits = 4, .group_size = 32});
AccuracyMethod awq_method(const WeightOnlyOptions& weight = {.bits = 4, .group_size = 32},
                          const AwqOptions& options = {}, const WeightOnlyFilter& filter = {});
template <typename T>
requires std::is_base_of_v<nn::Module, T> T awq(const T& model, const WeightOnlyOptions& weight,
                                                const CalibrationData& data,
                                                const AwqOptions& options = {},
                                                const WeightOnlyFilter& filter = {}) {
  return apply_method(model, awq_method(weight, options, filter), {}, data);
}

}  // namespace quanta
