#pragma once

// Private: what the batch norms by the batch's own statistics share on the CPU.

#include <cstdint>
#include <vector>

#include "quanta/ops/norm/cpu_batch_norm.h"
#include "quanta/runtime/tensor.h"

namespace quanta::norm {

/// The elements of a dense parameter, or `count` of `fallback` if it is undefined.
std::vector<double> as_doubles(const Tensor& parameter, std::int64_t count, double fallback);

/// How many elements of x a channel has.
std::int64_t values_a_channel(const Tensor& x);

/// Statistics that follow those of the batches; undefined ones do not.
struct RunningStatistics {
  const Tensor& mean;
  const Tensor& var;
  double momentum;
};
/// Moves them towards those of `count` elements a channel, each divided by the divisor and shifted. A
/// count of 0 changes nothing.
void move_statistics(const RunningStatistics& running, const cpu::ChannelMoments& of_batch,
                     std::int64_t count, const std::vector<double>& divisors,
                     const std::vector<double>& shifts);

}  // namespace quanta::norm
