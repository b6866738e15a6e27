#include "quanta/ops/interpolate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>
#include <vector>

#include "quanta/ops/detail/families.h"
#include "quanta/ops/detail/spatial.h"
#include "quanta/ops/interpolate/cpu_kernels.h"
#include "quanta/ops/interpolate/gradient.h"
#include "quanta/ops/interpolate/resample.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/operation.h"

namespace quanta {

// torch's names.
std::span<const std::string_view> enumerators(InterpolateMode) {
  static constexpr std::array<std::string_view, 5> kNames{"nearest", "nearest-exact", "linear",
                                                          "bilinear", "trilinear"};
  return kNames;
}

namespace interpolation {
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

using Axes = std::array<Axis, 3>;

Axes axes_of(const Dims& sizes, const InterpolateOptions& options) {
  Axes axes;
  const std::size_t spatial = sizes.size() - 2;
  for (std::size_t d = 0; d < spatial; ++d) {
    axes[3 - spatial + d] = resolve_axis(sizes[d + 2], d, spatial, options);
  }
  return axes;
}

cpu::GatherTables gather_tables(const Axes& axes, InterpolateMode mode) {
  cpu::GatherTables tables;
  for (std::size_t d = 0; d < 3; ++d) tables[d] = nearest_table(axes[d], mode);
  return tables;
}

cpu::LinearTables linear_tables(const Axes& axes, bool align_corners, SourceRounding rounding) {
  cpu::LinearTables tables;
  for (std::size_t d = 0; d < 3; ++d) {
    tables[d] = linear_table(axes[d], align_corners, rounding);
  }
  return tables;
}

struct Interpolate final : Op<Interpolate> {
  static constexpr std::string_view kName = kOp;
  static constexpr ArgumentCount kArguments{1};
  InterpolateOptions options;

  explicit Interpolate(const InterpolateOptions& given) : options(given) {}

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    if (!x.defined() || x.dtype() != DType::Float64) {
      detail::check_float_or_quantized(kName, x, false);
    }
    QUANTA_CHECK(x.dim() >= 3 && x.dim() <= 5, "{}: x: expected 3 to 5 dimensions, got {}", kName,
                 x.sizes());
    const std::size_t spatial = x.sizes().size() - 2;
    check_mode(x, spatial, options);
    for (std::size_t d = 2; d < spatial + 2; ++d) {
      QUANTA_CHECK(x.sizes()[d] >= 1 && x.sizes()[d] <= kMaxSize,
                   "{}: x: expected spatial sizes in 1..{}, got {}", kName, kMaxSize, x.sizes());
    }
    const Axes axes = axes_of(x.sizes(), options);
    Dims sizes = x.sizes();
    for (std::size_t d = 0; d < spatial; ++d) sizes[d + 2] = axes[3 - spatial + d].output;
    const MemoryFormat format = x.suggested_format();
    out.arrange(0, format);
    out.add_like(x, sizes, format);
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& x = in[0];
    const Axes axes = axes_of(x.sizes(), options);
    cpu::ResampleGeometry geometry;
    geometry.batch = x.sizes()[0];
    geometry.channels = x.sizes()[1];
    geometry.channels_last = x.suggested_format() == MemoryFormat::ChannelsLast;
    for (std::size_t d = 0; d < 3; ++d) {
      geometry.input[d] = axes[d].input;
      geometry.output[d] = axes[d].output;
    }
    // torch's quantized bilinear copies then, whatever the scale factor.
    const bool copies = x.is_quantized() && options.mode == InterpolateMode::Bilinear &&
                        x.sizes() == out[0].sizes();
    if (is_nearest(options.mode) || copies) {
      cpu::gather_spatial(geometry,
                          gather_tables(axes, copies ? InterpolateMode::Nearest : options.mode),
                          item_size(x.dtype()), x.data_ptr(), out[0].data_ptr());
      return "gather";
    }
    const bool fuses = x.is_quantized() && x.is_contiguous(MemoryFormat::ChannelsLast);
    const cpu::LinearTables tables = linear_tables(
        axes, options.align_corners, fuses ? SourceRounding::Fused : SourceRounding::Separate);
    if (x.dtype() == DType::Float64) {
      copy_result(blend(x, tables, out[0].sizes()), out[0]);
    } else {
      const auto zero_point =
          x.is_quantized() ? static_cast<std::int32_t>(x.impl()->quantizer.zero_point) : 0;
      cpu::blend_spatial(geometry, tables, x.sizes().size() - 2, x.dtype(), zero_point,
                         x.data_ptr(), out[0].data_ptr());
    }
    return "blend";
  }

  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::of(0); }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    const Dims& sizes = context.input_sizes(0);
    const Axes axes = axes_of(sizes, options);
    cpu::LinearTables taps;
    if (is_nearest(options.mode)) {
      const cpu::GatherTables sources = gather_tables(axes, options.mode);
      for (std::size_t d = 0; d < 3; ++d) taps[d] = copying_taps(sources[d]);
    } else {
      taps = linear_tables(axes, options.align_corners, SourceRounding::Separate);
    }
    return {blend_gradient(context.grad(), taps, sizes)};
  }

  static std::span<const AttributeInfo> attribute_table() {
    using Self = Interpolate;
    using Options = InterpolateOptions;
    static constexpr std::array kTable{
        attribute<Self, &Self::options, &Options::size>("size"),
        attribute<Self, &Self::options, &Options::scale_factor>("scale_factor"),
        attribute<Self, &Self::options, &Options::mode>("mode"),
        attribute<Self, &Self::options, &Options::align_corners>("align_corners"),
        attribute<Self, &Self::options, &Options::recompute_scale_factor>(
            "recompute_scale_factor")};
    return kTable;
  }
};

}  // namespace
}  // namespace interpolation

Tensor interpolate(const Tensor& x, const InterpolateOptions& options) {
  return run(interpolation::Interpolate(options), x);
}

void detail::add_interpolate(Catalogue& catalogue) {
  catalogue.add({.name = interpolation::kOp,
                 .header = "quanta/ops/interpolate.h",
                 .dtypes = dtypes::kFloatsQ8},
                [](DType dtype) {
                  // Powers of two: other blends of codes round as the memory order has it.
                  const InterpolateOptions options{.scale_factor = {2.0, 4.0},
                                                   .mode = InterpolateMode::Bilinear};
                  return sample_call(interpolation::Interpolate(options),
                                     {sample_tensor({2, 3, 5, 4}, dtype)});
                });
  interpolation::add_resample(catalogue);
}

}  // namespace quanta
