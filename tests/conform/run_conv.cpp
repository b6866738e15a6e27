#include "quanta/ops/conv.h"
#include "quanta/ops/linear.h"
#include "registry.h"

namespace quanta::conform {
namespace {

using quantized::ConvPackedParams;
using quantized::LinearPackedParams;

ConvPackedParams pack_conv(const Case& test, std::int64_t spatial) {
  ConvOptions options;
  options.stride = test.dims("stride", options.stride);
  options.padding = test.dims("padding", options.padding);
  options.dilation = test.dims("dilation", options.dilation);
  if (test.has_attr("groups")) options.groups = test.integer("groups");
  return {test.qtensor("weight"), test.optional_tensor("bias"), options, spatial};
}

ConvPackedParams pack_transposed(const Case& test, std::int64_t spatial) {
  ConvTransposeOptions options;
  options.stride = test.dims("stride", options.stride);
  options.padding = test.dims("padding", options.padding);
  options.output_padding = test.dims("output_padding", options.output_padding);
  options.dilation = test.dims("dilation", options.dilation);
  if (test.has_attr("groups")) options.groups = test.integer("groups");
  return ConvPackedParams::transposed(test.qtensor("weight"), test.optional_tensor("bias"), options,
                                      spatial);
}

template <int spatial>
Outputs run_conv(const Case& test) {
  return single(quantized::conv(test.qx(), pack_conv(test, spatial), test.number("scale"),
                                test.integer("zero_point")));
}

template <int spatial>
Outputs run_conv_relu(const Case& test) {
  return single(quantized::conv_relu(test.qx(), pack_conv(test, spatial), test.number("scale"),
                                     test.integer("zero_point")));
}

template <int spatial>
Outputs run_conv_transpose(const Case& test) {
  return single(quantized::conv(test.qx(), pack_transposed(test, spatial), test.number("scale"),
                                test.integer("zero_point")));
}

Outputs run_conv2d_add(const Case& test) {
  return single(quantized::conv_add(test.qx(), test.qtensor("y"), pack_conv(test, 2),
                                    test.number("scale"), test.integer("zero_point")));
}

Outputs run_conv2d_add_relu(const Case& test) {
  return single(quantized::conv_add_relu(test.qx(), test.qtensor("y"), pack_conv(test, 2),
                                         test.number("scale"), test.integer("zero_point")));
}

LinearPackedParams pack_linear(const Case& test) {
  return {test.qtensor("weight"), test.optional_tensor("bias")};
}

Outputs run_linear(const Case& test) {
  return single(quantized::linear(test.qx(), pack_linear(test), test.number("scale"),
                                  test.integer("zero_point")));
}

Outputs run_linear_relu(const Case& test) {
  return single(quantized::linear_relu(test.qx(), pack_linear(test), test.number("scale"),
                                       test.integer("zero_point")));
}

Outputs run_linear_leaky_relu(const Case& test) {
  return single(quantized::linear_leaky_relu(test.qx(), pack_linear(test), test.number("scale"),
                                             test.integer("zero_point"),
                                             test.number("negative_slope")));
}

Outputs run_linear_tanh(const Case& test) {
  return single(quantized::linear_tanh(test.qx(), pack_linear(test), test.number("scale"),
                                       test.integer("zero_point")));
}

const Registration kOps{
    {"conv1d", run_conv<1>},
    {"conv2d", run_conv<2>},
    {"conv3d", run_conv<3>},
    {"conv1d_relu", run_conv_relu<1>},
    {"conv2d_relu", run_conv_relu<2>},
    {"conv3d_relu", run_conv_relu<3>},
    {"conv_transpose1d", run_conv_transpose<1>},
    {"conv_transpose2d", run_conv_transpose<2>},
    {"conv_transpose3d", run_conv_transpose<3>},
    {"conv2d_add", run_conv2d_add},
    {"conv2d_add_relu", run_conv2d_add_relu},
    {"linear", run_linear},
    {"linear_relu", run_linear_relu},
    {"linear_leaky_relu", run_linear_leaky_relu},
    {"linear_tanh", run_linear_tanh},
};

}  // namespace
}  // namespace quanta::conform
