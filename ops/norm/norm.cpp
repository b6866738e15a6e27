#include "quanta/ops/norm.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/ops/cpu/elementwise_kernels.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/ops/detail/spatial.h"
#include "quanta/ops/norm/cpu_kernels.h"
#include "quanta/ops/norm/gradient.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/parallel.h"
#include "quanta/runtime/recorder.h"
#include "quanta/runtime/verbose.h"

namespace quanta {
namespace {

using cpu::NormOutput;
using cpu::NormSums;

constexpr std::int64_t kGrainElements = 16384;

std::int64_t grain_for(std::int64_t elements_per_item) {
  return std::max<std::int64_t>(1, kGrainElements / std::max<std::int64_t>(1, elements_per_item));
}

void check_eps(std::string_view op, double eps) {
  QUANTA_CHECK(std::isfinite(eps) && eps >= 0.0, "{}: eps: expected a finite number >= 0, got {}",
               op, eps);
}

// The numbers of a Float32 parameter of the given sizes; `fallback` for each if it is undefined.
std::vector<float> parameter(std::string_view op, std::string_view name, const Tensor& values,
                             const Dims& sizes, float fallback) {
  const std::int64_t count = product(sizes);
  if (!values.defined()) return std::vector<float>(static_cast<std::size_t>(count), fallback);
  replay::check_read(op, values);
  QUANTA_CHECK(values.dtype() == DType::Float32 && values.sizes() == sizes,
               "{}: {}: expected Float32 {}, got {} {}", op, name, sizes, values.dtype(),
               values.sizes());
  const Tensor dense = values.contiguous();
  const auto* data = dense.data<float>();
  return {data, data + count};
}

std::vector<float> required_parameter(std::string_view op, std::string_view name,
                                      const Tensor& values, const Dims& sizes) {
  QUANTA_CHECK(values.defined(), "{}: {}: expected Float32 {}, got an undefined tensor", op, name,
               sizes);
  return parameter(op, name, values, sizes, 0.0F);
}

const std::byte* at(const void* data, std::int64_t index, DType dtype) {
  return static_cast<const std::byte*>(data) + index * static_cast<std::int64_t>(item_size(dtype));
}
std::byte* at(void* data, std::int64_t index, DType dtype) {
  return static_cast<std::byte*>(data) + index * static_cast<std::int64_t>(item_size(dtype));
}

/// Batch, channels, everything behind them; `x` is dense in `format`.
struct NormGeometry {
  std::int64_t batch = 0;
  std::int64_t channels = 0;
  std::int64_t volume = 0;
  bool channels_last = false;

  NormGeometry(const Tensor& x, MemoryFormat format)
      : batch(x.sizes()[0]), channels(x.sizes()[1]), volume(1) {
    for (std::size_t d = 2; d < x.sizes().size(); ++d) volume *= x.sizes()[d];
    // Rank 2, or a single pixel: channels are innermost anyway.
    channels_last = format == MemoryFormat::ChannelsLast || volume == 1;
  }
};

// dst = quantize((x - center) * scale[c] + shift[c]).
void apply_per_channel(const NormGeometry& geometry, DType dtype, const void* src, float center,
                       const std::vector<float>& scale, const std::vector<float>& shift,
                       const NormOutput& output, void* dst) {
  const std::int64_t channels = geometry.channels;
  const std::int64_t volume = geometry.volume;
  if (geometry.channels_last) {
    const std::vector<float> centers(scale.size(), center);
    parallel_for(geometry.batch * volume, grain_for(channels),
                 [&](std::int64_t begin, std::int64_t end) {
                   cpu::norm_rows(dtype, at(src, begin * channels, dtype), centers.data(),
                                  scale.data(), shift.data(), end - begin, channels, output,
                                  at(dst, begin * channels, dtype));
                 });
    return;
  }
  parallel_for(geometry.batch * channels, grain_for(volume),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t plane = begin; plane < end; ++plane) {
                   const auto c = static_cast<std::size_t>(plane % channels);
                   cpu::norm_run(dtype, at(src, plane * volume, dtype), center, scale[c], shift[c],
                                 volume, output, at(dst, plane * volume, dtype));
                 }
               });
}

