#include "quanta/ops/loss/cuda_class_losses.h"

#include "quanta/ops/cuda/device_data.h"
#include "quanta/ops/cuda/fault.h"
#include "quanta/ops/detail/cuda_softmax.h"
#include "quanta/ops/loss/cuda_losses.h"

namespace quanta::cuda {
ClassLossOnDevice::ClassLossOnDevice(const loss::ClassQuestion<float>& question, Device device,
                                     std::int64_t targets)
    : rows_{question, question.indices == nullptr ? targets / question.classes : targets},
      device_(device) {}

bool ClassLossOnDevice::targets_are_allowed() const {
  if (rows_.rows == 0) return true;
  const Fault fault(device_);
  check_classes(device_, {.rows = rows_, .fault = fault.flag()});
  return !fault.is_raised();
}

Buffer ClassLossOnDevice::row_sums(ClassRowSum what, const float* log_probabilities) const {
  if (rows_.question.is_one_hot() || rows_.rows == 0) return {};
  Buffer sums(device_, static_cast<std::size_t>(rows_.rows) * sizeof(double));
  sum_class_rows(device_, {.rows = rows_,
                           .what = what,
                           .log_probabilities = log_probabilities,
                           .sums = sums.as<double>()});
  return sums;
}

void ClassLossOnDevice::reduce(const Tensor& log_probabilities, Reduction reduction,
                               const Tensor& out) const {
  const float* scores = floats_of(log_probabilities);
  const Buffer losses = row_sums(ClassRowSum::Loss, scores);
  ClassLossesParams params;
  params.rows = rows_;
  params.row_losses = losses.as<double>();
  params.log_probabilities = scores;
  auto* const to = reinterpret_cast<float*>(out.device_ptr());
  if (reduction == Reduction::None) {
    params.losses = to;
    class_losses(device_, params);
    return;
  }
  const LossSums sums(device_, rows_.rows);
  const LossSums divisors(device_, rows_.rows);
  JoinLossParams join;
  join.y = to;
  params.parts = sums.parts();
  if (reduction == Reduction::Mean) join.divisor_parts = params.divisor_parts = divisors.parts();
  if (rows_.rows > 0) sum_class_losses(device_, params);
  sums.join(join);
}

Buffer ClassLossOnDevice::divisor(Reduction reduction) const {
  Buffer result(device_, sizeof(double));
  const LossSums divisors(device_, rows_.rows);
  JoinLossParams join;
  join.divisor_result = result.as<double>();
  if (reduction == Reduction::Mean) {
    join.divisor_parts = divisors.parts();
    sum_class_losses(device_, {.rows = rows_, .divisor_parts = divisors.parts()});
  }
  divisors.join(join);
  return result;
}

ClassGradientParams ClassLossOnDevice::gradient_params(const Tensor& gradient, const Tensor& result,
                                                       Reduction reduction) const {
  ClassGradientParams params;
  params.rows = rows_;
  params.gradient = floats_of(gradient);
  params.step = reduction == Reduction::None ? 1 : 0;
  params.result = reinterpret_cast<float*>(result.device_ptr());
  return params;
}

Tensor ClassLossOnDevice::scores_gradient(const Tensor& gradient, const Tensor& log_probabilities,
                                          Reduction reduction, loss::Scores scores) const {
  const Tensor dense = gradient.contiguous();
  const Tensor result =
      Tensor::empty(log_probabilities.sizes(), DType::Float32, MemoryFormat::Contiguous, device_);
  if (result.numel() == 0) return result;
  const Buffer divided_by = divisor(reduction);
  ClassGradientParams params = gradient_params(dense, result, reduction);
  params.divisor = divided_by.as<double>();
  Buffer totals;
  if (scores == loss::Scores::Logits) {
    // exp of log-probabilities; a softmax changes nothing else in them.
    softmax(SoftmaxKind::Softmax, log_probabilities, result, log_probabilities.dim() - 1);
    params.from = floats_of(result);
    totals = row_sums(ClassRowSum::Total, nullptr);
    params.totals = totals.as<double>();
  }
  class_scores_gradient(device_, params);
  return result;
}

Tensor ClassLossOnDevice::shares_gradient(const Tensor& gradient, const Tensor& log_probabilities,
                                          Reduction reduction) const {
  const Tensor dense = gradient.contiguous();
  const Tensor result =
      Tensor::empty(log_probabilities.sizes(), DType::Float32, MemoryFormat::Contiguous, device_);
  if (result.numel() == 0) return result;
  const Buffer divided_by = divisor(reduction);
  ClassGradientParams params = gradient_params(dense, result, reduction);
  params.divisor = divided_by.as<double>();
  params.from = floats_of(log_probabilities);
  class_shares_gradient(device_, params);
  return result;
}

}  // namespace quanta::cuda
