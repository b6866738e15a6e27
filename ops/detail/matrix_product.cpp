#include "quanta/ops/detail/matrix_product.h"

#include "quanta/runtime/check.h"
#include "quanta/runtime/tensor.h"

namespace quanta::detail {
namespace {

Dims batch_of(Dims sizes) {
  sizes.resize(sizes.size() - 2);
  return sizes;
}

void raise_rank(Dims& sizes, std::size_t rank) {
  while (sizes.size() < rank) sizes.insert(0, 1);
}

}  // namespace

MatrixSizes matrix_sizes(std::string_view op, const Tensor& lhs, const Tensor& rhs,
                         OperandNames names) {
  QUANTA_CHECK(lhs.dim() >= 1, "{}: {}: expected at least 1 dimension, got 0", op, names.left);
  QUANTA_CHECK(rhs.dim() >= 1, "{}: {}: expected at least 1 dimension, got 0", op, names.right);
  MatrixSizes sizes{lhs.sizes(), rhs.sizes(), {}, {}};
  auto& [left, right, result, out] = sizes;
  if (left.size() == 1) left.insert(0, 1);
  if (right.size() == 1) right.push_back(1);
  QUANTA_CHECK(left.back() == right[right.size() - 2],
               "{}: {}: expected {} rows for {} of sizes {}, got sizes {}", op, names.right,
               left.back(), names.left, lhs.sizes(), rhs.sizes());
  result = broadcast_sizes(batch_of(left), batch_of(right), op);
  out = result;
  result.push_back(left[left.size() - 2]);
  result.push_back(right.back());
  if (lhs.dim() > 1) out.push_back(left[left.size() - 2]);
  if (rhs.dim() > 1) out.push_back(right.back());
  raise_rank(left, result.size());
  raise_rank(right, result.size());
  return sizes;
}

float scale_of_sums(const Tensor& lhs, const Tensor& rhs) {
  return static_cast<float>(lhs.impl()->quantizer.scale) *
         static_cast<float>(rhs.impl()->quantizer.scale);
}

std::string_view multiply_activations(const Tensor& lhs, const Tensor& rhs,
                                      const MatrixSizes& sizes, const cpu::SumsReader& reader) {
  const auto operand = [](const Tensor& x, const Dims& own) {
    return cpu::CodesOperand::of(x.view(own), x.impl()->quantizer.zero_point);
  };
  return cpu::multiply_operands(operand(lhs, sizes.left), operand(rhs, sizes.right), sizes.result,
                                reader);
}

void multiply_activations_on_cuda(const Tensor& lhs, const Tensor& rhs, const MatrixSizes& sizes,
                                  const ByteProductEnd& end, const Tensor& out) {
  const auto operand = [](const Tensor& x, const Dims& own) {
    return ByteOperand{QTensor(x).int_repr_view().view(own), x.impl()->quantizer.zero_point};
  };
  multiply_bytes_on_cuda(operand(lhs, sizes.left), operand(rhs, sizes.right), end,
                         out.view(sizes.result));
}

}  // namespace quanta::detail
