#pragma once

// Private: the kernels of losses over classes.

#include <cstdint>

#include "quanta/ops/loss/class_question.h"
#include "quanta/runtime/cuda/launch.h"

namespace quanta::cuda {

struct ClassRows {
  loss::ClassQuestion<float> question;
  std::int64_t rows = 0;
};

/// Raises `fault` where a target is neither a class nor ignored.
struct CheckClassesParams {
  ClassRows rows;
  std::int32_t* fault = nullptr;
};
QUANTA_CUDA_ENTRY(check_classes, CheckClassesParams)

/// Of rows that are not one-hot: the loss, or the sum of q.
enum class ClassRowSum : std::uint8_t { Loss, Total };
struct ClassRowSumsParams {
  ClassRows rows;
  ClassRowSum what{};
  const float* log_probabilities = nullptr;
  double* sums = nullptr;  // [rows]
};
QUANTA_CUDA_ENTRY(sum_class_rows, ClassRowSumsParams)

/// The losses of rows as floats, and their sums and those of the mean's divisor by blocks of
/// detail::kBlockTerms. What is null is not wanted.
struct ClassLossesParams {
  ClassRows rows;
  const double* row_losses = nullptr;        // of rows that are not one-hot, else:
  const float* log_probabilities = nullptr;  // (both null: no losses)
  float* losses = nullptr;
  double* parts = nullptr;
  double* divisor_parts = nullptr;
};
QUANTA_CUDA_ENTRY(class_losses, ClassLossesParams)
QUANTA_CUDA_ENTRY(sum_class_losses, ClassLossesParams)

struct ClassGradientParams {
  ClassRows rows;
  const float* gradient = nullptr;  // of row i: gradient[i * step]
  std::int64_t step = 0;
  const double* divisor = nullptr;  // one number
  const double* totals = nullptr;   // [rows], of rows that are not one-hot
  const float* from = nullptr;      // probabilities (null: scores are log-probabilities), or
                                    // log-probabilities for the shares' gradient
  float* result = nullptr;          // may be `from`
};
QUANTA_CUDA_ENTRY(class_scores_gradient, ClassGradientParams)
QUANTA_CUDA_ENTRY(class_shares_gradient, ClassGradientParams)

}  // namespace quanta::cuda
