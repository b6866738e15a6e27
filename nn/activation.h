#pragma once

#include <cstdint>
#include <string>

#include "quanta/nn/module.h"
#include "quanta/ops/activation.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

namespace quanta::nn {

// Float32 in, Float32 out, shape and memory order kept. ReLU, ReLU6, LeakyReLU, Hardtanh,
// Hardsigmoid, Sigmoid, Tanh and GELU also take per-tensor quantized tensors (see
// ops/activation.h), so they stay in place in a converted network.

class ReLU : public Module {
 public:
  Tensor forward(const Tensor& x) const override { return relu(x); }
};

class ReLU6 : public Module {
 public:
  Tensor forward(const Tensor& x) const override { return relu6(x); }
};

class LeakyReLU : public Module {
 public:
  explicit LeakyReLU(double negative_slope = 0.01) : negative_slope_(negative_slope) {}
  double negative_slope() const noexcept { return negative_slope_; }
  Tensor forward(const Tensor& x) const override { return leaky_relu(x, negative_slope_); }
  std::string extra_repr() const override;

 private:
  double negative_slope_;
};

class ELU : public Module {
 public:
  explicit ELU(double alpha = 1.0) : alpha_(alpha) {}
  double alpha() const noexcept { return alpha_; }
  Tensor forward(const Tensor& x) const override { return elu(x, alpha_); }
  std::string extra_repr() const override;

 private:
  double alpha_;
};

class Hardswish : public Module {
 public:
  Tensor forward(const Tensor& x) const override { return hardswish(x); }
};

class Hardsigmoid : public Module {
 public:
  Tensor forward(const Tensor& x) const override { return hardsigmoid(x); }
};

class Hardtanh : public Module {
 public:
  /// Throws ArgumentError unless min_val < max_val.
  explicit Hardtanh(double min_val = -1.0, double max_val = 1.0);
  Tensor forward(const Tensor& x) const override { return hardtanh(x, min_val_, max_val_); }
  std::string extra_repr() const override;

 private:
  double min_val_;
  double max_val_;
};

class Sigmoid : public Module {
 public:
  Tensor forward(const Tensor& x) const override { return sigmoid(x); }
};

class Tanh : public Module {
 public:
  Tensor forward(const Tensor& x) const override { return tanh(x); }
};

class GELU : public Module {
 public:
  explicit GELU(GeluApproximation approximate = GeluApproximation::None)
      : approximate_(approximate) {}
  GeluApproximation approximate() const noexcept { return approximate_; }
  Tensor forward(const Tensor& x) const override { return gelu(x, approximate_); }
  std::string extra_repr() const override;

 private:
  GeluApproximation approximate_;
};

class SiLU : public Module {
 public:
  Tensor forward(const Tensor& x) const override { return silu(x); }
};

class CELU : public Module {
 public:
  explicit CELU(double alpha = 1.0) : alpha_(alpha) {}
  double alpha() const noexcept { return alpha_; }
  Tensor forward(const Tensor& x) const override { return celu(x, alpha_); }
  std::string extra_repr() const override;

 private:
  double alpha_;
};

class SELU : public Module {
 public:
  Tensor forward(const Tensor& x) const override { return selu(x); }
};

class Mish : public Module {
 public:
  Tensor forward(const Tensor& x) const override { return mish(x); }
};

class Softplus : public Module {
 public:
  explicit Softplus(double beta = 1.0, double threshold = 20.0)
      : beta_(beta), threshold_(threshold) {}
  double beta() const noexcept { return beta_; }
  double threshold() const noexcept { return threshold_; }
  Tensor forward(const Tensor& x) const override { return softplus(x, beta_, threshold_); }
  std::string extra_repr() const override;

 private:
  double beta_;
  double threshold_;
};

class Softsign : public Module {
 public:
  Tensor forward(const Tensor& x) const override { return softsign(x); }
};

class LogSigmoid : public Module {
 public:
  Tensor forward(const Tensor& x) const override { return logsigmoid(x); }
};

class LogSoftmax : public Module {
 public:
  explicit LogSoftmax(std::int64_t dim) : dim_(dim) {}
  std::int64_t dim() const noexcept { return dim_; }
  Tensor forward(const Tensor& x) const override { return log_softmax(x, dim_); }
  std::string extra_repr() const override;

 private:
  std::int64_t dim_;
};

class Softmax : public Module {
 public:
  explicit Softmax(std::int64_t dim) : dim_(dim) {}
  std::int64_t dim() const noexcept { return dim_; }
  Tensor forward(const Tensor& x) const override { return softmax(x, dim_); }
  std::string extra_repr() const override;

 private:
  std::int64_t dim_;
};

/// max(x, 0) + weight * min(x, 0), with one weight, or one for each channel (dimension 1).
class PReLU : public Module {
 public:
  /// [num_parameters]
  Tensor weight;

  explicit PReLU(std::int64_t num_parameters = 1, double init = 0.25);
  Tensor forward(const Tensor& x) const override { return prelu(x, weight); }
  std::string extra_repr() const override;
};

}  // namespace quanta::nn
