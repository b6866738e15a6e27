#include "quanta/ops/rnn/loop.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "quanta/ops/cpu/onednn/linear_float.h"
#include "quanta/ops/rnn/cpu_kernels.h"

namespace quanta::detail {
namespace {

HiddenFunction<float> as_function(std::shared_ptr<const cpu::LinearFloat> kernel) {
  return [kernel = std::move(kernel)](const float* h, std::int64_t rows, float* out) {
    kernel->run(rows, h, out);
  };
}

}  // namespace

std::vector<RecurrentStep> steps_in_order(std::span<const std::int64_t> batch_sizes,
                                          StepOrder order) {
  std::vector<RecurrentStep> steps;
  steps.reserve(batch_sizes.size());
  std::int64_t first = 0;
  for (const std::int64_t rows : batch_sizes) {
    if (rows > 0) steps.push_back({first, rows});
    first += rows;
  }
  if (order == StepOrder::Reverse) std::reverse(steps.begin(), steps.end());
  for (std::size_t i = 1; i < steps.size(); ++i) {
    steps[i].before_first = steps[i - 1].first;
    steps[i].before_rows = steps[i - 1].rows;
  }
  return steps;
}

std::int64_t kept_numbers(RecurrentKind kind) {
  switch (kind) {
    case RecurrentKind::RnnTanh:
    case RecurrentKind::RnnRelu:
      return 0;
    case RecurrentKind::Lstm:
      return cpu::kLstmKept;
    case RecurrentKind::Gru:
      return cpu::kGruKept;
  }
  return 0;
}

template <>
HiddenFunction<float> hidden_function<float>(const Tensor& weight, const Tensor& bias) {
  return as_function(
      std::make_shared<const cpu::LinearFloat>(weight, bias, cpu::FloatEpilogue::None));
}

template <>
HiddenFunction<double> hidden_function<double>(const Tensor& weight, const Tensor& bias) {
  return [weight, bias](const double* h, std::int64_t rows, double* out) {
    const std::int64_t outputs = weight.sizes()[0];
    const std::int64_t inputs = weight.sizes()[1];
    for (std::int64_t i = 0; i < rows * outputs; ++i) {
      const double* row = weight.data<double>() + i % outputs * inputs;
      const double* x = h + i / outputs * inputs;
      double sum = bias.defined() ? bias.data<double>()[i % outputs] : 0.0;
      for (std::int64_t k = 0; k < inputs; ++k) sum += row[k] * x[k];
      out[i] = sum;
    }
  };
}

template <>
HiddenFunction<float> hidden_function_back<float>(const Tensor& weight) {
  return as_function(std::make_shared<const cpu::LinearFloat>(weight, cpu::LinearFloat::Back{}));
}

template <>
HiddenFunction<double> hidden_function_back<double>(const Tensor& weight) {
  return hidden_function<double>(weight.t().contiguous(), Tensor());
}

}  // namespace quanta::detail
