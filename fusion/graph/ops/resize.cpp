// Resize and Upsample in the forms of all opsets.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/op_table.h"
#include "quanta/fusion/graph/ops/arguments.h"
#include "quanta/fusion/graph/ops/families.h"
#include "quanta/ops/interpolate.h"
#include "quanta/runtime/check.h"

namespace quanta::graph {
namespace {

std::size_t at(std::int64_t d) { return static_cast<std::size_t>(d); }

/// The enumerator whose ONNX name an attribute has.
template <typename Enum>
Enum named(const NodeCall& call, std::string_view attribute, std::string_view otherwise) {
  const std::string given = call.text(attribute, otherwise);
  const auto names = enumerators(Enum{});
  const auto found = std::ranges::find(names, given);
  if (found == names.end()) {
    call.fail(
        fmt::format("{}: expected one of {}, got {}", attribute, fmt::join(names, ", "), given));
  }
  return static_cast<Enum>(found - names.begin());
}

/// An input that older files give as an empty tensor to leave it out.
std::vector<double> numbers_of(const NodeCall& call, std::size_t i, std::string_view name) {
  return call.has(i) ? call.numbers(i, name) : std::vector<double>();
}

std::int64_t checked_size(const NodeCall& call, std::string_view name, double size) {
  constexpr double kLimit = 2147483648.0;  // 2^31
  if (!(size >= 0.0 && size <= kLimit)) {
    call.fail(fmt::format("{}: expected sizes in 0..{}, got {}", name, kLimit, size));
  }
  return static_cast<std::int64_t>(size);
}

void check_count(const NodeCall& call, std::string_view name, std::size_t got, std::size_t wanted) {
  if (got != wanted) {
    call.fail(fmt::format("{}: expected {} numbers, got {}", name, wanted, got));
  }
}

/// Sizes by scales, floor(size * scale) in float32 as ONNX Runtime has it.
void set_scales(const NodeCall& call, const Tensor& x, const std::vector<std::int64_t>& axes,
                const std::vector<double>& scales, ResampleOptions& options) {
  check_count(call, "scales", scales.size(), axes.size());
  options.scale.assign(x.sizes().size(), 1.0);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::size_t d = at(axes[i]);
    if (!(scales[i] > 0.0 && std::isfinite(scales[i]))) {
      call.fail(fmt::format("scales: expected finite numbers > 0, got {}", scales[i]));
    }
    options.scale[d] = scales[i];
    options.size[d] = checked_size(call, "scales",
                                   static_cast<double>(std::floor(static_cast<float>(x.sizes()[d]) *
                                                                  static_cast<float>(scales[i]))));
  }
}

void set_sizes(const NodeCall& call, const Tensor& x, const std::vector<std::int64_t>& axes,
               const std::vector<std::int64_t>& sizes, ResampleOptions& options) {
  check_count(call, "sizes", sizes.size(), axes.size());
  const std::string policy = call.text("keep_aspect_ratio_policy", "stretch");
  if (policy == "stretch") {
    for (std::size_t i = 0; i < axes.size(); ++i) {
      options.size[at(axes[i])] = checked_size(call, "sizes", static_cast<double>(sizes[i]));
    }
    return;
  }
  const bool not_larger = policy == "not_larger";
  if (!not_larger && policy != "not_smaller") {
    call.fail("keep_aspect_ratio_policy: expected stretch, not_larger or not_smaller, got " +
              policy);
  }
  std::optional<double> scale;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::int64_t length = x.size(axes[i]);
    if (length == 0) call.fail(fmt::format("X: expected sizes > 0, got {}", x.sizes()));
    const double ratio =
        static_cast<double>(checked_size(call, "sizes", static_cast<double>(sizes[i]))) /
        static_cast<double>(length);
    scale = !scale ? ratio : not_larger ? std::min(*scale, ratio) : std::max(*scale, ratio);
  }
  if (!scale) return;
  options.scale.assign(x.sizes().size(), 1.0);
  for (const std::int64_t axis : axes) {
    options.scale[at(axis)] = *scale;
    options.size[at(axis)] =
        checked_size(call, "sizes", std::floor(*scale * static_cast<double>(x.size(axis)) + 0.5));
  }
}

