#include "quanta/ops/cpu/onednn/plans.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "quanta/ops/cpu/onednn/kept_convolutions.h"

namespace quanta::cpu {
namespace {

using dnnl::memory;
using onednn::DataType;
using onednn::Md;
using onednn::Tag;

void append(memory::dims& dims, const std::int64_t (&values)[3], int spatial) {
  dims.insert(dims.end(), values + 3 - spatial, values + 3);
}

Tag channels_last(int spatial) { return spatial == 3 ? Tag::ndhwc : Tag::nhwc; }

memory::dims weight_dims(const ConvShape& shape, int spatial) {
  memory::dims dims;
  if (shape.groups > 1) dims.push_back(shape.groups);
  dims.push_back(shape.out_channels / shape.groups);
  dims.push_back(shape.in_channels / shape.groups);
  append(dims, shape.kernel, spatial);
  return dims;
}

memory::dims per_dimension(const std::int64_t (&values)[3], int spatial) {
  memory::dims dims;
  append(dims, values, spatial);
  return dims;
}

bool starts_with(std::string_view name, std::string_view prefix) {
  return name.substr(0, prefix.size()) == prefix;
}

// oneDNN 3.2: the AMX kernels of the first two names corrupted memory in our trials with zero
// points, and AMX brgconv gave wrong sums for strided rows of an even kernel with channels past a
// multiple of 64. Reference kernels are exact but slower than our own.
bool is_trusted(std::string_view name, const ConvShape& shape) {
  if (starts_with(name, "ref") || starts_with(name, "jit:avx512_core_amx") ||
      starts_with(name, "jit_1x1:avx512_core_amx")) {
    return false;
  }
  const bool brgconv_amx =
      name.find("brgconv") != std::string_view::npos && name.find("amx") != std::string_view::npos;
  const std::int64_t channels = shape.in_channels / shape.groups;
  return !(brgconv_amx && channels > 64 && channels % 64 != 0 && shape.kernel[2] % 2 == 0 &&
           shape.stride[2] > 1);
}

// AMX tiles hold 64 bytes of a sum: short sums leave them half empty, and a small convolution is
// over before the tiles are set up. Measured on fashion_mobilenet, whose 1x1 convolutions take half
// the time with VNNI.
bool is_worth_it(std::string_view name, const ConvShape& shape) {
  if (name.find("amx") == std::string_view::npos) return true;
  constexpr std::int64_t kShortSum = 256;
  constexpr std::int64_t kSmallWork = 2'000'000;
  const std::int64_t channels = shape.in_channels / shape.groups;
  const std::int64_t sum = channels * shape.kernel[0] * shape.kernel[1] * shape.kernel[2];
  const std::int64_t work = pixels(shape) * shape.out_channels * sum;
  return sum >= kShortSum || (channels % 64 == 0 && work >= kSmallWork);
}

std::string settings_name(int spatial, const Int8Epilog& epilog) {
  return fmt::format("int8 {}d, epilogue {} {:d}{:d}{:d}", spatial, static_cast<int>(epilog.kind),
                     epilog.added, epilog.relu, epilog.zero_point);
}

}  // namespace

Md conv_src_desc(const ConvShape& shape, int spatial, DataType type) {
  memory::dims dims{shape.batch, shape.in_channels};
  append(dims, shape.in, spatial);
  return {dims, type, channels_last(spatial)};
}

Md conv_dst_desc(const ConvShape& shape, int spatial, DataType type) {
  memory::dims dims{shape.batch, shape.out_channels};
  append(dims, shape.out, spatial);
  return {dims, type, channels_last(spatial)};
}

Md conv_plain_weight_desc(const ConvShape& shape, int spatial, DataType type) {
  const memory::dims dims = weight_dims(shape, spatial);
  const std::int64_t taps = shape.kernel[0] * shape.kernel[1] * shape.kernel[2];
  const std::int64_t group_out = shape.out_channels / shape.groups;
  const std::int64_t group_in = shape.in_channels / shape.groups;
  memory::dims strides;
  if (shape.groups > 1) strides.push_back(group_out * group_in * taps);
  // Transposed weights have the input channel outside: [C, O/groups, kernel...].
  strides.push_back(shape.transposed ? taps : group_in * taps);
  strides.push_back(shape.transposed ? group_out * taps : taps);
  std::int64_t stride = taps;
  for (int i = 3 - spatial; i < 3; ++i) strides.push_back(stride /= shape.kernel[i]);
  return {dims, type, strides};
}

Md conv_any_weight_desc(const ConvShape& shape, int spatial, DataType type) {
  return {weight_dims(shape, spatial), type, Tag::any};
}

Md conv_row_desc(std::int64_t channels, int spatial) {
  memory::dims dims(static_cast<std::size_t>(spatial) + 2, 1);
  dims[1] = channels;
  return {dims, DataType::f32, channels_last(spatial)};
}

Int8EpilogIndex append_epilog(dnnl::post_ops& post_ops, const Int8Epilog& epilog, const Md& row,
                              const Md& one) {
  Int8EpilogIndex index;
  if (epilog.kind == Int8Epilogue::None) return index;
  if (epilog.added) {
    index.added = post_ops.len();
    post_ops.append_binary(dnnl::algorithm::binary_add, row);
  }
  index.multiplier = post_ops.len();
  post_ops.append_binary(dnnl::algorithm::binary_mul, row);
  // With a zero point of 0 the conversion to u8 rounds, and saturates at 0 like relu. Otherwise
  // the rounding comes before the zero point, as the sum could turn a value into a tie.
  if (epilog.zero_point) {
    if (epilog.relu) post_ops.append_eltwise(dnnl::algorithm::eltwise_relu, 0.0F, 0.0F);
    post_ops.append_eltwise(dnnl::algorithm::eltwise_round, 0.0F, 0.0F);
    index.zero_point = post_ops.len();
    post_ops.append_binary(dnnl::algorithm::binary_add, one);
  }
  return index;
}

std::optional<Int8ConvPrimitive> int8_conv_primitive(const ConvShape& shape, int spatial,
                                                     const Int8Epilog& epilog) {
  return onednn::checked("convolution_forward", [&]() -> std::optional<Int8ConvPrimitive> {
    Int8ConvPrimitive result;
    dnnl::post_ops post_ops;
    result.index = append_epilog(post_ops, epilog, conv_row_desc(shape.out_channels, spatial),
                                 conv_row_desc(1, spatial));
    dnnl::primitive_attr attributes;
    attributes.set_post_ops(post_ops);
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);

    const bool sums = epilog.kind == Int8Epilogue::None;
    // An empty description stands for no bias.
    const Md bias = sums ? Md() : Md({shape.out_channels}, DataType::f32, Tag::x);
    memory::dims dilation = per_dimension(shape.dilation, spatial);
    for (auto& value : dilation) --value;
    const memory::dims padding = per_dimension(shape.padding, spatial);
    result.desc = dnnl::convolution_forward::primitive_desc(
        onednn::engine(), dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct,
        conv_src_desc(shape, spatial, DataType::u8),
        conv_any_weight_desc(shape, spatial, DataType::s8), bias,
        conv_dst_desc(shape, spatial, sums ? DataType::s32 : DataType::u8),
        per_dimension(shape.stride, spatial), dilation, padding, padding, attributes,
        /*allow_empty=*/true);
    if (!result.desc) return std::nullopt;
    do {
      const std::string name = result.desc.impl_info_str();
      if (!is_trusted(name, shape) || !is_worth_it(name, shape)) continue;
      if (auto made =
              onednn::make_convolution(result.desc, shape, settings_name(spatial, epilog))) {
        result.primitive = std::move(*made);
        return result;
      }
    } while (result.desc.next_impl());
    return std::nullopt;
  });
}

}  // namespace quanta::cpu