// What remains of a group's statistics: value = (x - center) * inv_std.
struct Moments {
  float center = 0.0F;
  float inv_std = 0.0F;
};

// For codes, `scale` is that of the input: the variance is that of real numbers, and inv_std
// takes differences of codes.
Moments moments_of(const NormSums& sums, std::int64_t count, double scale, double eps) {
  const auto n = static_cast<double>(count);
  const double mean = sums.sum / n;
  const double difference = sums.squares / n - mean * mean;
  const double variance = difference < 0.0 ? 0.0 : difference;  // NaN stays
  return {static_cast<float>(mean),
          static_cast<float>(scale / std::sqrt(variance * scale * scale + eps))};
}

void normalize_groups(const NormGeometry& geometry, std::int64_t groups, DType dtype,
                      const void* src, double scale, const std::vector<float>& weight,
                      const std::vector<float>& bias, double eps, const NormOutput& output,
                      void* dst) {
  const std::int64_t channels = geometry.channels;
  const std::int64_t volume = geometry.volume;
  const std::int64_t members = channels / groups;
  const std::int64_t count = members * volume;
  if (!geometry.channels_last) {
    parallel_for(
        geometry.batch * groups, grain_for(count), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t item = begin; item < end; ++item) {
            const Moments moments = moments_of(
                cpu::norm_sums(dtype, at(src, item * count, dtype), count), count, scale, eps);
            for (std::int64_t member = 0; member < members; ++member) {
              const auto c = static_cast<std::size_t>(item % groups * members + member);
              const std::int64_t offset = item * count + member * volume;
              cpu::norm_run(dtype, at(src, offset, dtype), moments.center,
                            moments.inv_std * weight[c], bias[c], volume, output,
                            at(dst, offset, dtype));
            }
          }
        });
    return;
  }
  std::vector<NormSums> sums(static_cast<std::size_t>(channels));
  std::vector<float> center(sums.size());
  std::vector<float> factor(sums.size());
  for (std::int64_t image = 0; image < geometry.batch; ++image) {
    const std::int64_t offset = image * volume * channels;
    std::fill(sums.begin(), sums.end(), NormSums{});
    cpu::norm_channel_sums(dtype, at(src, offset, dtype), volume, channels, sums.data());
    for (std::int64_t group = 0; group < groups; ++group) {
      const auto first = static_cast<std::size_t>(group * members);
      const auto last = first + static_cast<std::size_t>(members);
      NormSums total;
      for (std::size_t c = first; c < last; ++c) {
        total.sum += sums[c].sum;
        total.squares += sums[c].squares;
      }
      const Moments moments = moments_of(total, count, scale, eps);
      for (std::size_t c = first; c < last; ++c) {
        center[c] = moments.center;
        factor[c] = moments.inv_std * weight[c];
      }
    }
    parallel_for(volume, grain_for(channels), [&](std::int64_t begin, std::int64_t end) {
      cpu::norm_rows(dtype, at(src, offset + begin * channels, dtype), center.data(), factor.data(),
                     bias.data(), end - begin, channels, output,
                     at(dst, offset + begin * channels, dtype));
    });
  }
}

// Rows of `count` neighbouring elements, each with its own statistics.
void normalize_rows(std::int64_t rows, std::int64_t count, DType dtype, const void* src,
                    double scale, const std::vector<float>& weight, const std::vector<float>& bias,
                    double eps, const NormOutput& output, void* dst) {
  parallel_for(rows, grain_for(count), [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> factor(weight.size());
    for (std::int64_t row = begin; row < end; ++row) {
      const std::byte* from = at(src, row * count, dtype);
      const Moments moments = moments_of(cpu::norm_sums(dtype, from, count), count, scale, eps);
      cpu::float_binary(cpu::FloatBinary::Mul, weight.data(), &moments.inv_std, factor.data(),
                        count, cpu::Rhs::Scalar, cpu::Store::Cached);
      cpu::norm_row(dtype, from, moments.center, factor.data(), bias.data(), count, output,
                    at(dst, row * count, dtype));
    }
  });
}

