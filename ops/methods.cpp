// The members of Tensor that are functions of ops: declared where Tensor is, for code that reads
// x.sum(), and defined here, so that runtime knows nothing of ops.

#include "quanta/ops/activation.h"
#include "quanta/ops/elementwise.h"
#include "quanta/ops/matmul.h"
#include "quanta/ops/reduce.h"
#include "quanta/runtime/tensor.h"

namespace quanta {

Tensor Tensor::sum() const { return quanta::sum(*this); }
Tensor Tensor::sum(const Dims& dims, bool keepdim) const {
  return quanta::sum(*this, dims, {.keepdim = keepdim});
}
Tensor Tensor::mean() const { return quanta::mean(*this); }
Tensor Tensor::mean(const Dims& dims, bool keepdim) const {
  return quanta::mean(*this, dims, {.keepdim = keepdim});
}
Tensor Tensor::max() const { return quanta::max(*this); }
Tensor Tensor::min() const { return quanta::min(*this); }
Tensor Tensor::argmax() const { return quanta::argmax(*this); }
Tensor Tensor::argmax(std::int64_t dim, bool keepdim) const {
  return quanta::argmax(*this, dim, {.keepdim = keepdim});
}
Tensor Tensor::abs() const { return quanta::abs(*this); }
Tensor Tensor::exp() const { return quanta::exp(*this); }
Tensor Tensor::log() const { return quanta::log(*this); }
Tensor Tensor::sqrt() const { return quanta::sqrt(*this); }
Tensor Tensor::pow(double exponent) const { return quanta::pow(*this, exponent); }
Tensor Tensor::pow(const Tensor& exponent) const { return quanta::pow(*this, exponent); }
Tensor Tensor::relu() const { return quanta::relu(*this); }
Tensor Tensor::sigmoid() const { return quanta::sigmoid(*this); }
Tensor Tensor::tanh() const { return quanta::tanh(*this); }
Tensor Tensor::softmax(std::int64_t dim) const { return quanta::softmax(*this, dim); }
Tensor Tensor::matmul(const Tensor& other) const { return quanta::matmul(*this, other); }

}  // namespace quanta
