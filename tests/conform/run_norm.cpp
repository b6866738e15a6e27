#include "quanta/ops/norm.h"

#include "calls.h"

namespace quanta::conform {
namespace {

using BatchNorm = QTensor (*)(const QTensor&, const Tensor&, const Tensor&, const Tensor&,
                              const Tensor&, double, double, std::int64_t);

const Parameter kWeight{"weight", nullptr};
const Parameter kBias{"bias", nullptr};
const Parameter kEps{"eps", 1e-5};

Runner batch_norm_of(BatchNorm op) {
  return calls(op,
               {"x", "weight", "bias", "mean", "var", kEps, "output_scale", "output_zero_point"});
}

const Registration kOps{
    {"batch_norm1d", batch_norm_of(quantized::batch_norm)},
    {"batch_norm2d", batch_norm_of(quantized::batch_norm)},
    {"batch_norm3d", batch_norm_of(quantized::batch_norm)},
    {"batch_norm1d_relu", batch_norm_of(quantized::batch_norm_relu)},
    {"batch_norm2d_relu", batch_norm_of(quantized::batch_norm_relu)},
    {"batch_norm3d_relu", batch_norm_of(quantized::batch_norm_relu)},
    {"layer_norm", calls(quantized::layer_norm, {"x", "normalized_shape", kWeight, kBias, kEps,
                                                 "output_scale", "output_zero_point"})},
    {"group_norm", calls(quantized::group_norm, {"x", "num_groups", kWeight, kBias, kEps,
                                                 "output_scale", "output_zero_point"})},
    {"instance_norm", calls(quantized::instance_norm,
                            {"x", kWeight, kBias, kEps, "output_scale", "output_zero_point"})},
};

}  // namespace
}  // namespace quanta::conform