NormOutput output_of(const QTensor& result, bool relu) {
  const IntRange range = quant_range(result.dtype());
  NormOutput output;
  output.zero_point = static_cast<std::int32_t>(result.q_zero_point());
  output.min = relu ? output.zero_point : static_cast<std::int32_t>(range.min);
  output.max = static_cast<std::int32_t>(range.max);
  output.inv_scale = 1.0F / static_cast<float>(result.q_scale());
  return output;
}

void check_output(std::string_view op, const QTensor& x, double scale, std::int64_t zero_point) {
  check_quantizer(op, Quantizer::per_tensor(scale, zero_point), x.dtype(), x.sizes());
}

// How many leading rows and how long a row is.
struct RowShape {
  std::int64_t rows = 1;
  std::int64_t count = 1;
};

// normalize_rows with all that it needs.
struct RowNorm {
  RowShape shape;
  double scale;
  std::vector<float> weight, bias;
  double eps;
  NormOutput output;

  void operator()(const Tensor& x, const Tensor& result) const {
    normalize_rows(shape.rows, shape.count, x.dtype(), x.data_ptr(), scale, weight, bias, eps,
                   output, result.data_ptr());
  }
};

void record_norm(std::string_view op, const Tensor& x, const Tensor& result, RowNorm norm) {
  replay::record({.op = op,
                  .inputs = {x},
                  .outputs = {result},
                  .run = [norm = std::move(norm)](const replay::Frame& frame) {
                    norm(frame.in(), frame.out());
                  }});
}

RowShape check_normalized_shape(std::string_view op, const Tensor& x,
                                const Dims& normalized_shape) {
  const std::size_t rank = x.sizes().size();
  bool matches = !normalized_shape.empty() && normalized_shape.size() <= rank;
  for (std::size_t d = 0; matches && d < normalized_shape.size(); ++d) {
    matches = normalized_shape[d] == x.sizes()[rank - normalized_shape.size() + d];
  }
  QUANTA_CHECK(matches, "{}: normalized_shape: expected the last sizes of x {}, got {}", op,
               x.sizes(), normalized_shape);
  RowShape shape;
  for (std::size_t d = 0; d + normalized_shape.size() < rank; ++d) shape.rows *= x.sizes()[d];
  shape.count = product(normalized_shape);
  return shape;
}

void check_groups(std::string_view op, const Tensor& x, std::int64_t num_groups,
                  std::int64_t min_rank) {
  QUANTA_CHECK(x.dim() >= min_rank, "{}: x: expected at least {} dimensions, got {}", op, min_rank,
               x.sizes());
  QUANTA_CHECK(num_groups >= 1 && x.sizes()[1] % num_groups == 0,
               "{}: num_groups: expected a divisor of the {} channels, got {}", op, x.sizes()[1],
               num_groups);
}

// The order in which a normalization over groups works and answers.
MemoryFormat format_of(const Tensor& x) {
  return x.dim() >= 3 && x.dim() <= 5 ? x.suggested_format() : MemoryFormat::Contiguous;
}

// Parameters of a norm in double precision.
void check_doubles(std::string_view op, std::string_view name, const Tensor& values,
                   const Dims& sizes) {
  QUANTA_CHECK(!values.defined() || (values.dtype() == DType::Float64 && values.sizes() == sizes),
               "{}: {}: expected Float64 {}, got {} {}", op, name, sizes, values.dtype(),
               values.sizes());
}

Tensor double_groups(std::string_view op, const Tensor& x, const gradients::GroupShape& shape,
                     const Dims& parameters, const Tensor& weight, const Tensor& bias, double eps) {
  check_doubles(op, "weight", weight, parameters);
  check_doubles(op, "bias", bias, parameters);
  check_eps(op, eps);
  return gradients::normalize_groups(x, shape, weight, bias, eps);
}

