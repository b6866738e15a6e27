#include "quanta/ops/interpolate/resample.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>
#include <type_traits>
#include <vector>

#include "quanta/ops/cpu/resample.h"
#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/ops/detail/elements.h"
#include "quanta/ops/detail/families.h"
#include "quanta/ops/detail/spatial.h"
#include "quanta/ops/interpolate.h"
#include "quanta/ops/interpolate/cpu_kernels.h"
#include "quanta/ops/interpolate/cuda_resample.h"
#include "quanta/ops/interpolate/resample_axis.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/resample_math.h"
#include "quanta/runtime/operation.h"
#include "quanta/runtime/parallel.h"

namespace quanta {

// ONNX's names.
std::span<const std::string_view> enumerators(ResampleMode) {
  static constexpr std::array<std::string_view, 3> kNames{"nearest", "linear", "cubic"};
  return kNames;
}
std::span<const std::string_view> enumerators(ResamplePosition) {
  static constexpr std::array<std::string_view, 7> kNames{
      "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel",  "align_corners",
      "asymmetric", "tf_crop_and_resize",   "tf_half_pixel_for_nn"};
  return kNames;
}
std::span<const std::string_view> enumerators(ResampleRounding) {
  static constexpr std::array<std::string_view, 5> kNames{"round_prefer_floor", "round_prefer_ceil",
                                                          "floor", "ceil", "floor_or_ceil"};
  return kNames;
}

namespace interpolation {
namespace {

constexpr std::string_view kOp = "resample";
/// Positions are float32 numbers and tables take memory.
constexpr std::int64_t kMaxSize = std::int64_t{1} << 31;

// In the order of memory, so that dimensions before and after those that change are one each.
Axes axes_of(const Tensor& x, const ResampleOptions& options, MemoryFormat format) {
  const std::size_t rank = x.sizes().size();
  Axes axes(rank);
  for (std::size_t d = 0; d < rank; ++d) {
    const std::size_t slot = format != MemoryFormat::ChannelsLast || d == 0 ? d
                             : d == 1                                       ? rank - 1
                                                                            : d - 1;
    ResampleAxis& axis = axes[slot];
    axis.input = x.sizes()[d];
    axis.output = options.size[d];
    axis.scale = !options.scale.empty() ? options.scale[d]
                 : axis.input > 0
                     ? static_cast<double>(axis.output) / static_cast<double>(axis.input)
                     : 1.0;
    if (options.roi.empty()) continue;
    axis.roi_start = options.roi[d];
    axis.roi_end = options.roi[rank + d];
  }
  return axes;
}

void gather_part(const Part& part, const Axes& axes, const ResampleOptions& options,
                 std::size_t item_bytes, const void* src, void* dst) {
  cpu::GatherTables tables{std::vector<std::int64_t>{0}, {0}, {0}};
  for (std::size_t i = 0; i < part.count; ++i) {
    tables[3 - part.count + i] = nearest_sources(axes[part.first + i], options);
  }
  cpu::gather_spatial(part.geometry, tables, item_bytes, src, dst);
}

void blend_part(const Part& part, const Axes& axes, const ResampleOptions& options, DType dtype,
                std::int32_t zero_point, const void* src, void* dst) {
  cpu::LinearTables tables;
  for (std::size_t d = 0; d < 3; ++d) tables[d] = {cpu::LinearTap{}};
  for (std::size_t i = 0; i < part.count; ++i) {
    tables[3 - part.count + i] = taps_of(axes[part.first + i], options);
  }
  cpu::blend_spatial(part.geometry, tables, part.count, dtype, zero_point, false, src, dst);
}

// One dimension in floats.
template <typename T>
void weigh_part(const Part& part, const ResampleAxis& axis, const ResampleOptions& options,
                const T* src, T* dst) {
  const WeightedSources taps = weighted_sources(axis, options);
  const std::int64_t inner = part.geometry.channels;
  const std::int64_t grain =
      std::max<std::int64_t>(1, cpu::kElementGrain / std::max<std::int64_t>(1, inner * taps.count));
  parallel_for(part.geometry.batch * axis.output, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t line = begin; line < end; ++line) {
      const T* plane = src + line / axis.output * axis.input * inner;
      T* to = dst + line * inner;
      std::fill_n(to, inner, T{});
      const std::int64_t tap = line % axis.output * taps.count;
      for (std::int64_t k = tap; k < tap + taps.count; ++k) {
        const auto weight = static_cast<T>(taps.weights[static_cast<std::size_t>(k)]);
        if (weight == T{}) continue;  // NaN beside a position does not reach it
        const T* from = plane + taps.sources[static_cast<std::size_t>(k)] * inner;
        for (std::int64_t i = 0; i < inner; ++i) to[i] += weight * from[i];
      }
    }
  });
}

// Runs step(part, from, to) over memory that goes from part to part.
template <typename Step>
void run_parts(const std::vector<Part>& parts, std::size_t item_bytes, const void* src, void* dst,
               Step&& step) {
  std::array<std::vector<std::byte>, 2> memory;
  const void* from = src;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    void* to = dst;
    if (i + 1 < parts.size()) {
      const cpu::ResampleGeometry& g = parts[i].geometry;
      memory[i % 2].resize(
          static_cast<std::size_t>(g.batch * g.channels * g.output[0] * g.output[1] * g.output[2]) *
          item_bytes);
      to = memory[i % 2].data();
    }
    step(parts[i], from, to);
    from = to;
  }
}

