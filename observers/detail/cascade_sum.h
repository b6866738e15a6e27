#pragma once

// Private: sums of float32 in the order of torch.sum.

#include <span>

namespace quanta::detail {

/// The float32 that torch.sum gives for the elements of a contiguous tensor on one thread. torch
/// adds in eight lanes, whatever the instruction set, and each lane in four chains; a chain is a
/// tree of four levels, so that numbers of about the same size are added (ATen's cascade_sum). Up
/// to 32768 elements torch takes one thread.
float cascade_sum(std::span<const float> x);

}  // namespace quanta::detail
