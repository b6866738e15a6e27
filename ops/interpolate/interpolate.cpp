#include "quanta/ops/interpolate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>
#include <vector>

#include "quanta/ops/cuda/gather.h"
#include "quanta/ops/detail/families.h"
#include "quanta/ops/detail/spatial.h"
#include "quanta/ops/interpolate/cpu_kernels.h"
#include "quanta/ops/interpolate/cuda_blend.h"
#include "quanta/ops/interpolate/gradient.h"
#include "quanta/ops/interpolate/resample.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/resample_math.h"
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

// Whether torch takes its kernel for floats whose channels lie last, which small images take too.
// That one, and every gradient, has whole ratios.
bool takes_channels_last_kernel(const Tensor& x, const Dims& result) {
  constexpr std::int64_t kFewChannels = 3;
  constexpr std::int64_t kSmallImage = 128;  // height + width of the result
  const std::size_t spatial = result.size() - 2;
  if (x.is_quantized() || spatial == 1) return false;
  const bool lies_last = x.is_contiguous(MemoryFormat::ChannelsLast) && x.sizes()[1] > kFewChannels;
  return lies_last || (spatial == 2 && result[2] + result[3] <= kSmallImage);
}

// Whether a kept dimension is copied by the nearest modes, and every element of a doubled one twice,
// whatever the scale factor.
enum class WholeRatios : bool { No, Yes };

WholeRatios whole_ratios_of(const Tensor& x, const Dims& result) {
  return takes_channels_last_kernel(x, result) ? WholeRatios::Yes : WholeRatios::No;
}

math::SourceAxis nearest_axis(const Axis& axis, InterpolateMode mode, WholeRatios whole_ratios) {
  math::SourceAxis source{.rule = math::SourceRule::Nearest,
                          .input = axis.input,
                          .output = axis.output,
                          .scale = axis.scale()};
  if (mode == InterpolateMode::NearestExact) {
    source.rule = math::SourceRule::NearestExact;
  } else if (whole_ratios == WholeRatios::Yes) {
    if (axis.output == axis.input) source.scale = 1.0F;
    if (axis.output == 2 * axis.input) source.scale = 0.5F;
  }
  return source;
}

std::vector<std::int64_t> nearest_table(const Axis& axis, InterpolateMode mode,
                                        WholeRatios whole_ratios) {
  std::vector<std::int64_t> table(static_cast<std::size_t>(axis.output));
  const math::SourceAxis sources = nearest_axis(axis, mode, whole_ratios);
  for (std::int64_t o = 0; o < axis.output; ++o) {
    table[static_cast<std::size_t>(o)] = math::source_of(sources, o);
  }
  return table;
}

// Whether torch's kernel is compiled with fused multiply-adds, which moves values at ties.
bool has_fused_positions(const Tensor& x, const Dims& result) {
  if (x.is_quantized()) return x.is_contiguous(MemoryFormat::ChannelsLast);
  return result.size() == 4 && takes_channels_last_kernel(x, result);
}
// Floats are as near to torch's without.
bool has_fused_blends(const Tensor& x) {
  return x.is_quantized() && x.is_contiguous(MemoryFormat::ChannelsLast);
}

math::LinearRule linear_rule(bool align_corners, bool is_fused) {
  if (align_corners) return math::LinearRule::AlignCorners;
  return is_fused ? math::LinearRule::HalfPixelFused : math::LinearRule::HalfPixel;
}

math::LinearAxis linear_axis(const Axis& axis, math::LinearRule rule, bool is_quantized) {
  math::LinearAxis linear{rule, axis.input, axis.output, axis.scale()};
  if (rule == math::LinearRule::AlignCorners) {
    linear.scale = axis.output > 1
                       ? static_cast<float>(axis.input - 1) / static_cast<float>(axis.output - 1)
                       : 0.0F;
  }
  // torch copies a kept dimension of floats, whatever the scale factor.
  if (!is_quantized && axis.input == axis.output) linear.scale = 1.0F;
  return linear;
}

