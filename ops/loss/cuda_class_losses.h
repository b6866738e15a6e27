#pragma once

// Private: losses over classes on a CUDA device, with the CPU's arithmetic and order of sums.

#include <cstdint>

#include "quanta/ops/loss.h"
#include "quanta/ops/loss/class_question.h"
#include "quanta/ops/loss/cuda_class_kernels.h"
#include "quanta/runtime/cuda/memory.h"
#include "quanta/runtime/tensor.h"

namespace quanta::cuda {

/// One question about rows of scores on a device, Float32. What it points to outlives it.
class ClassLossOnDevice {
 public:
  ClassLossOnDevice(const loss::ClassQuestion<float>& question, Device device,
                    std::int64_t targets);
  /// Whether all classes are in range or ignored; waits for the device.
  bool targets_are_allowed() const;
  /// log_probabilities [rows..., C] to the losses of rows, or the one of all.
  void reduce(const Tensor& log_probabilities, Reduction reduction, const Tensor& out) const;
  /// Of scores [rows..., C], whose log-probabilities are given.
  Tensor scores_gradient(const Tensor& gradient, const Tensor& log_probabilities,
                         Reduction reduction, loss::Scores scores) const;
  /// Of targets that are probabilities.
  Tensor shares_gradient(const Tensor& gradient, const Tensor& log_probabilities,
                         Reduction reduction) const;

 private:
  // A double for each row.
  Buffer row_sums(ClassRowSum what, const float* log_probabilities) const;
  // One double: what gradients are divided by.
  Buffer divisor(Reduction reduction) const;
  ClassGradientParams gradient_params(const Tensor& gradient, const Tensor& result,
                                      Reduction reduction) const;

  ClassRows rows_;
  Device device_;
};

}  // namespace quanta::cuda