ResampleMode mode_of(const NodeCall& call) {
  // Older exporters write torch's name.
  if (call.opset() < 10 && call.text("mode", "nearest") == "bilinear") return ResampleMode::Linear;
  return named<ResampleMode>(call, "mode", "nearest");
}

/// Upsample, and Resize of opset 10: positions o / scale, cut off (up where it gets smaller).
Outputs resize_by_scales(const NodeCall& call) {
  const Tensor& x = call.input(0, "X");
  ResampleOptions options;
  options.size = x.sizes();
  options.mode = mode_of(call);
  options.position = ResamplePosition::Asymmetric;
  options.rounding = ResampleRounding::FloorOrCeil;
  const std::vector<double> scales =
      call.opset() < 9 ? call.number_list("scales", {}) : call.numbers(1, "scales");
  set_scales(call, x, all_axes(x.dim()), scales, options);
  return {resample(x, options)};
}

void set_roi(const NodeCall& call, const Tensor& x, const std::vector<std::int64_t>& axes,
             ResampleOptions& options) {
  const std::vector<double> roi = numbers_of(call, 1, "roi");
  check_count(call, "roi", roi.size(), 2 * axes.size());
  options.roi.assign(2 * x.sizes().size(), 0.0);
  std::fill(options.roi.begin() + x.dim(), options.roi.end(), 1.0);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    options.roi[at(axes[i])] = roi[i];
    options.roi[at(axes[i] + x.dim())] = roi[axes.size() + i];
  }
}

Outputs resize(const NodeCall& call) {
  const Tensor& x = call.input(0, "X");
  ResampleOptions options;
  options.size = x.sizes();
  options.mode = mode_of(call);
  options.position = named<ResamplePosition>(call, "coordinate_transformation_mode", "half_pixel");
  options.rounding = named<ResampleRounding>(call, "nearest_mode", "round_prefer_floor");
  options.cubic_coeff_a = call.number("cubic_coeff_a", -0.75);
  options.exclude_outside = call.flag("exclude_outside", false);
  options.antialias = call.flag("antialias", false);
  options.extrapolation_value = call.number("extrapolation_value", 0.0);
  if (options.antialias && options.mode == ResampleMode::Nearest) {
    call.fail("antialias: expected 0 for mode nearest, got 1");
  }
  const std::vector<std::int64_t> axes =
      checked_axes(call, "axes", call.integer_list("axes", all_axes(x.dim())), x.dim());
  if (options.position == ResamplePosition::CropAndResize) set_roi(call, x, axes, options);
  const std::vector<double> scales = numbers_of(call, 2, "scales");
  const bool has_sizes = call.has(3) && call.input(3, "sizes").numel() > 0;
  if (scales.empty() == !has_sizes && x.dim() > 0) {
    call.fail(fmt::format("scales: expected either scales or sizes, got {}",
                          has_sizes ? "both" : "neither"));
  }
  if (has_sizes) {
    set_sizes(call, x, axes, call.integers(3, "sizes"), options);
  } else {
    set_scales(call, x, axes, scales, options);
  }
  return {resample(x, options)};
}

}  // namespace

void add_resize_ops(OpTable& table) {
  table.add({.name = "Resize",
             .evaluate = resize_by_scales,
             .rule = CodeRule::Pass,
             .since = 10,
             .last = 10});
  table.add({.name = "Resize", .evaluate = resize, .rule = CodeRule::Pass, .since = 11});
  table.add({.name = "Upsample", .evaluate = resize_by_scales, .rule = CodeRule::Pass, .since = 7});
}

}  // namespace quanta::graph
