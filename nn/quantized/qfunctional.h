#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "quanta/nn/float_functional.h"
#include "quanta/nn/quantized/module.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

namespace quanta::nn::quantized {

/// FloatFunctional on quantized tensors: results have this module's scale and zero point, those of
/// add_scalar and mul_scalar parameters that follow from their input's. Saved as `scale`,
/// `zero_point`. Float operands are refused with ArgumentError.
class QFunctional : public FloatFunctional {
 public:
  double scale = 1.0;
  std::int64_t zero_point = 0;

  explicit QFunctional(double scale = 1.0, std::int64_t zero_point = 0);
  /// Takes a FloatFunctional only.
  static std::shared_ptr<Module> from_float(const Module& module);

  using FloatFunctional::cat;
  Tensor add(const Tensor& lhs, const Tensor& rhs) const override;
  Tensor mul(const Tensor& lhs, const Tensor& rhs) const override;
  Tensor cat(std::span<const Tensor> tensors, std::int64_t dim = 0) const override;
  Tensor add_relu(const Tensor& lhs, const Tensor& rhs) const override;
  Tensor matmul(const Tensor& lhs, const Tensor& rhs) const override;
  Tensor sub(const Tensor& lhs, const Tensor& rhs) const override;
  Tensor div(const Tensor& lhs, const Tensor& rhs) const override;
  Tensor neg(const Tensor& x) const override;
  Tensor minimum(const Tensor& lhs, const Tensor& rhs) const override;
  Tensor maximum(const Tensor& lhs, const Tensor& rhs) const override;
  Tensor mean(const Tensor& x, const Dims& dims, const ReduceOptions& options = {}) const override;
  Tensor softmax(const Tensor& x, std::int64_t dim) const override;
  Tensor add_scalar(const Tensor& x, double value) const override;
  Tensor mul_scalar(const Tensor& x, double value) const override;

  std::string extra_repr() const override;

 protected:
  void save_state(StateDict& state, const std::string& prefix) const override;
  void load_state(StateReader& reader) override;
};

}  // namespace quanta::nn::quantized
