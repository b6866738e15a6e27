#pragma once

// Private: figures of one tensor beside another, over several pairs.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "quanta/fusion/report.h"
#include "quanta/ops/sqnr.h"
#include "quanta/runtime/tensor.h"

namespace quanta::reporting {

/// Row-major Float32 on the CPU, whatever it was.
Tensor plain_floats(const Tensor& x);

/// For one thread.
class Figures {
 public:
  /// Of the same sizes; any dtypes.
  void add(const Tensor& reference, const Tensor& value, const std::optional<ReportGrid>& grid);

  double sqnr() const { return sqnr_.decibels(); }
  double cosine() const;
  double largest_error() const { return largest_error_; }
  double bias_share() const;
  /// None unless there was a grid.
  std::optional<double> saturated() const;
  double low() const { return count_ == 0 ? 0.0 : low_; }
  double high() const { return count_ == 0 ? 0.0 : high_; }
  double rms() const;

 private:
  SqnrSum sqnr_;
  double reference_squares_ = 0.0, value_squares_ = 0.0, products_ = 0.0, error_squares_ = 0.0;
  double largest_error_ = 0.0;
  double low_, high_;
  std::int64_t count_ = 0, saturated_ = 0;
  bool has_grid_ = false;
  std::vector<double> channel_errors_;
  std::vector<std::int64_t> channel_counts_;
};

/// Adds the elements to the bins between low and high; what lies outside counts in the outer ones,
/// NaN nowhere.
void count_values(const Tensor& x, double low, double high, std::vector<std::int64_t>& bins);

/// The codes that a quantized tensor with one scale has; none for others.
std::optional<ReportGrid> grid_of(const Tensor& x);

/// The weight of a layer and what quantizing made of it, by channels along `axis`. None where the
/// sizes differ.
std::optional<WeightReport> compare_weights(const Tensor& reference, const Tensor& value,
                                            std::int64_t axis);

/// The weight of a module as its state has it, or as its own fake quantizer leaves it: of at least
/// two dimensions, the module's own or its first part's. Undefined where there is none.
Tensor weight_of(const nn::Module& module);
/// The axis of its output channels.
std::int64_t channel_axis(const nn::Module& module);

}  // namespace quanta::reporting