std::vector<cpu::LinearTap> linear_table(const Axis& axis, math::LinearRule rule,
                                         bool is_quantized) {
  std::vector<cpu::LinearTap> table(static_cast<std::size_t>(axis.output));
  const math::LinearAxis linear = linear_axis(axis, rule, is_quantized);
  for (std::int64_t o = 0; o < axis.output; ++o) {
    table[static_cast<std::size_t>(o)] = math::linear_tap(linear, o);
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

cpu::GatherTables gather_tables(const Axes& axes, InterpolateMode mode, WholeRatios whole_ratios) {
  cpu::GatherTables tables;
  for (std::size_t d = 0; d < 3; ++d) tables[d] = nearest_table(axes[d], mode, whole_ratios);
  return tables;
}

cpu::LinearTables linear_tables(const Axes& axes, math::LinearRule rule, bool is_quantized) {
  cpu::LinearTables tables;
  for (std::size_t d = 0; d < 3; ++d) tables[d] = linear_table(axes[d], rule, is_quantized);
  return tables;
}

cpu::ResampleGeometry geometry_of(const Tensor& x, const Axes& axes) {
  cpu::ResampleGeometry geometry;
  geometry.batch = x.sizes()[0];
  geometry.channels = x.sizes()[1];
  geometry.channels_last = x.suggested_format() == MemoryFormat::ChannelsLast;
  for (std::size_t d = 0; d < 3; ++d) {
    geometry.input[d] = axes[d].input;
    geometry.output[d] = axes[d].output;
  }
  return geometry;
}

struct Interpolate final : Op<Interpolate> {
  static constexpr std::string_view kName = kOp;
  static constexpr ArgumentCount kArguments{1};
  static constexpr bool kWorksByRows = true;
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
    const Axes axes = axes_for(x, out[0]);
    const cpu::ResampleGeometry geometry = geometry_of(x, axes);
    if (copies(x, out[0])) {
      cpu::gather_spatial(geometry,
                          gather_tables(axes, copying_mode(), whole_ratios_of(x, out[0].sizes())),
                          item_size(x.dtype()), x.data_ptr(), out[0].data_ptr());
      return "gather";
    }
    const math::LinearRule rule =
        linear_rule(options.align_corners, has_fused_positions(x, out[0].sizes()));
    const cpu::LinearTables tables = linear_tables(axes, rule, x.is_quantized());
    if (x.dtype() == DType::Float64) {
      copy_result(blend(x, tables, out[0].sizes()), out[0]);
    } else {
      cpu::blend_spatial(geometry, tables, x.sizes().size() - 2, x.dtype(), zero_point_of(x),
                         has_fused_blends(x), x.data_ptr(), out[0].data_ptr());
    }
    return "blend";
  }

  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& x = in[0];
    const Axes axes = axes_for(x, out[0]);
    const std::size_t spatial = x.sizes().size() - 2;
    if (copies(x, out[0])) {
      std::array<cuda::GatherAxis, 5> all;
      for (std::size_t d = 0; d < spatial + 2; ++d) {
        all[d] = cuda::kept_axis(x.sizes()[d], x.strides()[d]);
        if (d >= 2)
          all[d].source = nearest_axis(axes[d + 1 - spatial], copying_mode(),
                                       whole_ratios_of(x, out[0].sizes()));
      }
      cuda::gather(x, std::span(all).first(spatial + 2), out[0]);
      return "gather_items";
    }
    std::array<cuda::BlendAxis, 3> blended;
    const math::LinearRule rule =
        linear_rule(options.align_corners, has_fused_positions(x, out[0].sizes()));
    for (std::size_t d = 0; d < 3; ++d) {
      blended[d].linear = linear_axis(axes[d], rule, x.is_quantized());
    }
    cuda::blend(x.device(), geometry_of(x, axes), blended, spatial, x.dtype(), zero_point_of(x),
                has_fused_blends(x), x.device_ptr(), out[0].device_ptr());
    return "blend_packs";
  }
  std::span<const DType> cuda_dtypes() const noexcept override {
    if (is_nearest(options.mode)) return dtypes::kFloatsQ8;
    return dtypes::kFloatQ8;
  }

  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::of(0); }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    const Dims& sizes = context.input_sizes(0);
    const Axes axes = axes_of(sizes, options);
    cpu::LinearTables taps;
    if (is_nearest(options.mode)) {
      const cpu::GatherTables sources = gather_tables(axes, options.mode, WholeRatios::Yes);
      for (std::size_t d = 0; d < 3; ++d) taps[d] = copying_taps(sources[d]);
    } else {
      taps = linear_tables(axes, linear_rule(options.align_corners, false), false);
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

 private:
  bool copies(const Tensor& x, const Tensor& out) const {
    return is_nearest(options.mode) ||
           (x.is_quantized() && options.mode == InterpolateMode::Bilinear &&
            x.sizes() == out.sizes());
  }
  // torch copies codes whose sizes stay, whatever the scale factors.
  Axes axes_for(const Tensor& x, const Tensor& out) const {
    Axes axes = axes_of(x.sizes(), options);
    if (x.is_quantized() && x.sizes() == out.sizes()) {
      for (Axis& axis : axes) axis.scale_factor = 1.0;
    }
    return axes;
  }
  InterpolateMode copying_mode() const {
    return is_nearest(options.mode) ? options.mode : InterpolateMode::Nearest;
  }
  static std::int32_t zero_point_of(const Tensor& x) {
    return x.is_quantized() ? static_cast<std::int32_t>(x.impl()->quantizer.zero_point) : 0;
  }
};

}  // namespace
}  // namespace interpolation

Tensor interpolate(const Tensor& x, const InterpolateOptions& options) {
  return run(interpolation::Interpolate(options), x);
}

Tensor upsample(const Tensor& x, const InterpolateOptions& options) {
  return interpolate(x, options);
}

Tensor upsample_nearest(const Tensor& x, const Dims& size,
                        const std::vector<double>& scale_factor) {
  return interpolate(x, {.size = size, .scale_factor = scale_factor});
}

Tensor upsample_bilinear(const Tensor& x, const Dims& size,
                         const std::vector<double>& scale_factor) {
  return interpolate(x, {.size = size,
                         .scale_factor = scale_factor,
                         .mode = InterpolateMode::Bilinear,
                         .align_corners = true});
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
