#pragma once

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "quanta/nn/module.h"
#include "quanta/ops/reduce.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

namespace quanta::nn {

/// Operations as a module, so that their results can be observed and quantized: in
/// a network that is to be quantized, `skip->add(a, b)` takes the place of `a + b`.
///
/// One FloatFunctional has one scale for all its results: use one for each place in forward, made
/// in the constructor. While it observes, a second call in the same forward is warned of. Float tensors here; after convert a quantized::QFunctional, which is a
/// FloatFunctional too, stands in the slot. forward() throws UnsupportedError.
class FloatFunctional : public Module {
 public:
  virtual Tensor add(const Tensor& lhs, const Tensor& rhs) const;
  virtual Tensor mul(const Tensor& lhs, const Tensor& rhs) const;
  virtual Tensor cat(std::span<const Tensor> tensors, std::int64_t dim = 0) const;
  Tensor cat(std::initializer_list<Tensor> tensors, std::int64_t dim = 0) const {
    return cat(std::span<const Tensor>(tensors.begin(), tensors.size()), dim);
  }
  virtual Tensor add_relu(const Tensor& lhs, const Tensor& rhs) const;
  virtual Tensor matmul(const Tensor& lhs, const Tensor& rhs) const;

  // Beyond torch's.
  virtual Tensor sub(const Tensor& lhs, const Tensor& rhs) const;
  virtual Tensor div(const Tensor& lhs, const Tensor& rhs) const;
  virtual Tensor neg(const Tensor& x) const;
  virtual Tensor minimum(const Tensor& lhs, const Tensor& rhs) const;
  virtual Tensor maximum(const Tensor& lhs, const Tensor& rhs) const;
  /// Over `dims`, or all of them when it is empty.
  virtual Tensor mean(const Tensor& x, const Dims& dims, const ReduceOptions& options = {}) const;
  virtual Tensor softmax(const Tensor& x, std::int64_t dim) const;

  // Not observed: the result's parameters follow from those of `x`.
  virtual Tensor add_scalar(const Tensor& x, double value) const;
  virtual Tensor mul_scalar(const Tensor& x, double value) const;

  [[noreturn]] Tensor forward(const Tensor& x) const override;

 protected:
  /// What the observer makes of a result; the result itself without one.
  Tensor observed(const Tensor& result) const;

 private:
  // The call of the module that called this one last; nobody has called a copy yet.
  struct LastCaller {
    std::atomic<std::uint64_t> number{0};
    LastCaller() = default;
    LastCaller(const LastCaller&) noexcept {}
    LastCaller& operator=(const LastCaller&) noexcept { return *this; }
  };
  mutable LastCaller last_caller_;
};

/// The same operations without an observer, for graphs whose observers are modules of their own.
class FXFloatFunctional : public Module {
 public:
  Tensor add(const Tensor& lhs, const Tensor& rhs) const;
  Tensor mul(const Tensor& lhs, const Tensor& rhs) const;
  Tensor cat(std::span<const Tensor> tensors, std::int64_t dim = 0) const;
  Tensor add_relu(const Tensor& lhs, const Tensor& rhs) const;
  Tensor matmul(const Tensor& lhs, const Tensor& rhs) const;
  Tensor add_scalar(const Tensor& x, double value) const;
  Tensor mul_scalar(const Tensor& x, double value) const;

  [[noreturn]] Tensor forward(const Tensor& x) const override;
};

}  // namespace quanta::nn