Tensor float32_groups(std::string_view op, const Tensor& x, std::int64_t num_groups,
                      const Tensor& weight, const Tensor& bias, double eps) {
  const Dims channels{x.sizes()[1]};
  const std::vector<float> scale = parameter(op, "weight", weight, channels, 1.0F);
  const std::vector<float> shift = parameter(op, "bias", bias, channels, 0.0F);
  check_eps(op, eps);
  const MemoryFormat format = format_of(x);
  const Tensor dense = x.contiguous(format);
  const Tensor result = Tensor::empty(x.sizes(), DType::Float32, format);
  if (x.numel() == 0) return result;
  normalize_groups(NormGeometry(dense, format), num_groups, DType::Float32, dense.data_ptr(), 1.0,
                   scale, shift, eps, {}, result.data_ptr());
  return result;
}

Tensor float_groups(std::string_view op, const Tensor& x, std::int64_t num_groups,
                    const Tensor& weight, const Tensor& bias, double eps) {
  const std::int64_t channels = x.sizes()[1];
  const gradients::GroupShape shape{x.sizes()[0], channels,
                                    x.numel() / std::max<std::int64_t>(1, x.sizes()[0] * channels),
                                    num_groups};
  Tensor y = x.dtype() == DType::Float64
                 ? double_groups(op, x, shape, {channels}, weight, bias, eps)
                 : float32_groups(op, x, num_groups, weight, bias, eps);
  if (!autograd::needs_grad(x, weight, bias)) return y;
  return gradients::record_group_norm(op, x, shape, weight, bias, eps, std::move(y));
}

Tensor float32_rows(std::string_view op, const Tensor& x, const Dims& normalized_shape,
                    const RowShape& shape, const Tensor& weight, const Tensor& bias, double eps) {
  const std::vector<float> scale = parameter(op, "weight", weight, normalized_shape, 1.0F);
  const std::vector<float> shift = parameter(op, "bias", bias, normalized_shape, 0.0F);
  check_eps(op, eps);
  const Tensor dense = x.contiguous();
  const Tensor result = Tensor::empty(x.sizes());
  if (x.numel() == 0) return result;
  const RowNorm norm{shape, 1.0, scale, shift, eps, {}};
  norm(dense, result);
  if (replay::is_recording()) record_norm(op, dense, result, norm);
  return result.contiguous(format_of(x));
}

QTensor quantized_groups(std::string_view op, const QTensor& x, std::int64_t num_groups,
                         const Tensor& weight, const Tensor& bias, double eps, double scale,
                         std::int64_t zero_point) {
  const Dims channels{x.sizes()[1]};
  const std::vector<float> factor = parameter(op, "weight", weight, channels, 1.0F);
  const std::vector<float> shift = parameter(op, "bias", bias, channels, 0.0F);
  check_eps(op, eps);
  check_output(op, x, scale, zero_point);
  const MemoryFormat format = format_of(x);
  const Tensor dense = x.contiguous(format);
  QTensor result = QTensor::empty(x.sizes(), scale, zero_point, x.dtype(), format);
  if (x.numel() == 0) return result;
  normalize_groups(NormGeometry(dense, format), num_groups, x.dtype(), dense.data_ptr(),
                   static_cast<double>(static_cast<float>(x.q_scale())), factor, shift, eps,
                   output_of(result, false), result.data_ptr());
  return result;
}

