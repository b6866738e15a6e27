#pragma once

// Private: what the batch norms by the batch's own statistics share.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "quanta/ops/norm/cpu_batch_norm.h"
#include "quanta/ops/norm/gradient.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/operation.h"
#include "quanta/runtime/tensor.h"

namespace quanta::norm {

/// What such an operation is called with.
struct BatchNormTrainCall {
  static constexpr ArgumentCount kArguments{7};
  enum Argument : std::size_t {
    kX,
    kRunningMean,
    kRunningVar,
    kWeight,
    kBias,
    kDivisor,
    kShift,
    kCount
  };
  double momentum;
  double eps;

  /// Everything but how many values a channel has. Throws ArgumentError.
  void check(std::string_view op, const Arguments& in) const;
  /// On the CPU, from a batch's moments with `count` elements a channel: y, and for the way back the
  /// mean and the factor that took the place of 1 / sqrt(var); the running statistics move.
  void normalize(const Arguments& in, const cpu::ChannelMoments& moments, std::int64_t count,
                 std::span<const Tensor> out) const;
  /// By argument, on the device of the gradient that came.
  static std::vector<Tensor> by_argument(const BatchNormGradients& gradients,
                                         const autograd::BackwardContext& context);
};

/// How many elements of x a channel has.
std::int64_t values_a_channel(const Tensor& x);

}  // namespace quanta::norm
