#pragma once

// The plainest way to say what a convolution is, for tests: loops over logical indices, and the
// scalar functions of runtime/quant_math.h.

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "quanta/ops/conv.h"
#include "quanta/runtime/quant_math.h"
#include "quanta/runtime/random.h"
#include "quanta/runtime/tensor.h"

namespace quanta::testing {

/// Codes that make trouble are frequent: both ends of the range.
enum class Codes { Uniform, Extreme };

inline std::int64_t random_code(Generator& generator, std::int64_t low, std::int64_t high,
                                Codes codes) {
  if (codes == Codes::Extreme) return generator.integer(0, 7) == 0 ? low : high;
  return generator.integer(low, high);
}

inline QTensor random_activation(const Dims& sizes, double scale, std::int64_t zero_point,
                                 Generator& generator, Codes codes = Codes::Uniform) {
  const Tensor plain = Tensor::empty(sizes, DType::UInt8);
  auto* data = plain.mutable_data<std::uint8_t>();
  for (std::int64_t i = 0; i < plain.numel(); ++i) {
    data[i] = static_cast<std::uint8_t>(random_code(generator, 0, 255, codes));
  }
  return QTensor::from_int_repr(plain, Quantizer::per_tensor(scale, zero_point));
}

struct WeightKind {
  std::int64_t channel_axis = -1;  ///< -1: per tensor
  bool zero_points = false;
  Codes codes = Codes::Uniform;
};

inline QTensor random_weight(const Dims& sizes, const WeightKind& kind, Generator& generator) {
  const Tensor plain = Tensor::empty(sizes, DType::Int8);
  auto* data = plain.mutable_data<std::int8_t>();
  for (std::int64_t i = 0; i < plain.numel(); ++i) {
    data[i] = static_cast<std::int8_t>(random_code(generator, -128, 127, kind.codes));
  }
  const auto zero_point = [&] { return kind.zero_points ? generator.integer(-20, 20) : 0; };
  if (kind.channel_axis < 0) {
    return QTensor::from_int_repr(plain, Quantizer::per_tensor(0.013, zero_point()));
  }
  std::vector<double> scales;
  std::vector<std::int64_t> zero_points;
  for (std::int64_t n = 0; n < sizes[static_cast<std::size_t>(kind.channel_axis)]; ++n) {
    scales.push_back(0.003 + 0.02 * static_cast<double>(generator.uniform()));
    zero_points.push_back(zero_point());
  }
  return QTensor::from_int_repr(
      plain, Quantizer::per_channel(std::move(scales), std::move(zero_points), kind.channel_axis));
}

/// Numbers by logical index of a [N, C, D, H, W] view of sizes (leading ones are filled in).
struct Sizes5 {
  std::array<std::int64_t, 5> n{1, 1, 1, 1, 1};
  explicit Sizes5(const Dims& sizes) {
    n[0] = sizes[0];
    n[1] = sizes[1];
    const std::size_t spatial = sizes.size() - 2;
    for (std::size_t i = 0; i < spatial; ++i) n[5 - spatial + i] = sizes[2 + i];
  }
  std::size_t at(std::int64_t a, std::int64_t b, std::int64_t z, std::int64_t y,
                 std::int64_t x) const {
    return static_cast<std::size_t>((((a * n[1] + b) * n[2] + z) * n[3] + y) * n[4] + x);
  }
};

inline std::array<std::int64_t, 3> triple(const Dims& values, std::int64_t spatial,
                                          std::int64_t neutral) {
  std::array<std::int64_t, 3> result{neutral, neutral, neutral};
  for (std::int64_t i = 0; i < spatial; ++i) {
    result[static_cast<std::size_t>(3 - spatial + i)] =
        values[values.size() == 1 ? 0 : static_cast<std::size_t>(i)];
  }
  return result;
}

struct ReferenceSums {
  Dims sizes;                  ///< of the result
  std::vector<double> values;  ///< in logical order
};

/// The sum over kernel and input channels of `x(index) * w(index)`, both given as numbers in
/// logical order. Doubles hold the integer sums exactly.
inline ReferenceSums reference_conv(const std::vector<double>& x, const Dims& x_sizes,
                                    const std::vector<double>& w, const Dims& w_sizes,
                                    const ConvTransposeOptions& options, bool transposed) {
  const auto spatial = static_cast<std::int64_t>(x_sizes.size()) - 2;
  const Sizes5 in(x_sizes);
  const Sizes5 kernel(w_sizes);
  const auto stride = triple(options.stride, spatial, 1);
  const auto padding = triple(options.padding, spatial, 0);
  const auto dilation = triple(options.dilation, spatial, 1);
  const auto extra = triple(options.output_padding, spatial, 0);
  const std::int64_t groups = options.groups;
  const std::int64_t channels = transposed ? w_sizes[1] * groups : w_sizes[0];
  const std::int64_t group_in = in.n[1] / groups;
  const std::int64_t group_out = channels / groups;

  ReferenceSums result;
  result.sizes = Dims{in.n[0], channels};
  std::array<std::int64_t, 3> out{};
  for (std::size_t d = 0; d < 3; ++d) {
    const std::int64_t reach = dilation[d] * (kernel.n[d + 2] - 1) + 1;
    out[d] = transposed ? (in.n[d + 2] - 1) * stride[d] - 2 * padding[d] + reach + extra[d]
                        : (in.n[d + 2] + 2 * padding[d] - reach) / stride[d] + 1;
    if (static_cast<std::int64_t>(d) >= 3 - spatial) result.sizes.push_back(out[d]);
  }
  const Sizes5 to(result.sizes);
  result.values.assign(static_cast<std::size_t>(product(result.sizes)), 0.0);

  // Input position p meets output position q at kernel position k when, transposed,
  // q = p * stride - padding + k * dilation, else p = q * stride - padding + k * dilation.
  const auto from = [&](std::size_t d, std::int64_t q, std::int64_t k) -> std::int64_t {
    if (!transposed) return q * stride[d] - padding[d] + k * dilation[d];
    const std::int64_t steps = q + padding[d] - k * dilation[d];
    return steps % stride[d] == 0 ? steps / stride[d] : -1;
  };
  const auto inside = [&](std::size_t d, std::int64_t p) { return p >= 0 && p < in.n[d + 2]; };
  for (std::int64_t n = 0; n < in.n[0]; ++n)
    for (std::int64_t o = 0; o < channels; ++o)
      for (std::int64_t z = 0; z < out[0]; ++z)
        for (std::int64_t y = 0; y < out[1]; ++y)
          for (std::int64_t v = 0; v < out[2]; ++v) {
            double sum = 0.0;
            for (std::int64_t kz = 0; kz < kernel.n[2]; ++kz)
              for (std::int64_t ky = 0; ky < kernel.n[3]; ++ky)
                for (std::int64_t kx = 0; kx < kernel.n[4]; ++kx) {
                  const std::int64_t iz = from(0, z, kz);
                  const std::int64_t iy = from(1, y, ky);
                  const std::int64_t ix = from(2, v, kx);
                  if (!inside(0, iz) || !inside(1, iy) || !inside(2, ix)) continue;
                  const std::int64_t group = o / group_out;
                  for (std::int64_t c = 0; c < group_in; ++c) {
                    const std::int64_t channel = group * group_in + c;
                    sum += x[in.at(n, channel, iz, iy, ix)] *
                           (transposed ? w[kernel.at(channel, o % group_out, kz, ky, kx)]
                                       : w[kernel.at(o, c, kz, ky, kx)]);
                  }
                }
            result.values[to.at(n, o, z, y, v)] = sum;
          }
  return result;
}

/// What an activation's or weight's codes stand for, in steps of the scale.
inline std::vector<double> centred(const QTensor& x) {
  std::vector<double> result;
  for (const std::int64_t code : x.to_int64_vector()) result.push_back(static_cast<double>(code));
  if (!x.is_per_channel()) {
    for (double& value : result) value -= static_cast<double>(x.quantizer().zero_point);
    return result;
  }
  const auto axis = static_cast<std::size_t>(x.quantizer().axis);
  std::int64_t inner = 1;
  for (std::size_t d = axis + 1; d < x.sizes().size(); ++d) inner *= x.sizes()[d];
  for (std::size_t i = 0; i < result.size(); ++i) {
    const auto n = static_cast<std::size_t>(static_cast<std::int64_t>(i) / inner % x.sizes()[axis]);
    result[i] -= static_cast<double>(x.quantizer().channel->zero_points[n]);
  }
  return result;
}

struct OutputQParams {
  double scale = 1.0;
  std::int64_t zero_point = 0;
  bool relu = false;
};

/// One sum to a code: specification 5.1.
inline std::int64_t reference_code(double sum, std::int64_t channel, double src_scale,
                                   const QTensor& weight, const Tensor& bias,
                                   const OutputQParams& out) {
  const auto n = static_cast<std::size_t>(channel);
  const double weight_scale =
      weight.is_per_channel() ? weight.quantizer().channel->scales[n] : weight.quantizer().scale;
  const float t = static_cast<float>(src_scale) * static_cast<float>(weight_scale);
  float value = bias.defined() ? bias.data<float>()[n] : 0.0F;
  float factor = 1.0F;
  if (weight.is_per_channel()) {
    value /= t;
  } else if (bias.defined()) {
    factor = 1.0F / t;
  }
  const auto zero_point = static_cast<std::int32_t>(out.zero_point);
  return math::requantize(static_cast<std::int32_t>(sum), value, factor,
                          t / static_cast<float>(out.scale), zero_point, out.relu ? zero_point : 0,
                          255);
}

/// The codes of a quantized convolution, in logical order.
inline std::vector<std::int64_t> reference_codes(const QTensor& x, const QTensor& weight,
                                                 const Tensor& bias,
                                                 const ConvTransposeOptions& options,
                                                 bool transposed, const OutputQParams& out) {
  const ReferenceSums sums =
      reference_conv(centred(x), x.sizes(), centred(weight), weight.sizes(), options, transposed);
  const std::int64_t channels = sums.sizes[1];
  const std::int64_t positions =
      product(sums.sizes) / (sums.sizes[0] * channels == 0 ? 1 : sums.sizes[0] * channels);
  std::vector<std::int64_t> codes;
  for (std::size_t i = 0; i < sums.values.size(); ++i) {
    const std::int64_t channel = static_cast<std::int64_t>(i) / positions % channels;
    codes.push_back(
        reference_code(sums.values[i], channel, x.quantizer().scale, weight, bias, out));
  }
  return codes;
}

/// An output scale for which the codes of sums of `terms` random products spread over the range.
inline double spreading_scale(const QTensor& x, const QTensor& weight, std::int64_t terms) {
  const double weight_scale =
      weight.is_per_channel() ? weight.quantizer().channel->scales[0] : weight.quantizer().scale;
  return x.quantizer().scale * weight_scale * std::sqrt(static_cast<double>(terms)) * 128 * 74 / 60;
}

}  // namespace quanta::testing
