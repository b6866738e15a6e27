#include "quanta/ops/norm.h"
#include "registry.h"

namespace quanta::conform {
namespace {

using BatchNorm = QTensor (*)(const QTensor&, const Tensor&, const Tensor&, const Tensor&,
                              const Tensor&, double, double, std::int64_t);

double eps(const Case& test) { return test.has_attr("eps") ? test.number("eps") : 1e-5; }

template <BatchNorm op>
Outputs run_batch_norm(const Case& test) {
  return single(op(test.qx(), test.tensor("weight"), test.tensor("bias"), test.tensor("mean"),
                   test.tensor("var"), eps(test), test.number("output_scale"),
                   test.integer("output_zero_point")));
}

Outputs run_layer_norm(const Case& test) {
  return single(quantized::layer_norm(test.qx(), test.dims("normalized_shape"),
                                      test.optional_tensor("weight"), test.optional_tensor("bias"),
                                      eps(test), test.number("output_scale"),
                                      test.integer("output_zero_point")));
}

Outputs run_group_norm(const Case& test) {
  return single(quantized::group_norm(test.qx(), test.integer("num_groups"),
                                      test.optional_tensor("weight"), test.optional_tensor("bias"),
                                      eps(test), test.number("output_scale"),
                                      test.integer("output_zero_point")));
}

Outputs run_instance_norm(const Case& test) {
  return single(quantized::instance_norm(
      test.qx(), test.optional_tensor("weight"), test.optional_tensor("bias"), eps(test),
      test.number("output_scale"), test.integer("output_zero_point")));
}

const Registration kOps{
    {"batch_norm1d", run_batch_norm<quantized::batch_norm>},
    {"batch_norm2d", run_batch_norm<quantized::batch_norm>},
    {"batch_norm3d", run_batch_norm<quantized::batch_norm>},
    {"batch_norm1d_relu", run_batch_norm<quantized::batch_norm_relu>},
    {"batch_norm2d_relu", run_batch_norm<quantized::batch_norm_relu>},
    {"batch_norm3d_relu", run_batch_norm<quantized::batch_norm_relu>},
    {"layer_norm", run_layer_norm},
    {"group_norm", run_group_norm},
    {"instance_norm", run_instance_norm},
};

}  // namespace
}  // namespace quanta::conform