QTensor quantized_batch_norm(std::string_view op, const QTensor& x, const Tensor& weight,
                             const Tensor& bias, const Tensor& mean, const Tensor& var, double eps,
                             double scale, std::int64_t zero_point, bool relu) {
  if (replay::is_recording()) {
    return replay::call(
        op,
        [=](const QTensor& t) {
          return quantized_batch_norm(op, t, weight, bias, mean, var, eps, scale, zero_point, relu);
        },
        x);
  }
  OpScope scope(op);
  detail::check_quantized_8bit(op, x);
  scope.maps(x);
  QUANTA_CHECK(x.dim() >= 2 && x.dim() <= 5, "{}: x: expected 2 to 5 dimensions, got {}", op,
               x.sizes());
  const Dims channels{x.sizes()[1]};
  std::vector<float> alpha = required_parameter(op, "weight", weight, channels);
  std::vector<float> beta = required_parameter(op, "bias", bias, channels);
  const std::vector<float> means = required_parameter(op, "mean", mean, channels);
  const std::vector<float> vars = required_parameter(op, "var", var, channels);
  check_eps(op, eps);
  check_output(op, x, scale, zero_point);

  const MemoryFormat format = x.dim() >= 4   ? MemoryFormat::ChannelsLast
                              : x.dim() == 3 ? x.suggested_format()
                                             : MemoryFormat::Contiguous;
  const Tensor dense = x.contiguous(format);
  QTensor result = QTensor::empty(x.sizes(), scale, zero_point, x.dtype(), format);

  // torch's mix of float and double steps; it decides the codes at ties.
  for (std::size_t c = 0; c < alpha.size(); ++c) {
    const auto inv_sigma =
        static_cast<float>(1.0 / static_cast<double>(std::sqrt(vars[c] + static_cast<float>(eps))));
    const float slope = inv_sigma * alpha[c];
    const float offset = beta[c] - means[c] * inv_sigma * alpha[c];
    alpha[c] = static_cast<float>(static_cast<double>(slope) * (x.q_scale() / scale));
    beta[c] = static_cast<float>(static_cast<double>(offset) / scale);
  }
  NormOutput output = output_of(result, relu);
  output.inv_scale = 1.0F;  // it is part of alpha and beta
  scope.kernel("simd");
  apply_per_channel(NormGeometry(dense, format), x.dtype(), dense.data_ptr(),
                    static_cast<float>(x.q_zero_point()), alpha, beta, output, result.data_ptr());
  return result;
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Dims& normalized_shape, const Tensor& weight,
                  const Tensor& bias, double eps) {
  constexpr std::string_view kOp = "layer_norm";
  if (replay::is_recording() && x.defined() && x.dtype() == DType::Float64) {
    return replay::call(
        kOp,
        [=](const Tensor& a, const Tensor& b, const Tensor& c) {
          return layer_norm(a, normalized_shape, b, c, eps);
        },
        x, weight, bias);
  }
  OpScope scope(kOp);
  detail::check_floats(kOp, "x", x);
  scope.maps(x);
  const RowShape rows = check_normalized_shape(kOp, x, normalized_shape);
  const gradients::GroupShape shape{rows.rows, rows.count, 1, 1};
  scope.kernel(x.dtype() == DType::Float64 ? "doubles" : "simd");
  Tensor y = x.dtype() == DType::Float64
                 ? double_groups(kOp, x, shape, normalized_shape, weight, bias, eps)
                 : float32_rows(kOp, x, normalized_shape, rows, weight, bias, eps);
  if (!autograd::needs_grad(x, weight, bias)) return y;
  return gradients::record_group_norm(kOp, x, shape, weight, bias, eps, std::move(y));
}

Tensor group_norm(const Tensor& x, std::int64_t num_groups, const Tensor& weight,
                  const Tensor& bias, double eps) {
  if (replay::is_recording()) {
    return replay::call(
        "group_norm",
        [=](const Tensor& a, const Tensor& b, const Tensor& c) {
          return group_norm(a, num_groups, b, c, eps);
        },
        x, weight, bias);
  }
  OpScope scope("group_norm");
  detail::check_floats("group_norm", "x", x);
  scope.maps(x);
  check_groups("group_norm", x, num_groups, 2);
  scope.kernel("simd");
  return float_groups("group_norm", x, num_groups, weight, bias, eps);
}

