#include "quanta/ops/conv/geometry.h"

#include <algorithm>

#include "quanta/ops/detail/spatial.h"
#include "quanta/runtime/check.h"

namespace quanta::detail {
namespace {

// Large enough for any network, small enough that no sum or product below overflows.
constexpr std::int64_t kMaxParameter = std::int64_t{1} << 30;

Dims checked_parameter(std::string_view op, std::string_view name, const Dims& values,
                       std::int64_t spatial, std::int64_t min) {
  const Dims result = per_dimension(op, name, values, static_cast<std::size_t>(spatial));
  for (const std::int64_t value : result) {
    QUANTA_CHECK(value >= min && value <= kMaxParameter, "{}: {}: expected {}..{}, got {}", op,
                 name, min, kMaxParameter, result);
  }
  return result;
}

void check_bias(std::string_view op, const Tensor& bias, DType weight, std::int64_t channels) {
  if (!bias.defined()) return;
  const DType wanted = is_floating_point(weight) ? weight : DType::Float32;
  const bool integers = weight == DType::QInt8 && bias.dtype() == DType::Int32;
  QUANTA_CHECK(bias.dtype() == wanted || integers, "{}: bias: expected {}, got {}", op, wanted,
               bias.dtype());
  QUANTA_CHECK(bias.dim() == 1 && bias.sizes()[0] == channels,
               "{}: bias: expected one number for each of {} output channels, got sizes {}", op,
               channels, bias.sizes());
}

// The last `spatial` of three.
void assign(std::int64_t (&target)[3], const Dims& values) {
  for (std::size_t i = 0; i < values.size(); ++i) target[3 - values.size() + i] = values[i];
}

}  // namespace

std::string_view conv_name(std::int64_t spatial, bool transposed) {
  switch (spatial) {
    case 1:
      return transposed ? "conv_transpose1d" : "conv1d";
    case 2:
      return transposed ? "conv_transpose2d" : "conv2d";
    case 3:
      return transposed ? "conv_transpose3d" : "conv3d";
    default:
      throw ArgumentError(fmt::format("conv: spatial: expected 1, 2 or 3, got {}", spatial));
  }
}

ConvGeometry conv_geometry(const Tensor& weight, const Tensor& bias,
                           const ConvTransposeOptions& options, std::int64_t spatial,
                           bool transposed) {
  ConvGeometry geometry;
  const std::string_view op = conv_name(spatial, transposed);
  geometry.op = op;
  geometry.spatial = spatial;

  const Dims& sizes = weight.sizes();
  QUANTA_CHECK(weight.dim() == spatial + 2, "{}: weight: expected {} dimensions, got sizes {}", op,
               spatial + 2, sizes);
  QUANTA_CHECK(std::ranges::all_of(
                   sizes, [](std::int64_t size) { return size >= 1 && size <= kMaxParameter; }),
               "{}: weight: expected sizes of 1 or more, got {}", op, sizes);
  geometry.options = {checked_parameter(op, "stride", options.stride, spatial, 1),
                      checked_parameter(op, "padding", options.padding, spatial, 0),
                      checked_parameter(op, "output_padding", options.output_padding, spatial, 0),
                      checked_parameter(op, "dilation", options.dilation, spatial, 1),
                      options.groups};
  const std::int64_t groups = options.groups;
  // The outer size is O for a convolution and C for a transposed one; both are cut into groups.
  QUANTA_CHECK(groups >= 1 && sizes[0] % groups == 0,
               "{}: groups: expected a divisor of the weight's first size {}, got {}", op, sizes[0],
               groups);
  for (std::size_t i = 0; i < static_cast<std::size_t>(spatial); ++i) {
    const std::int64_t limit = std::max(geometry.options.stride[i], geometry.options.dilation[i]);
    QUANTA_CHECK(geometry.options.output_padding[i] < limit,
                 "{}: output_padding: expected less than stride or dilation ({}), got {}", op,
                 limit, geometry.options.output_padding[i]);
  }

  cpu::ConvShape& shape = geometry.shape;
  shape.transposed = transposed;
  shape.groups = groups;
  shape.in_channels = transposed ? sizes[0] : sizes[1] * groups;
  shape.out_channels = transposed ? sizes[1] * groups : sizes[0];
  Dims kernel = sizes;
  kernel.erase(0);
  kernel.erase(0);
  assign(shape.kernel, kernel);
  assign(shape.stride, geometry.options.stride);
  assign(shape.padding, geometry.options.padding);
  assign(shape.dilation, geometry.options.dilation);
  check_bias(op, bias, weight.dtype(), shape.out_channels);
  return geometry;
}

cpu::ConvShape conv_shape(const ConvGeometry& geometry, const Dims& x) {
  const std::string_view op = geometry.op;
  const auto spatial = static_cast<std::size_t>(geometry.spatial);
  const bool batched = x.size() == spatial + 2;
  QUANTA_CHECK(batched || x.size() == spatial + 1,
               "{}: x: expected {} dimensions (or {} without a batch), got sizes {}", op,
               spatial + 2, spatial + 1, x);
  cpu::ConvShape shape = geometry.shape;
  shape.batch = batched ? x[0] : 1;
  const std::size_t first = batched ? 2 : 1;
  QUANTA_CHECK(x[first - 1] == shape.in_channels, "{}: x: expected {} channels, got sizes {}", op,
               shape.in_channels, x);
  for (std::size_t i = 0; i < spatial; ++i) {
    const std::size_t d = 3 - spatial + i;
    const std::int64_t in = x[first + i];
    const std::int64_t reach = shape.dilation[d] * (shape.kernel[d] - 1) + 1;
    QUANTA_CHECK(in <= kMaxParameter, "{}: x: expected sizes up to {}, got {}", op, kMaxParameter,
                 x);
    shape.in[d] = in;
    if (shape.transposed) {
      shape.out[d] = (in - 1) * shape.stride[d] - 2 * shape.padding[d] + reach +
                     geometry.options.output_padding[i];
      QUANTA_CHECK(in >= 1 && shape.out[d] >= 1,
                   "{}: x: expected sizes that leave an output, got {} with padding {}", op, x,
                   geometry.options.padding);
    } else {
      const std::int64_t padded = in + 2 * shape.padding[d];
      QUANTA_CHECK(in >= 1 && padded >= reach,
                   "{}: x: expected an input (with padding {}) no smaller than the kernel, which "
                   "reaches over {}, got sizes {}",
                   op, geometry.options.padding, reach, x);
      shape.out[d] = (padded - reach) / shape.stride[d] + 1;
    }
  }
  return shape;
}

Dims conv_output_sizes(const ConvGeometry& geometry, const cpu::ConvShape& shape) {
  Dims sizes{shape.batch, shape.out_channels};
  for (std::int64_t d = 3 - geometry.spatial; d < 3; ++d) sizes.push_back(shape.out[d]);
  return sizes;
}

OpWork conv_work(const Tensor& x, const Tensor& weight, const Tensor& out, bool transposed) {
  // A weight's first size is that of the outputs, or of a transposed convolution's inputs.
  const std::int64_t each = weight.numel() / weight.sizes()[0];
  return {.multiply_adds = (transposed ? x.numel() : out.numel()) * each,
          .bytes = static_cast<std::int64_t>(x.nbytes() + out.nbytes() + weight.nbytes())};
}

}  // namespace quanta::detail
