#include <optional>
#include <vector>

#include "quanta/ops/arithmetic.h"
#include "registry.h"

namespace quanta::conform {
namespace {

using Binary = QTensor (*)(const QTensor&, const QTensor&, double, std::int64_t);
using WithScalar = QTensor (*)(const QTensor&, double);
using Join = QTensor (*)(std::span<const QTensor>, std::int64_t, std::optional<double>,
                         std::optional<std::int64_t>);

template <Binary op>
Outputs run_binary(const Case& test) {
  return single(op(test.qx(), test.qtensor("y"), test.number("scale"), test.integer("zero_point")));
}

template <WithScalar op>
Outputs run_scalar(const Case& test) {
  return single(op(test.qx(), test.number("other")));
}

template <Join op>
Outputs run_join(const Case& test) {
  std::vector<QTensor> tensors;
  for (const Tensor& tensor : test.tensors("tensors")) {
    tensors.push_back(test.in_memory_format(tensor).as_quantized("conform", "tensors"));
  }
  std::optional<double> scale;
  std::optional<std::int64_t> zero_point;
  if (test.has_attr("scale")) scale = test.number("scale");
  if (test.has_attr("zero_point")) zero_point = test.integer("zero_point");
  return single(op(tensors, test.integer("dim"), scale, zero_point));
}

/// torch.cat and quantized::cat share their name; only the latter has output parameters.
Outputs run_cat(const Case& test) {
  if (test.attrs.contains("scale")) return run_join<quantized::cat>(test);
  std::vector<Tensor> tensors;
  for (const Tensor& tensor : test.tensors("tensors")) {
    tensors.push_back(test.in_memory_format(tensor));
  }
  return single(cat(tensors, test.integer("dim")));
}

const Registration kOps{
    {"add", run_binary<quantized::add>},
    {"add_relu", run_binary<quantized::add_relu>},
    {"mul", run_binary<quantized::mul>},
    {"mul_relu", run_binary<quantized::mul_relu>},
    {"matmul", run_binary<quantized::matmul>},
    {"add_scalar", run_scalar<quantized::add_scalar>},
    {"add_scalar_relu", run_scalar<quantized::add_scalar_relu>},
    {"mul_scalar", run_scalar<quantized::mul_scalar>},
    {"mul_scalar_relu", run_scalar<quantized::mul_scalar_relu>},
    {"cat", run_cat},
    {"cat_relu", run_join<quantized::cat_relu>},
};

}  // namespace
}  // namespace quanta::conform
