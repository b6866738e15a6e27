#include "quanta/nn/conv.h"

#include <algorithm>
#include <cmath>

#include "quanta/nn/detail/float_conv.h"
#include "quanta/nn/detail/layer_options.h"
#include "quanta/nn/detail/padding.h"
#include "quanta/nn/detail/put_size.h"
#include "quanta/ops/activation.h"
#include "quanta/runtime/autograd.h"

namespace quanta::nn {
namespace {

using detail::expand_spatial;
using detail::python_tuple;

void check_channels(const std::string& op, std::int64_t in_channels, std::int64_t out_channels,
                    std::int64_t groups) {
  QUANTA_CHECK(in_channels >= 1, "{}: in_channels: expected at least 1, got {}", op, in_channels);
  QUANTA_CHECK(out_channels >= 1, "{}: out_channels: expected at least 1, got {}", op,
               out_channels);
  QUANTA_CHECK(groups >= 1 && in_channels % groups == 0 && out_channels % groups == 0,
               "{}: groups: expected a divisor of in_channels {} and out_channels {}, got {}", op,
               in_channels, out_channels, groups);
}

ConvNdOptions checked(ConvNdOptions options, std::int64_t spatial) {
  const std::string op = fmt::format("Conv{}d", spatial);
  check_channels(op, options.in_channels, options.out_channels, options.groups);
  options.kernel_size = expand_spatial(op, "kernel_size", options.kernel_size, spatial, 1);
  options.stride = expand_spatial(op, "stride", options.stride, spatial, 1);
  options.padding = expand_spatial(op, "padding", options.padding, spatial, 0);
  options.dilation = expand_spatial(op, "dilation", options.dilation, spatial, 1);
  return options;
}

ConvTransposeNdOptions checked(ConvTransposeNdOptions options, std::int64_t spatial) {
  const std::string op = fmt::format("ConvTranspose{}d", spatial);
  check_channels(op, options.in_channels, options.out_channels, options.groups);
  options.kernel_size = expand_spatial(op, "kernel_size", options.kernel_size, spatial, 1);
  options.stride = expand_spatial(op, "stride", options.stride, spatial, 1);
  options.padding = expand_spatial(op, "padding", options.padding, spatial, 0);
  options.output_padding = expand_spatial(op, "output_padding", options.output_padding, spatial, 0);
  options.dilation = expand_spatial(op, "dilation", options.dilation, spatial, 1);
  for (std::size_t i = 0; i < options.stride.size(); ++i) {
    QUANTA_CHECK(options.output_padding[i] < std::max(options.stride[i], options.dilation[i]),
                 "{}: output_padding: expected less than the stride {} or the dilation {}, got {}",
                 op, options.stride, options.dilation, options.output_padding);
  }
  return options;
}

// torch's kaiming_uniform with a = sqrt(5): within 1 / sqrt(fan_in), fan_in being the second
// dimension times the kernel's size, for transposed weights as well.
double init_bound(const Dims& weight_sizes) {
  const std::int64_t fan_in = checked_numel(weight_sizes) / weight_sizes[0];
  return 1.0 / std::sqrt(static_cast<double>(fan_in));
}

Dims weight_sizes(std::int64_t first, std::int64_t second, const Dims& kernel_size) {
  Dims sizes{first, second};
  for (const std::int64_t size : kernel_size) sizes.push_back(size);
  return sizes;
}

// What both kinds of convolutions print, in torch's order.
template <typename Options>
std::string repr_of(const Options& options, std::int64_t spatial, bool has_bias) {
  std::string text =
      fmt::format("{}, {}, kernel_size={}, stride={}", options.in_channels, options.out_channels,
                  python_tuple(options.kernel_size), python_tuple(options.stride));
  const auto count = static_cast<std::size_t>(spatial);
  const auto add = [&](const char* name, const Dims& value, std::int64_t usual) {
    if (value != Dims::filled(count, usual)) {
      text += fmt::format(", {}={}", name, python_tuple(value));
    }
  };
  add("padding", options.padding, 0);
  add("dilation", options.dilation, 1);
  if constexpr (requires { options.output_padding; }) {
    add("output_padding", options.output_padding, 0);
  }
  if (options.groups != 1) text += fmt::format(", groups={}", options.groups);
  if (!has_bias) text += ", bias=False";
  return text;
}

}  // namespace

namespace {

// The options with the sizes that were given before them.
template <typename Options>
Options joined(std::int64_t in_channels, std::int64_t out_channels, const Dims& kernel_size,
               Options more) {
  detail::put_size("Conv", "in_channels", in_channels, more.in_channels);
  detail::put_size("Conv", "out_channels", out_channels, more.out_channels);
  detail::put_size("Conv", "kernel_size", kernel_size, more.kernel_size);
  return more;
}

}  // namespace

ConvNdOptions ConvNd::with_sizes(std::int64_t in_channels, std::int64_t out_channels,
                                 const Dims& kernel_size, const ConvNdOptions& more) {
  return joined(in_channels, out_channels, kernel_size, more);
}

ConvTransposeNdOptions ConvTransposeNd::with_sizes(std::int64_t in_channels,
                                                   std::int64_t out_channels,
                                                   const Dims& kernel_size,
                                                   const ConvTransposeNdOptions& more) {
  return joined(in_channels, out_channels, kernel_size, more);
}

ConvNd::ConvNd(const ConvNdOptions& options, std::int64_t spatial)
    : options_(checked(options, spatial)), spatial_(spatial) {
  const Dims sizes = weight_sizes(options_.out_channels, options_.in_channels / options_.groups,
                                  options_.kernel_size);
  weight = detail::uniform(sizes, init_bound(sizes));
  if (options_.bias) bias = detail::uniform({options_.out_channels}, init_bound(sizes));
  register_parameter("weight", weight);
  register_parameter("bias", bias);
}

Tensor ConvNd::forward(const Tensor& input, Fusion fusion) const {
  const Tensor x = detail::pad_for(input, options_);
  // In train mode weights change from call to call.
  if (!is_training()) {
    return packed_.get(weight, bias, fusion, [&] {
      return PackedConv(weight, bias, detail::conv_options(options_), spatial_, fusion);
    })(x, weight, bias);
  }
  Tensor y = detail::conv(x, weight, bias, options_);
  return fusion == Fusion::ReLU ? relu(y) : y;
}

std::string ConvNd::extra_repr() const {
  std::string text = repr_of(options_, spatial_, bias.defined());
  if (options_.padding_mode != PaddingMode::Zeros) {
    text += fmt::format(", padding_mode={}", detail::to_string(options_.padding_mode));
  }
  return text;
}

ConvTransposeNd::ConvTransposeNd(const ConvTransposeNdOptions& options, std::int64_t spatial)
    : options_(checked(options, spatial)), spatial_(spatial) {
  const Dims sizes = weight_sizes(options_.in_channels, options_.out_channels / options_.groups,
                                  options_.kernel_size);
  weight = detail::uniform(sizes, init_bound(sizes));
  if (options_.bias) bias = detail::uniform({options_.out_channels}, init_bound(sizes));
  register_parameter("weight", weight);
  register_parameter("bias", bias);
}

Tensor ConvTransposeNd::forward(const Tensor& x) const {
  return detail::conv_transpose(x, weight, bias, options_);
}

std::string ConvTransposeNd::extra_repr() const {
  return repr_of(options_, spatial_, bias.defined());
}

}  // namespace quanta::nn
