#pragma once

#include "quanta/runtime/tensor.h"

/// How far a quantized result is from the float one: the signal-to-quantization-noise ratio, as
/// torch.ao.ns.fx.utils.compute_sqnr has it.
///
/// All throw ArgumentError for undefined tensors and for tensors of different sizes. Many threads
/// may call sqnr at once while nobody writes to the arguments; an SqnrSum is for one thread.
namespace quanta {

/// Decibels, 10 log10(sum reference^2 / sum (reference - value)^2), over all elements in double
/// precision. Any dtypes; quantized tensors are dequantized. Infinite for equal tensors (empty ones
/// too), minus infinity where the reference is zero and the value is not, NaN where elements that
/// differ are infinite or NaN.
double sqnr(const Tensor& reference, const Tensor& value);

/// The same over several pairs of tensors: the sums go on.
class SqnrSum {
 public:
  void add(const Tensor& reference, const Tensor& value);
  /// Decibels of all pairs so far.
  double decibels() const;

 private:
  double signal_ = 0.0;
  double noise_ = 0.0;
};

}  // namespace quanta
