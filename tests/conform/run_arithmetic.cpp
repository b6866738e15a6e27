#include <span>

#include "calls.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/cat.h"
#include "quanta/ops/matmul.h"

namespace quanta::conform {
namespace {

using Binary = QTensor (*)(const QTensor&, const QTensor&, double, std::int64_t);
using Cat = Tensor (*)(std::span<const Tensor>, std::int64_t);
using WithScalar = QTensor (*)(const QTensor&, double);

Runner binary(Binary op) { return calls(op, {"x", "y", "scale", "zero_point"}); }

Runner scalar(WithScalar op) { return calls(op, {"x", "other"}); }

/// torch.cat and quantized::cat share their name; only the latter has output parameters.
Outputs run_cat(const Case& test) {
  static const Runner kQuantized = calls(quantized::cat, {"tensors", "dim", "scale", "zero_point"});
  static const Runner kPlain = calls(static_cast<Cat>(cat), {"tensors", "dim"});
  return test.attrs.contains("scale") ? kQuantized(test) : kPlain(test);
}

const Registration kOps{
    {"add", binary(quantized::add)},
    {"add_relu", binary(quantized::add_relu)},
    {"mul", binary(quantized::mul)},
    {"mul_relu", binary(quantized::mul_relu)},
    {"matmul", binary(quantized::matmul)},
    {"add_scalar", scalar(quantized::add_scalar)},
    {"add_scalar_relu", scalar(quantized::add_scalar_relu)},
    {"mul_scalar", scalar(quantized::mul_scalar)},
    {"mul_scalar_relu", scalar(quantized::mul_scalar_relu)},
    {"cat", run_cat},
    {"cat_relu", calls(quantized::cat_relu, {"tensors", "dim", "scale", "zero_point"})},
};

}  // namespace
}  // namespace quanta::conform