Tensor instance_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  if (replay::is_recording()) {
    return replay::call(
        "instance_norm",
        [=](const Tensor& a, const Tensor& b, const Tensor& c) {
          return instance_norm(a, b, c, eps);
        },
        x, weight, bias);
  }
  OpScope scope("instance_norm");
  detail::check_floats("instance_norm", "x", x);
  scope.maps(x);
  QUANTA_CHECK(x.dim() >= 3, "instance_norm: x: expected at least 3 dimensions, got {}", x.sizes());
  scope.kernel("simd");
  return float_groups("instance_norm", x, std::max<std::int64_t>(1, x.sizes()[1]), weight, bias,
                      eps);
}

namespace quantized {

QTensor batch_norm(const QTensor& x, const Tensor& weight, const Tensor& bias, const Tensor& mean,
                   const Tensor& var, double eps, double scale, std::int64_t zero_point) {
  return quantized_batch_norm("batch_norm", x, weight, bias, mean, var, eps, scale, zero_point,
                              false);
}

QTensor batch_norm_relu(const QTensor& x, const Tensor& weight, const Tensor& bias,
                        const Tensor& mean, const Tensor& var, double eps, double scale,
                        std::int64_t zero_point) {
  return quantized_batch_norm("batch_norm_relu", x, weight, bias, mean, var, eps, scale, zero_point,
                              true);
}

QTensor layer_norm(const QTensor& x, const Dims& normalized_shape, const Tensor& weight,
                   const Tensor& bias, double eps, double scale, std::int64_t zero_point) {
  constexpr std::string_view kOp = "layer_norm";
  OpScope scope(kOp);
  detail::check_quantized_8bit(kOp, x);
  scope.maps(x);
  const RowShape shape = check_normalized_shape(kOp, x, normalized_shape);
  const std::vector<float> factor = parameter(kOp, "weight", weight, normalized_shape, 1.0F);
  const std::vector<float> shift = parameter(kOp, "bias", bias, normalized_shape, 0.0F);
  check_eps(kOp, eps);
  check_output(kOp, x, scale, zero_point);
  const Tensor dense = x.contiguous();
  QTensor result = QTensor::empty(x.sizes(), scale, zero_point, x.dtype());
  if (x.numel() == 0) return result;
  scope.kernel("simd");
  const double input_scale = static_cast<double>(static_cast<float>(x.q_scale()));
  const RowNorm norm{shape, input_scale, factor, shift, eps, output_of(result, false)};
  norm(dense, result);
  if (replay::is_recording()) record_norm(kOp, dense, result, norm);
  return QTensor(result.contiguous(format_of(x)));
}

QTensor group_norm(const QTensor& x, std::int64_t num_groups, const Tensor& weight,
                   const Tensor& bias, double eps, double scale, std::int64_t zero_point) {
  if (replay::is_recording()) {
    return replay::call(
        "group_norm",
        [=](const QTensor& a, const Tensor& b, const Tensor& c) {
          return group_norm(a, num_groups, b, c, eps, scale, zero_point);
        },
        x, weight, bias);
  }
  OpScope scope("group_norm");
  detail::check_quantized_8bit("group_norm", x);
  scope.maps(x);
  check_groups("group_norm", x, num_groups, 3);
  scope.kernel("simd");
  return quantized_groups("group_norm", x, num_groups, weight, bias, eps, scale, zero_point);
}

QTensor instance_norm(const QTensor& x, const Tensor& weight, const Tensor& bias, double eps,
                      double scale, std::int64_t zero_point) {
  if (replay::is_recording()) {
    return replay::call(
        "instance_norm",
        [=](const QTensor& a, const Tensor& b, const Tensor& c) {
          return instance_norm(a, b, c, eps, scale, zero_point);
        },
        x, weight, bias);
  }
  OpScope scope("instance_norm");
  detail::check_quantized_8bit("instance_norm", x);
  scope.maps(x);
  QUANTA_CHECK(x.dim() >= 3, "instance_norm: x: expected at least 3 dimensions, got {}", x.sizes());
  scope.kernel("simd");
  return quantized_groups("instance_norm", x, std::max<std::int64_t>(1, x.sizes()[1]), weight, bias,
                          eps, scale, zero_point);
}

}  // namespace quantized
}  // namespace quanta
