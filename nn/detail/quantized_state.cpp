#include "quanta/nn/detail/quantized_state.h"

#include <cmath>

#include "quanta/nn/detail/layer_options.h"

namespace quanta::nn::detail {

using quanta::quantized::ConvPackedParams;

void check_qparams(std::string_view op, double scale, std::int64_t zero_point, IntRange range) {
  QUANTA_CHECK(std::isfinite(scale) && scale > 0.0,
               "{}: scale: expected a finite number > 0, got {}", op, scale);
  QUANTA_CHECK(zero_point >= range.min && zero_point <= range.max,
               "{}: zero_point: expected {}..{}, got {}", op, range.min, range.max, zero_point);
}

void save_qparams(StateDict& state, const std::string& prefix, double scale,
                  std::int64_t zero_point, const Dims& sizes) {
  state.set(prefix + "scale", Tensor::full(sizes, scale));
  state.set(prefix + "zero_point",
            Tensor::full(sizes, static_cast<double>(zero_point), DType::Int64));
}

void load_qparams(StateReader& reader, double& scale, std::int64_t& zero_point, IntRange range,
                  const std::string& below) {
  const std::string scale_name = below + "scale";
  const std::string zero_point_name = below + "zero_point";
  const Tensor* new_scale = reader.require(scale_name);
  const Tensor* new_zero_point = reader.require(zero_point_name);
  if (new_scale == nullptr || new_zero_point == nullptr) return;
  if (new_scale->numel() != 1 || !new_scale->is_floating_point()) {
    reader.problem(fmt::format("{}: expected one Float32, got {} {}", reader.full_name(scale_name),
                               new_scale->dtype(), new_scale->sizes()));
    return;
  }
  if (new_zero_point->numel() != 1 || new_zero_point->is_floating_point() ||
      new_zero_point->is_quantized()) {
    reader.problem(fmt::format("{}: expected one Int64, got {} {}",
                               reader.full_name(zero_point_name), new_zero_point->dtype(),
                               new_zero_point->sizes()));
    return;
  }
  const double scale_value = new_scale->item();
  const std::int64_t zero_point_value = new_zero_point->to_int64_vector()[0];
  if (!(std::isfinite(scale_value) && scale_value > 0.0)) {
    reader.problem(fmt::format("{}: expected a finite number > 0, got {}",
                               reader.full_name(scale_name), scale_value));
    return;
  }
  if (zero_point_value < range.min || zero_point_value > range.max) {
    reader.problem(fmt::format("{}: expected {}..{}, got {}", reader.full_name(zero_point_name),
                               range.min, range.max, zero_point_value));
    return;
  }
  reader.on_commit([&scale, &zero_point, scale_value, zero_point_value] {
    scale = scale_value;
    zero_point = zero_point_value;
  });
}

bool is_packed_already(const Tensor& weight, const Tensor& bias, const Tensor& packed_weight,
                       const Tensor& packed_bias) {
  const auto same = [](const Tensor& given, const Tensor& packed) {
    return given.is_same(packed) && (!given.defined() || given.version() == 0);
  };
  return same(weight, packed_weight) && same(bias, packed_bias);
}

LinearNames find_linear(StateReader& reader) {
  LinearNames names;
  if (reader.find(names.weight) != nullptr) return names;
  // Versions before torch's third kept the two apart, the first one directly below the module.
  for (const char* older : {"_packed_params.", ""}) {
    const std::string prefix = older;
    if (reader.find(prefix + "weight") != nullptr) return {prefix + "weight", prefix + "bias"};
  }
  return names;
}

void save_conv(StateDict& state, const std::string& prefix, const ConvPackedParams& packed) {
  state.set(prefix + "weight", packed.weight());
  if (packed.bias().defined()) state.set(prefix + "bias", packed.bias());
}

void load_conv(StateReader& reader, ConvPackedParams& packed) {
  const Tensor* weight = reader.require("weight");
  // The file decides whether there is a bias: folding a batch norm gives one to a convolution that
  // was built without, and torch stores None where there is none.
  const Tensor* found = reader.find("bias");
  const Tensor bias = found != nullptr ? *found : Tensor();
  if (weight == nullptr || is_packed_already(*weight, bias, packed.weight(), packed.bias())) return;
  try {
    ConvPackedParams loaded =
        repacked(packed, weight->as_quantized("load_state_dict", "weight"), bias);
    reader.on_commit([&packed, loaded = std::move(loaded)] { packed = loaded; });
  } catch (const Error& error) {
    reader.problem(fmt::format("{}: {}", reader.full_name("weight"), error.what()));
  }
}

ConvPackedParams repacked(const ConvPackedParams& packed, const QTensor& weight,
                          const Tensor& bias) {
  QUANTA_CHECK(weight.sizes() == packed.weight().sizes(),
               "set_weight_bias: weight: expected sizes {}, got {}", packed.weight().sizes(),
               weight.sizes());
  const ConvTransposeOptions& options = packed.options();
  if (packed.is_transposed()) {
    return ConvPackedParams::transposed(weight, bias, options, packed.spatial());
  }
  return ConvPackedParams(weight, bias,
                          {.stride = options.stride,
                           .padding = options.padding,
                           .dilation = options.dilation,
                           .groups = options.groups},
                          packed.spatial());
}

std::string conv_repr(const ConvPackedParams& packed, double scale, std::int64_t zero_point) {
  const ConvTransposeOptions& options = packed.options();
  const Dims& sizes = packed.weight().sizes();
  const auto spatial = static_cast<std::size_t>(packed.spatial());
  // Options may hold one number for all dimensions.
  const auto all = [spatial](const Dims& dims) {
    return dims.size() == 1 ? Dims::filled(spatial, dims[0]) : dims;
  };
  Dims kernel_size;
  for (std::size_t i = 2; i < sizes.size(); ++i) kernel_size.push_back(sizes[i]);
  const std::int64_t in_channels = packed.is_transposed() ? sizes[0] : sizes[1] * options.groups;
  const std::int64_t out_channels = packed.is_transposed() ? sizes[1] * options.groups : sizes[0];
  std::string text =
      fmt::format("{}, {}, kernel_size={}, stride={}, scale={}, zero_point={}", in_channels,
                  out_channels, python_tuple(kernel_size), python_tuple(all(options.stride)),
                  python_float(scale), zero_point);
  if (all(options.padding) != Dims::filled(spatial, 0)) {
    text += ", padding=" + python_tuple(all(options.padding));
  }
  if (all(options.dilation) != Dims::filled(spatial, 1)) {
    text += ", dilation=" + python_tuple(all(options.dilation));
  }
  if (all(options.output_padding) != Dims::filled(spatial, 0)) {
    text += ", output_padding=" + python_tuple(all(options.output_padding));
  }
  if (options.groups != 1) text += fmt::format(", groups={}", options.groups);
  if (!packed.bias().defined()) text += ", bias=False";
  return text;
}

}  // namespace quanta::nn::detail
