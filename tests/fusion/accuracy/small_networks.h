#pragma once

// A fused network for the tests of methods for accuracy, as a class and as a graph.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "fusion/graph/net_builder.h"
#include "fusion/small_network.h"
#include "quanta/fusion/graph/model.h"
#include "quanta/observers/defaults.h"
#include "quanta/observers/min_max_observer.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/reduce.h"

namespace quanta::test {

/// 4-bit weights with a scale for each channel.
inline QConfig four_bits() {
  return {get_default_qconfig().activation,
          PerChannelMinMaxObserver::with_args({.dtype = DType::QInt8,
                                               .qscheme = QScheme::PerChannelSymmetric,
                                               .quant_min = -8,
                                               .quant_max = 7})};
}

inline std::vector<Tensor> batches(std::uint64_t seed) {
  return {small_input(seed, 8), small_input(seed + 1, 8), small_input(seed + 2, 5)};
}

inline double mean_square(const Tensor& x) { return mean(x * x).item(); }

/// The same layers, sharing no memory.
inline graph::Model graph_of(const SmallNetwork& fused) {
  const StateDict state = nn::deep_copy(fused).state_dict();
  NetBuilder builder;
  const std::vector<std::int64_t> ones(4, 1);
  const auto conv = [&](const std::string& x, const std::string& name) {
    const std::string weight = builder.constant(state.at(name + ".weight"));
    return builder.node("Conv", {x, weight, builder.constant(state.at(name + ".bias"))},
                        {{"pads", ones}});
  };
  const std::string x = builder.input("x");
  const std::string y = builder.node("Relu", {conv(x, "conv1.0")});
  const std::string sum = builder.node("Relu", {builder.node("Add", {conv(y, "conv2"), y})});
  const std::string flat = builder.node("Flatten", {builder.node("GlobalAveragePool", {sum})});
  const std::string weight = builder.constant(state.at("fc.weight"));
  const std::string bias = builder.constant(state.at("fc.bias"));
  return graph::from_onnx(
      builder.finish({builder.node("Gemm", {flat, weight, bias}, {{"transB", std::int64_t{1}}})}));
}

/// Checks that both give the same, but for 1e-5 of the largest result.
inline void check_same_results(const nn::Module& got, const nn::Module& want, const Tensor& x) {
  const Tensor expected = want(x);
  double largest = 0.0;
  for (const float v : expected.to_float_vector()) {
    largest = std::max(largest, std::abs(static_cast<double>(v)));
  }
  CHECK(largest_difference(got(x), expected) <= 1e-5 * (1.0 + largest));
}

}  // namespace quanta::test
