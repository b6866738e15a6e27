#include "quanta/ops/interpolate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "quanta/ops/detail/floating.h"
#include "quanta/ops/detail/spatial.h"
#include "quanta/ops/interpolate/cpu_kernels.h"
#include "quanta/ops/interpolate/gradient.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/recorder.h"
#include "quanta/runtime/verbose.h"

namespace quanta {
namespace {

constexpr std::string_view kOp = "interpolate";
constexpr std::int64_t kMaxSize = std::numeric_limits<std::int32_t>::max();

bool is_nearest(InterpolateMode mode) {
  return mode == InterpolateMode::Nearest || mode == InterpolateMode::NearestExact;
}

/// One spatial dimension; a scale_factor of 0 stands for none.
struct Axis {
  std::int64_t input = 1;
  std::int64_t output = 1;
  double scale_factor = 0.0;

  // Input positions for each output position, as torch computes them, in float32.
  float scale() const {
    return scale_factor > 0.0 ? static_cast<float>(1.0 / scale_factor)
                              : static_cast<float>(input) / static_cast<float>(output);
  }
};

Axis resolve_axis(std::int64_t input, std::size_t d, std::size_t spatial,
                  const InterpolateOptions& options) {
  Axis axis;
  axis.input = input;
  if (!options.size.empty()) {
    axis.output = detail::per_dimension(kOp, "size", options.size, spatial)[d];
  } else {
    const std::vector<double>& factors = options.scale_factor;
    QUANTA_CHECK(factors.size() == 1 || factors.size() == spatial,
                 "{}: scale_factor: expected 1 or {} numbers, got {}", kOp, spatial,
                 factors.size());
    const double factor = factors[factors.size() == 1 ? 0 : d];
    QUANTA_CHECK(std::isfinite(factor) && factor > 0.0,
                 "{}: scale_factor: expected a finite number > 0, got {}", kOp, factor);
    const double output = std::floor(static_cast<double>(input) * factor);
    QUANTA_CHECK(output >= 1.0 && output <= static_cast<double>(kMaxSize),
                 "{}: scale_factor: expected an output size in 1..{}, got {}", kOp, kMaxSize,
                 output);
    axis.output = static_cast<std::int64_t>(output);
    if (!options.recompute_scale_factor) axis.scale_factor = factor;
  }
  QUANTA_CHECK(axis.output >= 1 && axis.output <= kMaxSize, "{}: size: expected 1..{}, got {}", kOp,
               kMaxSize, axis.output);
  return axis;
}

std::vector<std::int64_t> nearest_table(const Axis& axis, InterpolateMode mode) {
  std::vector<std::int64_t> table(static_cast<std::size_t>(axis.output));
  const float scale = axis.scale();
  for (std::int64_t o = 0; o < axis.output; ++o) {
    std::int64_t source = 0;
    if (mode == InterpolateMode::NearestExact) {
      source = static_cast<std::int64_t>(std::floor((static_cast<float>(o) + 0.5F) * scale));
    } else if (axis.output == axis.input) {
      source = o;  // torch's shortcut, whatever the scale factor
    } else if (axis.output == 2 * axis.input) {
      source = o / 2;  // the same
    } else {
      source = static_cast<std::int64_t>(std::floor(static_cast<float>(o) * scale));
    }
    table[static_cast<std::size_t>(o)] = std::min(source, axis.input - 1);
  }
  return table;
}

// How (o + 0.5) * scale - 0.5 is rounded: torch's quantized channels-last kernel is compiled with
// fused multiply-adds, which moves values at ties; std::fma gives the same on every machine.
enum class SourceRounding { Separate, Fused };

std::vector<cpu::LinearTap> linear_table(const Axis& axis, bool align_corners,
                                         SourceRounding rounding) {
  std::vector<cpu::LinearTap> table(static_cast<std::size_t>(axis.output));
  float scale = axis.scale();
  if (align_corners) {
    scale = axis.output > 1
                ? static_cast<float>(axis.input - 1) / static_cast<float>(axis.output - 1)
                : 0.0F;
  }
  for (std::int64_t o = 0; o < axis.output; ++o) {
    const auto position = static_cast<float>(o);
    const float half_pixel = rounding == SourceRounding::Fused
                                 ? std::fma(scale, position + 0.5F, -0.5F)
                                 : scale * (position + 0.5F) - 0.5F;
    const float source = align_corners ? scale * position : std::max(half_pixel, 0.0F);
    cpu::LinearTap& tap = table[static_cast<std::size_t>(o)];
    tap.low = std::min(static_cast<std::int64_t>(source), axis.input - 1);
    tap.high = std::min(tap.low + 1, axis.input - 1);
    tap.weight_high = std::min(std::max(source - static_cast<float>(tap.low), 0.0F), 1.0F);
    tap.weight_low = 1.0F - tap.weight_high;
  }
  return table;
}

void check_mode(const Tensor& x, std::size_t spatial, const InterpolateOptions& options) {
  QUANTA_CHECK(options.size.empty() != options.scale_factor.empty(),
               "{}: size: expected either size or scale_factor, got {}", kOp,
               options.size.empty() ? "none" : "both");
  if (is_nearest(options.mode)) {
    QUANTA_CHECK(!options.align_corners,
                 "{}: align_corners: expected false for the nearest modes, got true", kOp);
    return;
  }
  const std::size_t wanted = options.mode == InterpolateMode::Linear     ? 1
                             : options.mode == InterpolateMode::Bilinear ? 2
                                                                         : 3;
  QUANTA_CHECK(spatial == wanted,
               "{}: mode: expected Linear, Bilinear or Trilinear for 1, 2 or 3 spatial dimensions, "
               "got the one for {} with x {}",
               kOp, wanted, x.sizes());
  QUANTA_SUPPORTED(!x.is_quantized() || spatial == 2,
                   "{}: mode: expected Nearest, NearestExact or Bilinear for {}, got another", kOp,
                   x.dtype());
}

Tensor gathered(const Tensor& x, const cpu::ResampleGeometry& geometry,
                const std::array<Axis, 3>& axes, InterpolateMode mode, const Tensor& result) {
  cpu::GatherTables tables;
  for (std::size_t d = 0; d < 3; ++d) tables[d] = nearest_table(axes[d], mode);
  const Tensor dense = x.contiguous(x.suggested_format());
  cpu::gather_spatial(geometry, tables, item_size(x.dtype()), dense.data_ptr(), result.data_ptr());
  if (!autograd::needs_grad(x)) return result;
  cpu::LinearTables taps;
  for (std::size_t d = 0; d < 3; ++d) taps[d] = gradients::copying_taps(tables[d]);
  return gradients::record_blend(x, result, taps);
}

Tensor blended(const Tensor& x, const cpu::ResampleGeometry& geometry,
               const std::array<Axis, 3>& axes, std::size_t spatial,
               const InterpolateOptions& options, const Tensor& result) {
  const Tensor dense = x.contiguous(x.suggested_format());
  cpu::LinearTables tables;
  const SourceRounding rounding =
      x.is_quantized() && dense.is_contiguous(MemoryFormat::ChannelsLast)
          ? SourceRounding::Fused
          : SourceRounding::Separate;
  for (std::size_t d = 0; d < 3; ++d) {
    tables[d] = linear_table(axes[d], options.align_corners, rounding);
  }
  if (x.dtype() == DType::Float64) {
    result.copy_(gradients::blend(detail::off_tape(x), tables, result.sizes()));
  } else {
    const auto zero_point =
        x.is_quantized() ? static_cast<std::int32_t>(x.impl()->quantizer.zero_point) : 0;
    cpu::blend_spatial(geometry, tables, spatial, x.dtype(), zero_point, dense.data_ptr(),
                       result.data_ptr());
  }
  if (!autograd::needs_grad(x)) return result;
  return gradients::record_blend(x, result, tables);
}

}  // namespace

Tensor interpolate(const Tensor& x, const InterpolateOptions& options) {
  if (replay::is_recording()) {
    return replay::call(
        kOp, [=](const Tensor& t) { return interpolate(t, options); }, x);
  }
  OpScope scope(kOp);
  if (!x.defined() || x.dtype() != DType::Float64) {
    detail::check_float_or_quantized(kOp, x, false);
  }
  QUANTA_CHECK(x.dim() >= 3 && x.dim() <= 5, "{}: x: expected 3 to 5 dimensions, got {}", kOp,
               x.sizes());
  const std::size_t spatial = x.sizes().size() - 2;
  check_mode(x, spatial, options);

  const MemoryFormat format = x.suggested_format();
  cpu::ResampleGeometry geometry;
  geometry.batch = x.sizes()[0];
  geometry.channels = x.sizes()[1];
  geometry.channels_last = format == MemoryFormat::ChannelsLast;
  std::array<Axis, 3> axes;
  Dims sizes = x.sizes();
  bool same_size = true;
  for (std::size_t d = 0; d < spatial; ++d) {
    const std::int64_t input = x.sizes()[d + 2];
    QUANTA_CHECK(input >= 1 && input <= kMaxSize, "{}: x: expected spatial sizes in 1..{}, got {}",
                 kOp, kMaxSize, x.sizes());
    const std::size_t slot = 3 - spatial + d;
    axes[slot] = resolve_axis(input, d, spatial, options);
    geometry.input[slot] = input;
    geometry.output[slot] = sizes[d + 2] = axes[slot].output;
    same_size = same_size && axes[slot].output == input;
  }

  const Tensor result = detail::empty_with_parameters_of(x, sizes, format);
  scope.touches(x, result);
  if (result.numel() == 0) return result;
  // torch's quantized bilinear copies then, whatever the scale factor.
  const bool copies = same_size && x.is_quantized() && options.mode == InterpolateMode::Bilinear;
  if (is_nearest(options.mode) || copies) {
    scope.kernel("gather");
    return gathered(x, geometry, axes, copies ? InterpolateMode::Nearest : options.mode, result);
  }
  scope.kernel("blend");
  return blended(x, geometry, axes, spatial, options, result);
}

}  // namespace quanta
