// The module types that networks of pipeline cases are built from.

#include <memory>
#include <string>

#include "network.h"
#include "quanta/nn/activation.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/misc.h"
#include "quanta/nn/norm.h"
#include "quanta/nn/pooling.h"
#include "quanta/nn/stubs.h"
#include "quanta/runtime/error.h"

namespace quanta::conform {
namespace {

using Module = std::shared_ptr<nn::Module>;

template <typename T>
Module make_plain(const Arguments& /*arguments*/) {
  return nn::make_module<T>();
}

/// ReLU and its like, whose only argument does not change results.
template <typename T>
Module make_activation(const Arguments& arguments) {
  arguments.flag("inplace", false);
  return nn::make_module<T>();
}

nn::PaddingMode padding_mode(const Arguments& arguments) {
  const std::string mode = arguments.text("padding_mode", "zeros");
  if (mode == "zeros") return nn::PaddingMode::Zeros;
  if (mode == "reflect") return nn::PaddingMode::Reflect;
  if (mode == "replicate") return nn::PaddingMode::Replicate;
  if (mode == "circular") return nn::PaddingMode::Circular;
  throw FormatError("args: padding_mode: unknown value '" + mode + "'");
}

/// Numbers, or "valid" or "same": as many elements as x has, which padding on both sides alike
/// gives for kernels that span an odd number.
Dims conv_padding(const Arguments& arguments, const nn::ConvNdOptions& options) {
  if (!arguments.is_text("padding")) return arguments.dims("padding", options.padding);
  if (arguments.text("padding", "") == "valid") return {0};
  Dims padding = options.kernel_size;
  for (std::size_t d = 0; d < padding.size(); ++d) {
    const std::int64_t dilation = options.dilation[options.dilation.size() == 1 ? 0 : d];
    const std::int64_t span = dilation * (padding[d] - 1);
    if (span % 2 != 0) throw UnsupportedError("args: padding: no 'same' for an even kernel here");
    padding[d] = span / 2;
  }
  return padding;
}

template <typename T>
Module make_conv(const Arguments& arguments) {
  nn::ConvNdOptions options;
  options.in_channels = arguments.integer("in_channels");
  options.out_channels = arguments.integer("out_channels");
  options.kernel_size = arguments.dims("kernel_size");
  options.stride = arguments.dims("stride", options.stride);
  options.dilation = arguments.dims("dilation", options.dilation);
  options.padding = conv_padding(arguments, options);
  options.padding_mode = padding_mode(arguments);
  options.groups = arguments.integer("groups", options.groups);
  options.bias = arguments.flag("bias", options.bias);
  return nn::make_module<T>(options);
}

template <typename T>
Module make_conv_transpose(const Arguments& arguments) {
  nn::ConvTransposeNdOptions options;
  options.in_channels = arguments.integer("in_channels");
  options.out_channels = arguments.integer("out_channels");
  options.kernel_size = arguments.dims("kernel_size");
  options.stride = arguments.dims("stride", options.stride);
  options.padding = arguments.dims("padding", options.padding);
  options.output_padding = arguments.dims("output_padding", options.output_padding);
  options.groups = arguments.integer("groups", options.groups);
  options.bias = arguments.flag("bias", options.bias);
  options.dilation = arguments.dims("dilation", options.dilation);
  return nn::make_module<T>(options);
}

Module make_linear(const Arguments& arguments) {
  nn::LinearOptions options;
  options.in_features = arguments.integer("in_features");
  options.out_features = arguments.integer("out_features");
  options.bias = arguments.flag("bias", options.bias);
  return nn::make_module<nn::Linear>(options);
}

template <typename T>
Module make_batch_norm(const Arguments& arguments) {
  nn::BatchNormOptions options;
  options.num_features = arguments.integer("num_features");
  options.eps = arguments.number("eps", options.eps);
  if (arguments.is_null("momentum")) {
    options.momentum.reset();
  } else {
    options.momentum = arguments.number("momentum", *options.momentum);
  }
  options.affine = arguments.flag("affine", options.affine);
  options.track_running_stats = arguments.flag("track_running_stats", options.track_running_stats);
  return nn::make_module<T>(options);
}

template <typename T>
Module make_instance_norm(const Arguments& arguments) {
  nn::InstanceNormOptions options;
  options.num_features = arguments.integer("num_features");
  options.eps = arguments.number("eps", options.eps);
  options.momentum = arguments.number("momentum", options.momentum);
  options.affine = arguments.flag("affine", options.affine);
  return nn::make_module<T>(options);
}

Module make_layer_norm(const Arguments& arguments) {
  nn::LayerNormOptions options;
  options.normalized_shape = arguments.dims("normalized_shape");
  options.eps = arguments.number("eps", options.eps);
  options.elementwise_affine = arguments.flag("elementwise_affine", options.elementwise_affine);
  options.bias = arguments.flag("bias", options.bias);
  return nn::make_module<nn::LayerNorm>(options);
}

Module make_group_norm(const Arguments& arguments) {
  nn::GroupNormOptions options;
  options.num_groups = arguments.integer("num_groups");
  options.num_channels = arguments.integer("num_channels");
  options.eps = arguments.number("eps", options.eps);
  options.affine = arguments.flag("affine", options.affine);
  return nn::make_module<nn::GroupNorm>(options);
}

template <typename T>
Module make_max_pool(const Arguments& arguments) {
  MaxPoolOptions options;
  options.kernel_size = arguments.dims("kernel_size");
  options.stride = arguments.dims("stride", options.stride);
  options.padding = arguments.dims("padding", options.padding);
  options.dilation = arguments.dims("dilation", options.dilation);
  options.ceil_mode = arguments.flag("ceil_mode", options.ceil_mode);
  return nn::make_module<T>(options);
}

template <typename T>
Module make_avg_pool(const Arguments& arguments) {
  AvgPoolOptions options;
  options.kernel_size = arguments.dims("kernel_size");
  options.stride = arguments.dims("stride", options.stride);
  options.padding = arguments.dims("padding", options.padding);
  options.ceil_mode = arguments.flag("ceil_mode", options.ceil_mode);
  options.count_include_pad = arguments.flag("count_include_pad", options.count_include_pad);
  const std::int64_t divisor = arguments.integer("divisor_override", 0);
  if (divisor != 0) options.divisor_override = divisor;
  return nn::make_module<T>(options);
}

template <typename T>
Module make_adaptive_pool(const Arguments& arguments) {
  return nn::make_module<T>(arguments.dims("output_size"));
}

Module make_upsample(const Arguments& arguments) {
  InterpolateOptions options;
  options.size = arguments.dims("size", {});
  const double factor = arguments.number("scale_factor", 0.0);
  if (factor != 0.0) options.scale_factor = {factor};
  options.align_corners = arguments.flag("align_corners", false);
  const std::string mode = arguments.text("mode", "nearest");
  if (mode == "bilinear") {
    options.mode = InterpolateMode::Bilinear;
  } else if (mode != "nearest") {
    throw UnsupportedError("args: mode: no '" + mode + "' here");
  }
  return nn::make_module<nn::Upsample>(options);
}

Module make_pixel_shuffle(const Arguments& arguments) {
  return nn::make_module<nn::PixelShuffle>(arguments.integer("upscale_factor"));
}

Module make_flatten(const Arguments& arguments) {
  return nn::make_module<nn::Flatten>(arguments.integer("start_dim", 1),
                                      arguments.integer("end_dim", -1));
}

Module make_dropout(const Arguments& arguments) {
  arguments.flag("inplace", false);
  return nn::make_module<nn::Dropout>(arguments.number("p", 0.5));
}

Module make_leaky_relu(const Arguments& arguments) {
  arguments.flag("inplace", false);
  return nn::make_module<nn::LeakyReLU>(arguments.number("negative_slope", 0.01));
}

Module make_elu(const Arguments& arguments) {
  arguments.flag("inplace", false);
  return nn::make_module<nn::ELU>(arguments.number("alpha", 1.0));
}

Module make_hardtanh(const Arguments& arguments) {
  arguments.flag("inplace", false);
  return nn::make_module<nn::Hardtanh>(arguments.number("min_val", -1.0),
                                       arguments.number("max_val", 1.0));
}

Module make_celu(const Arguments& arguments) {
  arguments.flag("inplace", false);
  return nn::make_module<nn::CELU>(arguments.number("alpha", 1.0));
}

Module make_softplus(const Arguments& arguments) {
  return nn::make_module<nn::Softplus>(arguments.number("beta", 1.0),
                                       arguments.number("threshold", 20.0));
}

Module make_gelu(const Arguments& arguments) {
  const std::string approximate = arguments.text("approximate", "none");
  return nn::make_module<nn::GELU>(approximate == "tanh" ? GeluApproximation::Tanh
                                                         : GeluApproximation::None);
}

template <typename T>
Module make_softmax(const Arguments& arguments) {
  return nn::make_module<T>(arguments.integer("dim"));
}

Module make_prelu(const Arguments& arguments) {
  return nn::make_module<nn::PReLU>(arguments.integer("num_parameters", 1),
                                    arguments.number("init", 0.25));
}

const ModuleRegistration kTypes{
    {"QuantStub", make_plain<nn::QuantStub>},
    {"DeQuantStub", make_plain<nn::DeQuantStub>},
    {"Identity", make_plain<nn::Identity>},
    {"Flatten", make_flatten},
    {"PixelShuffle", make_pixel_shuffle},
    {"Upsample", make_upsample},
    {"Dropout", make_dropout},
    {"Conv1d", make_conv<nn::Conv1d>},
    {"Conv2d", make_conv<nn::Conv2d>},
    {"Conv3d", make_conv<nn::Conv3d>},
    {"ConvTranspose1d", make_conv_transpose<nn::ConvTranspose1d>},
    {"ConvTranspose2d", make_conv_transpose<nn::ConvTranspose2d>},
    {"ConvTranspose3d", make_conv_transpose<nn::ConvTranspose3d>},
    {"Linear", make_linear},
    {"BatchNorm1d", make_batch_norm<nn::BatchNorm1d>},
    {"BatchNorm2d", make_batch_norm<nn::BatchNorm2d>},
    {"BatchNorm3d", make_batch_norm<nn::BatchNorm3d>},
    {"InstanceNorm1d", make_instance_norm<nn::InstanceNorm1d>},
    {"InstanceNorm2d", make_instance_norm<nn::InstanceNorm2d>},
    {"InstanceNorm3d", make_instance_norm<nn::InstanceNorm3d>},
    {"LayerNorm", make_layer_norm},
    {"GroupNorm", make_group_norm},
    {"MaxPool1d", make_max_pool<nn::MaxPool1d>},
    {"MaxPool2d", make_max_pool<nn::MaxPool2d>},
    {"MaxPool3d", make_max_pool<nn::MaxPool3d>},
    {"AvgPool1d", make_avg_pool<nn::AvgPool1d>},
    {"AvgPool2d", make_avg_pool<nn::AvgPool2d>},
    {"AvgPool3d", make_avg_pool<nn::AvgPool3d>},
    {"AdaptiveAvgPool1d", make_adaptive_pool<nn::AdaptiveAvgPool1d>},
    {"AdaptiveAvgPool2d", make_adaptive_pool<nn::AdaptiveAvgPool2d>},
    {"AdaptiveAvgPool3d", make_adaptive_pool<nn::AdaptiveAvgPool3d>},
    {"AdaptiveMaxPool1d", make_adaptive_pool<nn::AdaptiveMaxPool1d>},
    {"AdaptiveMaxPool2d", make_adaptive_pool<nn::AdaptiveMaxPool2d>},
    {"AdaptiveMaxPool3d", make_adaptive_pool<nn::AdaptiveMaxPool3d>},
    {"ReLU", make_activation<nn::ReLU>},
    {"ReLU6", make_activation<nn::ReLU6>},
    {"Hardswish", make_activation<nn::Hardswish>},
    {"Hardsigmoid", make_activation<nn::Hardsigmoid>},
    {"SiLU", make_activation<nn::SiLU>},
    {"Sigmoid", make_plain<nn::Sigmoid>},
    {"Tanh", make_plain<nn::Tanh>},
    {"Hardtanh", make_hardtanh},
    {"LeakyReLU", make_leaky_relu},
    {"ELU", make_elu},
    {"GELU", make_gelu},
    {"CELU", make_celu},
    {"SELU", make_activation<nn::SELU>},
    {"Mish", make_activation<nn::Mish>},
    {"Softplus", make_softplus},
    {"Softsign", make_plain<nn::Softsign>},
    {"LogSigmoid", make_plain<nn::LogSigmoid>},
    {"Softmax", make_softmax<nn::Softmax>},
    {"LogSoftmax", make_softmax<nn::LogSoftmax>},
    {"PReLU", make_prelu},
};

}  // namespace
}  // namespace quanta::conform
