#include "calls.h"
#include "options.h"
#include "quanta/ops/conv.h"
#include "quanta/ops/linear.h"

namespace quanta::conform {

static quantized::LinearPackedParams made_from(const Case& test,
                                               Type<quantized::LinearPackedParams> /*type*/) {
  return {test.qtensor("weight"), test.optional_tensor("bias")};
}

static quantized::ConvPackedParams made_from(const Case& test,
                                             Type<quantized::ConvPackedParams> /*type*/) {
  const Arguments given(test.attrs);
  const QTensor weight = test.qtensor("weight");
  const Tensor bias = test.optional_tensor("bias");
  const std::int64_t spatial = weight.dim() - 2;
  if (test.op.starts_with("conv_transpose")) {
    ConvTransposeOptions options;
    take(given, options);
    return quantized::ConvPackedParams::transposed(weight, bias, options, spatial);
  }
  ConvOptions options;
  take(given, options);
  return {weight, bias, options, spatial};
}

namespace {

const Runner kConv = calls(quantized::conv, {"x", "scale", "zero_point"});
const Runner kConvReLU = calls(quantized::conv_relu, {"x", "scale", "zero_point"});

const Registration kOps{
    {"conv1d", kConv},
    {"conv2d", kConv},
    {"conv3d", kConv},
    {"conv1d_relu", kConvReLU},
    {"conv2d_relu", kConvReLU},
    {"conv3d_relu", kConvReLU},
    {"conv_transpose1d", kConv},
    {"conv_transpose2d", kConv},
    {"conv_transpose3d", kConv},
    {"conv2d_add", calls(quantized::conv_add, {"x", "y", "scale", "zero_point"})},
    {"conv2d_add_relu", calls(quantized::conv_add_relu, {"x", "y", "scale", "zero_point"})},
    {"linear", calls(quantized::linear, {"x", "scale", "zero_point"})},
    {"linear_relu", calls(quantized::linear_relu, {"x", "scale", "zero_point"})},
    {"linear_leaky_relu",
     calls(quantized::linear_leaky_relu, {"x", "scale", "zero_point", "negative_slope"})},
    {"linear_tanh", calls(quantized::linear_tanh, {"x", "scale", "zero_point"})},
};

}  // namespace
}  // namespace quanta::conform