struct Resample final : Op<Resample> {
  static constexpr std::string_view kName = kOp;
  static constexpr ArgumentCount kArguments{1};
  ResampleOptions options;

  Resample() = default;
  explicit Resample(const ResampleOptions& given) : options(given) {}

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    detail::check_uniform(kName, "x", x);
    if (options.mode != ResampleMode::Nearest) {
      const DType dtype = x.dtype();
      QUANTA_SUPPORTED(
          dtype == DType::Float32 || dtype == DType::Float64 || dtype == DType::QUInt8 ||
              dtype == DType::QInt8 ||
              (!x.is_quantized() && !x.is_floating_point() && dtype != DType::Bool),
          "{}: x: expected Float32, Float64, an integer dtype, QUInt8 or QInt8 for this mode on "
          "the CPU, got {}",
          kName, dtype);
    }
    const std::size_t rank = x.sizes().size();
    QUANTA_CHECK(options.size.size() == rank, "{}: size: expected {} numbers, got {}", kName, rank,
                 options.size);
    QUANTA_CHECK(options.scale.empty() || options.scale.size() == rank,
                 "{}: scale: expected {} numbers, got {}", kName, rank, options.scale.size());
    QUANTA_CHECK(options.roi.empty() || options.roi.size() == 2 * rank,
                 "{}: roi: expected {} numbers, got {}", kName, 2 * rank, options.roi.size());
    for (const double scale : options.scale) {
      QUANTA_CHECK(std::isfinite(scale) && scale > 0.0,
                   "{}: scale: expected finite numbers > 0, got {}", kName, scale);
    }
    for (const double edge : options.roi) {
      QUANTA_CHECK(std::isfinite(edge), "{}: roi: expected finite numbers, got {}", kName, edge);
    }
    QUANTA_CHECK(std::isfinite(options.cubic_coeff_a),
                 "{}: cubic_coeff_a: expected a finite number, got {}", kName,
                 options.cubic_coeff_a);
    for (std::size_t d = 0; d < rank; ++d) {
      const std::int64_t size = options.size[d];
      const std::int64_t input = x.sizes()[d];
      QUANTA_CHECK(size >= 0 && size <= kMaxSize && input <= kMaxSize,
                   "{}: size: expected sizes in 0..{}, got {}", kName, kMaxSize, options.size);
      QUANTA_CHECK(input > 0 || size == 0, "{}: x: expected sizes > 0 to resample, got {}", kName,
                   x.sizes());
    }
    check_reach(x);
    const MemoryFormat format = x.suggested_format();
    out.arrange(0, format);
    out.add_like(x, options.size, format);
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& x = in[0];
    const Axes axes = axes_of(x, options, x.suggested_format());
    const std::size_t bytes = item_size(x.dtype());
    const std::string_view kernel = resample_all(x, axes, bytes, out[0]);
    if (options.position == ResamplePosition::CropAndResize) fill_outside(x, out[0]);
    return kernel;
  }

  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& x = in[0];
    const std::string_view kernel =
        cuda::resample(x, axes_of(x, options, x.suggested_format()), options, out[0]);
    if (options.position == ResamplePosition::CropAndResize) fill_outside(x, out[0]);
    return kernel;
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kWholeBytes; }

  OpWork work(const Arguments& in, std::span<const Tensor> out) const override {
    return {.bytes = static_cast<std::int64_t>(in[0].nbytes() + out[0].nbytes())};
  }

  static std::span<const AttributeInfo> attribute_table() {
    using Self = Resample;
    using Options = ResampleOptions;
    static constexpr std::array kTable{
        attribute<Self, &Self::options, &Options::size>("size"),
        attribute<Self, &Self::options, &Options::scale>("scale"),
        attribute<Self, &Self::options, &Options::mode>("mode"),
        attribute<Self, &Self::options, &Options::position>("position"),
        attribute<Self, &Self::options, &Options::rounding>("rounding"),
        attribute<Self, &Self::options, &Options::cubic_coeff_a>("cubic_coeff_a"),
        attribute<Self, &Self::options, &Options::exclude_outside>("exclude_outside"),
        attribute<Self, &Self::options, &Options::antialias>("antialias"),
        attribute<Self, &Self::options, &Options::roi>("roi"),
        attribute<Self, &Self::options, &Options::extrapolation_value>("extrapolation_value")};
    return kTable;
  }

 private:
  // A tiny scale beside a size that does not follow from it would ask for tables without end.
  void check_reach(const Tensor& x) const {
    if (!options.antialias || options.scale.empty()) return;
    for (std::size_t d = 0; d < options.scale.size(); ++d) {
      const double wanted = options.scale[d] * static_cast<double>(x.sizes()[d]);
      QUANTA_CHECK(wanted >= 0.5 || options.size[d] == 0,
                   "{}: scale: expected one that suits size {} of {}, got {}", kOp, options.size[d],
                   x.sizes()[d], options.scale[d]);
    }
  }

  std::string_view resample_all(const Tensor& x, const Axes& axes, std::size_t bytes,
                                const Tensor& out) const {
    if (parts_of(axes, 1).empty()) {
      out.copy_(x.detach());
      return "copy";
    }
    if (options.mode == ResampleMode::Nearest) {
      run_parts(parts_of(axes, 3), bytes, x.data_ptr(), out.data_ptr(),
                [&](const Part& part, const void* from, void* to) {
                  gather_part(part, axes, options, bytes, from, to);
                });
      return "gather";
    }
    if (const std::vector<Part> parts = blended_parts(x.dtype(), axes, options); !parts.empty()) {
      const auto zero_point =
          x.is_quantized() ? static_cast<std::int32_t>(x.impl()->quantizer.zero_point) : 0;
      run_parts(parts, bytes, x.data_ptr(), out.data_ptr(),
                [&](const Part& part, const void* from, void* to) {
                  blend_part(part, axes, options, x.dtype(), zero_point, from, to);
                });
      return "blend";
    }
    weigh_all(x, axes, out);
    return "weights";
  }

  void weigh_all(const Tensor& x, const Axes& axes, const Tensor& out) const {
    const std::vector<Part> parts = parts_of(axes, 1);
    if (working_dtype(x.dtype()) == DType::Float64) {
      weigh_as<double>(x, parts, axes, out);
    } else {
      weigh_as<float>(x, parts, axes, out);
    }
  }

  template <typename Float>
  void weigh_as(const Tensor& x, const std::vector<Part>& parts, const Axes& axes,
                const Tensor& out) const {
    const auto weigh = [&](const void* src, void* dst) {
      run_parts(parts, sizeof(Float), src, dst, [&](const Part& part, const void* from, void* to) {
        weigh_part(part, axes[part.first], options, static_cast<const Float*>(from),
                   static_cast<Float*>(to));
      });
    };
    if (x.is_floating_point()) return weigh(x.data_ptr(), out.data_ptr());
    detail::visit_ordered(kOp, x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      if constexpr (!std::is_floating_point_v<T>) {
        const auto* codes = static_cast<const T*>(x.data_ptr());
        std::vector<Float> from(static_cast<std::size_t>(x.numel()));
        std::vector<Float> to(static_cast<std::size_t>(out.numel()));
        for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<Float>(codes[i]);
        weigh(from.data(), to.data());
        const math::Fraction fraction = rest_of(x.dtype(), options);
        std::transform(to.begin(), to.end(), static_cast<T*>(out.data_ptr()),
                       [&](Float number) { return math::saturated<T>(number, fraction); });
      }
    });
  }

  void fill_outside(const Tensor& x, const Tensor& out) const {
    const Axes axes = axes_of(x, options, MemoryFormat::Contiguous);
    for (std::size_t d = 0; d < axes.size(); ++d) {
      for (const std::int64_t o : positions_outside(axes[d], options)) {
        out.select(static_cast<std::int64_t>(d), o).fill_(options.extrapolation_value);
      }
    }
  }
};

}  // namespace

void add_resample(Catalogue& catalogue) {
  catalogue.add(
      {.name = kOp, .header = "quanta/ops/interpolate.h", .dtypes = dtypes::kWholeBytes},
      [](DType dtype) {
        return sample_call(Resample({.size = {2, 3, 7, 3}}), {sample_tensor({2, 3, 5, 4}, dtype)});
      });
}

}  // namespace interpolation

Tensor resample(const Tensor& x, const ResampleOptions& options) {
  return run(interpolation::Resample(options), x);
}

}  // namespace quanta
