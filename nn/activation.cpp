#include "quanta/nn/activation.h"

#include "quanta/nn/detail/layer_options.h"

namespace quanta::nn {

std::string LeakyReLU::extra_repr() const {
  return "negative_slope=" + detail::python_float(negative_slope_);
}

std::string ELU::extra_repr() const { return "alpha=" + detail::python_float(alpha_); }

std::string CELU::extra_repr() const { return "alpha=" + detail::python_float(alpha_); }

std::string Softplus::extra_repr() const {
  return fmt::format("beta={}, threshold={}", detail::python_float(beta_),
                     detail::python_float(threshold_));
}

Hardtanh::Hardtanh(double min_val, double max_val) : min_val_(min_val), max_val_(max_val) {
  QUANTA_CHECK(min_val < max_val, "Hardtanh: max_val: expected more than min_val {}, got {}",
               min_val, max_val);
}

std::string Hardtanh::extra_repr() const {
  return fmt::format("min_val={}, max_val={}", detail::python_float(min_val_),
                     detail::python_float(max_val_));
}

std::string GELU::extra_repr() const {
  return approximate_ == GeluApproximation::None ? "approximate='none'" : "approximate='tanh'";
}

std::string Softmax::extra_repr() const { return fmt::format("dim={}", dim_); }
std::string LogSoftmax::extra_repr() const { return fmt::format("dim={}", dim_); }

PReLU::PReLU(std::int64_t num_parameters, double init) {
  QUANTA_CHECK(num_parameters >= 1, "PReLU: num_parameters: expected at least 1, got {}",
               num_parameters);
  weight = Tensor::full({num_parameters}, init);
  register_parameter("weight", weight);
}

std::string PReLU::extra_repr() const { return fmt::format("num_parameters={}", weight.numel()); }

}  // namespace quanta::nn
