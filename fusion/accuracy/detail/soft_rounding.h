#pragma once

// Private: rounding up or down as variables that are learnt.

#include <cstdint>
#include <string_view>
#include <vector>

#include "quanta/fusion/accuracy/detail/weighted_layers.h"

namespace quanta::accuracy {

/// The soft quantization variables of AdaRound (Nagel et al. 2020, "Up or Down? Adaptive Rounding
/// for Post-Training Quantization", equations 22 and 23), one for each weight:
///
///   soft = scale * (clamp(floor(w / scale) + h(V) + zero_point, min, max) - zero_point)
///   h(V) = clamp(sigmoid(V) * (zeta - gamma) + gamma, 0, 1),  zeta = 1.1, gamma = -0.1
///
/// At first h(V) is what floor cut off, so that the soft weight is the float one within the grid.
/// For one thread.
class SoftRounding {
 public:
  SoftRounding(const Tensor& weight, const WeightGrid& grid);

  /// The soft weight: a new tensor of the weight's sizes, contiguous.
  Tensor soft() const;
  /// The weight on the grid: up where h(V) >= 0.5.
  Tensor hard() const;

  struct Step {
    double learning_rate = 1e-3;
    double regularization = 0.0;  ///< weight of the sum of 1 - |2 h(V) - 1|^beta; 0: without it
    double beta = 2.0;
  };
  /// One step of Adam (0.9, 0.999) on V. `gradient` is the loss's for the soft weight.
  void step(const Tensor& gradient, const Step& step);

 private:
  Tensor on_grid(bool soft) const;

  Dims sizes_;
  std::vector<float> floor_, scale_, low_, high_;  // codes without their zero points
  std::vector<float> v_, first_, second_;          // V and the moments of its gradient
  std::int64_t steps_ = 0;
};

/// What methods that learn rounding have in common.
struct RoundingOptions {
  std::int64_t iterations = 10000;
  std::int64_t batch_size = 256;
  double learning_rate = 1e-2;
  double regularization = 0.01;
  double warm_start = 0.2;
};
/// These of a method's own options.
template <typename Options>
RoundingOptions rounding_of(const Options& options) {
  return {.iterations = options.iterations,
          .batch_size = options.batch_size,
          .learning_rate = options.learning_rate,
          .regularization = options.regularization,
          .warm_start = options.warm_start};
}
/// Throws ArgumentError, naming `op` and the option.
void check(std::string_view op, const RoundingOptions& options);

/// The paper's schedule: 0 <= done < 1 of the steps; none during `warm_start`, then beta falls from
/// 20 to 2 along a cosine.
SoftRounding::Step rounding_step(double done, double warm_start, double learning_rate,
                                 double regularization);
/// Of this step.
SoftRounding::Step rounding_step(std::int64_t iteration, const RoundingOptions& options);

}  // namespace quanta::accuracy
