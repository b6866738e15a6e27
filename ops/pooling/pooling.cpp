#include "quanta/ops/pooling.h"

#include <limits>
#include <string_view>

#include "quanta/ops/detail/spatial.h"
#include "quanta/ops/pooling/cpu_kernels.h"
#include "quanta/ops/pooling/gradient.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/recorder.h"
#include "quanta/runtime/verbose.h"

namespace quanta {
namespace {

using cpu::PoolAxis;
using cpu::PoolGeometry;
using cpu::PoolLayout;

enum class Unbatched { No, Yes };

// Input checked, its dimensions filled in; `axes` of the used spatial dimensions are still to do.
struct PoolInput {
  Tensor x;  // dense, in the order that `geometry.layout` says
  PoolGeometry geometry;
  std::size_t spatial = 0;
  Unbatched unbatched = Unbatched::No;

  PoolAxis& axis(std::size_t d) { return geometry.axes[3 - spatial + d]; }
};

PoolInput pool_input(std::string_view op, const Tensor& given, std::size_t spatial,
                     bool allow_qint32) {
  // Float64 as well, for proofs of gradients.
  if (!given.defined() || given.dtype() != DType::Float64) {
    detail::check_float_or_quantized(op, given, allow_qint32);
  }
  const Tensor x = autograd::needs_grad(given) ? given.detach() : given;
  const auto rank = static_cast<std::size_t>(x.dim());
  QUANTA_CHECK(rank == spatial + 1 || rank == spatial + 2,
               "{}: x: expected {} or {} dimensions, got {}", op, spatial + 1, spatial + 2,
               x.sizes());
  PoolInput input;
  input.spatial = spatial;
  input.unbatched = rank == spatial + 1 ? Unbatched::Yes : Unbatched::No;
  input.x = input.unbatched == Unbatched::Yes ? x.unsqueeze(0) : x;
  for (std::size_t d = 1; d < spatial + 2; ++d) {
    QUANTA_CHECK(input.x.sizes()[d] > 0, "{}: x: expected channels and spatial sizes > 0, got {}",
                 op, x.sizes());
  }
  // One channel suits both orders; torch then takes its channels-last kernels, whose averages
  // round differently at ties, but for inputs without a batch.
  const bool channels_last = input.x.is_contiguous(MemoryFormat::ChannelsLast) &&
                             (input.unbatched == Unbatched::No || !input.x.is_contiguous());
  if (!channels_last) input.x = input.x.contiguous();
  input.geometry.batch = input.x.sizes()[0];
  input.geometry.channels = input.x.sizes()[1];
  input.geometry.layout = channels_last ? PoolLayout::ChannelsLast : PoolLayout::Contiguous;
  for (std::size_t d = 0; d < spatial; ++d) {
    input.axis(d).input = input.axis(d).output = input.x.sizes()[d + 2];
  }
  return input;
}

void set_windows(std::string_view op, PoolInput& input, const Dims& kernel_size, const Dims& stride,
                 const Dims& padding, const Dims& dilation, bool ceil_mode) {
  // Products of two of these numbers (three kernel sizes) stay within 63 bits.
  constexpr std::int64_t kLimit = std::numeric_limits<std::int32_t>::max();
  const std::size_t spatial = input.spatial;
  const std::int64_t kernel_limit = spatial == 3 ? std::int64_t{1} << 20 : kLimit;
  const Dims kernels = detail::per_dimension(op, "kernel_size", kernel_size, spatial);
  const Dims strides =
      stride.empty() ? kernels : detail::per_dimension(op, "stride", stride, spatial);
  const Dims paddings = detail::per_dimension(op, "padding", padding, spatial);
  const Dims dilations = detail::per_dimension(op, "dilation", dilation, spatial);
  for (std::size_t d = 0; d < spatial; ++d) {
    QUANTA_CHECK(kernels[d] >= 1 && kernels[d] <= kernel_limit,
                 "{}: kernel_size: expected 1..{}, got {}", op, kernel_limit, kernels);
    QUANTA_CHECK(strides[d] >= 1 && strides[d] <= kLimit, "{}: stride: expected 1..{}, got {}", op,
                 kLimit, strides);
    QUANTA_CHECK(dilations[d] >= 1 && dilations[d] <= kLimit,
                 "{}: dilation: expected 1..{}, got {}", op, kLimit, dilations);
    QUANTA_CHECK(paddings[d] >= 0 && paddings[d] <= kernels[d] / 2,
                 "{}: padding: expected 0 to half of kernel_size {}, got {}", op, kernels,
                 paddings);
    PoolAxis& axis = input.axis(d);
    axis.kernel = kernels[d];
    axis.stride = strides[d];
    axis.padding = paddings[d];
    axis.dilation = dilations[d];
    const std::int64_t span = axis.input + 2 * axis.padding - axis.dilation * (axis.kernel - 1) - 1;
    axis.output = span < 0 ? 0 : (span + (ceil_mode ? axis.stride - 1 : 0)) / axis.stride + 1;
    // With ceil_mode the last window still has to start inside the input or its left padding.
    if (ceil_mode && (axis.output - 1) * axis.stride >= axis.input + axis.padding) --axis.output;
    QUANTA_CHECK(axis.output >= 1,
                 "{}: x: expected at least one window of {} (dilation {}, padding {}), got size {}",
                 op, axis.kernel, axis.dilation, axis.padding, axis.input);
  }
}

Tensor pool_result(PoolInput& input) {
  Dims sizes{input.geometry.batch, input.geometry.channels};
  for (std::size_t d = 0; d < input.spatial; ++d) sizes.push_back(input.axis(d).output);
  return detail::empty_with_parameters_of(input.x, sizes,
                                          input.geometry.layout == PoolLayout::ChannelsLast
                                              ? MemoryFormat::ChannelsLast
                                              : MemoryFormat::Contiguous);
}

Tensor finish(const PoolInput& input, const Tensor& result) {
  return input.unbatched == Unbatched::Yes ? result.squeeze(0) : result;
}

std::int32_t zero_point_of(const Tensor& x) {
  return x.is_quantized() ? static_cast<std::int32_t>(x.impl()->quantizer.zero_point) : 0;
}

Tensor max_result(std::string_view op, OpScope& scope, const Tensor& x, const PoolInput& input,
                  const Tensor& result) {
  scope.touches(input.x, result);
  scope.kernel(cpu::max_pool(input.geometry, x.dtype(), input.x.data_ptr(), result.data_ptr()));
  if (replay::is_recording()) {
    replay::record({.op = op,
                    .inputs = {input.x},
                    .outputs = {result},
                    .run = [geometry = input.geometry](const replay::Frame& frame) {
                      cpu::max_pool(geometry, frame.in().dtype(), frame.in().data_ptr(),
                                    frame.out().data_ptr());
                    }});
  }
  Tensor y = finish(input, result);
  if (!autograd::needs_grad(x)) return y;
  return gradients::record_max_pool(op, std::move(y), x, input.spatial, input.geometry);
}

Tensor avg_result(std::string_view op, OpScope& scope, const Tensor& x, const PoolInput& input,
                  const cpu::AverageRule& rule, const Tensor& result) {
  scope.touches(input.x, result);
  scope.kernel(
      cpu::avg_pool(input.geometry, rule, x.dtype(), input.x.data_ptr(), result.data_ptr()));
  if (replay::is_recording()) {
    replay::record({.op = op,
                    .inputs = {input.x},
                    .outputs = {result},
                    .run = [geometry = input.geometry, rule](const replay::Frame& frame) {
                      cpu::avg_pool(geometry, rule, frame.in().dtype(), frame.in().data_ptr(),
                                    frame.out().data_ptr());
                    }});
  }
  Tensor y = finish(input, result);
  if (!autograd::needs_grad(x)) return y;
  return gradients::record_avg_pool(op, std::move(y), x, input.spatial, input.geometry, rule);
}

Tensor max_pool(std::string_view op, const Tensor& x, const MaxPoolOptions& options,
                std::size_t spatial) {
  OpScope scope(op);
  PoolInput input = pool_input(op, x, spatial, true);
  set_windows(op, input, options.kernel_size, options.stride, options.padding, options.dilation,
              options.ceil_mode);
  const Tensor result = pool_result(input);
  return max_result(op, scope, x, input, result);
}

Tensor avg_pool(std::string_view op, const Tensor& x, const AvgPoolOptions& options,
                std::size_t spatial) {
  OpScope scope(op);
  PoolInput input = pool_input(op, x, spatial, false);
  set_windows(op, input, options.kernel_size, options.stride, options.padding, Dims{1},
              options.ceil_mode);
  QUANTA_CHECK(options.divisor_override != 0,
               "{}: divisor_override: expected another number, got 0", op);
  const Tensor result = pool_result(input);
  cpu::AverageRule rule;
  rule.zero_point = zero_point_of(x);
  rule.divisor = options.count_include_pad ? cpu::AverageDivisor::PaddedWindow
                                           : cpu::AverageDivisor::ValidWindow;
  if (options.divisor_override) {
    rule.divisor = cpu::AverageDivisor::Fixed;
    rule.fixed_divisor = *options.divisor_override;
  }
  // torch's contiguous 1-d and 2-d kernels are the ones that add the zero point first.
  rule.rounding = spatial < 3 && input.geometry.layout == PoolLayout::Contiguous
                      ? cpu::AverageRounding::ZeroPointFirst
                      : cpu::AverageRounding::Centred;
  return avg_result(op, scope, x, input, rule, result);
}

void set_adaptive(std::string_view op, PoolInput& input, const Dims& output_size) {
  constexpr std::int64_t kLimit = std::numeric_limits<std::int32_t>::max();
  const Dims outputs = detail::per_dimension(op, "output_size", output_size, input.spatial);
  for (std::size_t d = 0; d < input.spatial; ++d) {
    QUANTA_CHECK(outputs[d] == -1 || (outputs[d] >= 1 && outputs[d] <= kLimit),
                 "{}: output_size: expected 1..{} or -1 for the input's size, got {}", op, kLimit,
                 outputs);
    input.axis(d).adaptive = true;
    if (outputs[d] != -1) input.axis(d).output = outputs[d];
  }
}

Tensor adaptive_avg_pool(std::string_view op, const Tensor& x, const Dims& output_size,
                         std::size_t spatial) {
  OpScope scope(op);
  PoolInput input = pool_input(op, x, spatial, false);
  set_adaptive(op, input, output_size);
  cpu::AverageRule rule;
  rule.zero_point = zero_point_of(x);
  rule.divisor = cpu::AverageDivisor::ValidWindow;
  rule.rounding = input.geometry.layout == PoolLayout::Contiguous ? cpu::AverageRounding::RawCodes
                                                                  : cpu::AverageRounding::Centred;
  return avg_result(op, scope, x, input, rule, pool_result(input));
}

Tensor adaptive_max_pool(std::string_view op, const Tensor& x, const Dims& output_size,
                         std::size_t spatial) {
  OpScope scope(op);
  PoolInput input = pool_input(op, x, spatial, true);
  set_adaptive(op, input, output_size);
  return max_result(op, scope, x, input, pool_result(input));
}

}  // namespace

Tensor max_pool1d(const Tensor& x, const MaxPoolOptions& options) {
  return max_pool("max_pool1d", x, options, 1);
}
Tensor max_pool2d(const Tensor& x, const MaxPoolOptions& options) {
  return max_pool("max_pool2d", x, options, 2);
}
Tensor max_pool3d(const Tensor& x, const MaxPoolOptions& options) {
  return max_pool("max_pool3d", x, options, 3);
}

Tensor avg_pool1d(const Tensor& x, const AvgPoolOptions& options) {
  return avg_pool("avg_pool1d", x, options, 1);
}
Tensor avg_pool2d(const Tensor& x, const AvgPoolOptions& options) {
  return avg_pool("avg_pool2d", x, options, 2);
}
Tensor avg_pool3d(const Tensor& x, const AvgPoolOptions& options) {
  return avg_pool("avg_pool3d", x, options, 3);
}

Tensor adaptive_max_pool1d(const Tensor& x, const Dims& output_size) {
  return adaptive_max_pool("adaptive_max_pool1d", x, output_size, 1);
}
Tensor adaptive_max_pool2d(const Tensor& x, const Dims& output_size) {
  return adaptive_max_pool("adaptive_max_pool2d", x, output_size, 2);
}
Tensor adaptive_max_pool3d(const Tensor& x, const Dims& output_size) {
  return adaptive_max_pool("adaptive_max_pool3d", x, output_size, 3);
}

Tensor adaptive_avg_pool1d(const Tensor& x, const Dims& output_size) {
  return adaptive_avg_pool("adaptive_avg_pool1d", x, output_size, 1);
}
Tensor adaptive_avg_pool2d(const Tensor& x, const Dims& output_size) {
  return adaptive_avg_pool("adaptive_avg_pool2d", x, output_size, 2);
}
Tensor adaptive_avg_pool3d(const Tensor& x, const Dims& output_size) {
  return adaptive_avg_pool("adaptive_avg_pool3d", x, output_size, 3);
}

}  // namespace quanta
