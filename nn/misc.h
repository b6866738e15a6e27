#pragma once

#include <cstdint>
#include <string>

#include "quanta/nn/module.h"

namespace quanta::nn {

/// Gives back what it gets.
class Identity : public Module {
 public:
  Tensor forward(const Tensor& x) const override { return x; }
};

/// Joins the dimensions start_dim..end_dim into one. Any dtype; a view where possible.
class Flatten : public Module {
 public:
  explicit Flatten(std::int64_t start_dim = 1, std::int64_t end_dim = -1)
      : start_dim_(start_dim), end_dim_(end_dim) {}
  Tensor forward(const Tensor& x) const override { return x.flatten(start_dim_, end_dim_); }
  std::string extra_repr() const override;

 private:
  std::int64_t start_dim_;
  std::int64_t end_dim_;
};

/// In train mode zeroes each element with probability p and scales the rest by 1 / (1 - p), drawn
/// from default_generator(); in eval mode gives back what it gets.
class Dropout : public Module {
 public:
  /// Throws ArgumentError for p outside [0, 1].
  explicit Dropout(double p = 0.5);
  double p() const noexcept { return p_; }
  Tensor forward(const Tensor& x) const override;
  std::string extra_repr() const override;

 private:
  double p_;
};

}  // namespace quanta::nn
