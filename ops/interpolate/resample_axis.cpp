#include "quanta/ops/interpolate/resample_axis.h"

#include <algorithm>
#include <cmath>

namespace quanta::interpolation {
namespace {

// In float32 where ONNX Runtime is: positions near a tie fall to the same side.
float position_of(const ResampleAxis& axis, ResamplePosition kind, std::int64_t index) {
  const auto o = static_cast<float>(index);
  const auto scale = static_cast<float>(axis.scale);
  const auto last = static_cast<float>(axis.input - 1);
  const auto output = static_cast<float>(axis.scale * static_cast<double>(axis.input));
  switch (kind) {
    case ResamplePosition::HalfPixel:
      return (o + 0.5F) / scale - 0.5F;
    case ResamplePosition::HalfPixelSymmetric: {
      const float adjustment = static_cast<float>(axis.output) / output;
      const float center = static_cast<float>(axis.input) / 2.0F;
      return center * (1.0F - adjustment) + (o + 0.5F) / scale - 0.5F;
    }
    case ResamplePosition::PytorchHalfPixel:
      return axis.output > 1 ? (o + 0.5F) / scale - 0.5F : 0.0F;
    case ResamplePosition::AlignCorners: {
      // Corners meet where the size counts, as torch and ONNX Runtime have it; ONNX's own cases,
      // all of which get smaller, count size * scale.
      const float length = axis.scale > 1.0 ? static_cast<float>(axis.output) : output;
      return length == 1.0F ? 0.0F : o * last / (length - 1.0F);
    }
    case ResamplePosition::Asymmetric:
      return o / scale;
    case ResamplePosition::CropAndResize: {
      const auto start = static_cast<float>(axis.roi_start);
      const auto end = static_cast<float>(axis.roi_end);
      if (axis.output <= 1) return 0.5F * (start + end) * last;
      return start * last + o * (end - start) * last / static_cast<float>(axis.output - 1);
    }
    case ResamplePosition::HalfPixelNearest:
      return (o + 0.5F) / scale;
  }
  return o;
}

// Within what std::int64_t holds, NaN (a scale of 0 over 0) at the front; every source is clamped
// to the input anyway.
std::int64_t to_index(float position) {
  constexpr float kLimit = 1e15F;
  return position == position ? static_cast<std::int64_t>(std::clamp(position, -kLimit, kLimit))
                              : 0;
}

float rounded(float position, ResampleRounding rounding, double scale) {
  switch (rounding) {
    case ResampleRounding::RoundPreferFloor:
      return std::ceil(position - 0.5F);
    case ResampleRounding::RoundPreferCeil:
      return std::floor(position + 0.5F);
    case ResampleRounding::Floor:
      return std::floor(position);
    case ResampleRounding::Ceil:
      return std::ceil(position);
    case ResampleRounding::FloorOrCeil:
      return scale < 1.0 ? std::ceil(position) : std::floor(position);
  }
  return position;
}

// Keys's cubic of parameter a.
double cubic(double distance, double a) {
  const double x = std::fabs(distance);
  if (x <= 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
  if (x < 2.0) return ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a;
  return 0.0;
}

Part part_of(const Axes& axes, std::size_t first, std::size_t count) {
  Part part{first, count, {}};
  part.geometry.batch = 1;
  part.geometry.channels = 1;
  for (std::size_t d = 0; d < first; ++d) part.geometry.batch *= axes[d].output;
  for (std::size_t d = first + count; d < axes.size(); ++d) {
    part.geometry.channels *= axes[d].input;
  }
  // Single elements are copied without memcpy.
  part.geometry.channels_last = part.geometry.channels != 1;
  for (std::size_t i = 0; i < count; ++i) {
    part.geometry.input[3 - count + i] = axes[first + i].input;
    part.geometry.output[3 - count + i] = axes[first + i].output;
  }
  return part;
}

}  // namespace

std::vector<std::int64_t> nearest_sources(const ResampleAxis& axis,
                                          const ResampleOptions& options) {
  std::vector<std::int64_t> sources(static_cast<std::size_t>(axis.output));
  for (std::int64_t o = 0; o < axis.output; ++o) {
    const float source = axis.is_kept() ? static_cast<float>(o)
                                        : rounded(position_of(axis, options.position, o),
                                                  options.rounding, axis.scale);
    sources[static_cast<std::size_t>(o)] =
        axis.is_kept() ? o : std::clamp<std::int64_t>(to_index(source), 0, axis.input - 1);
  }
  return sources;
}

WeightedSources weighted_sources(const ResampleAxis& axis, const ResampleOptions& options) {
  const bool is_cubic = options.mode == ResampleMode::Cubic;
  const double reach = is_cubic ? 2.0 : 1.0;
  // Antialiasing stretches the kernel over what falls into one output position.
  const double stretch = options.antialias ? std::min(axis.scale, 1.0) : 1.0;
  const auto first = static_cast<std::int64_t>(std::floor(-reach / stretch)) + 1;
  WeightedSources result;
  result.count = 2 - 2 * first;
  const auto count = static_cast<std::size_t>(result.count);
  const auto output = static_cast<std::size_t>(axis.output);
  result.sources.resize(output * count);
  result.weights.resize(output * count);
  std::vector<double> weights(count);
  for (std::size_t o = 0; o < output; ++o) {
    const float position = position_of(axis, options.position, static_cast<std::int64_t>(o));
    const std::int64_t base = to_index(std::ceil(position)) - 1;
    const double ratio = static_cast<double>(position) - static_cast<double>(base);
    double sum = 0.0;
    for (std::size_t k = 0; k < count; ++k) {
      const std::int64_t offset = first + static_cast<std::int64_t>(k);
      const double distance = (static_cast<double>(offset) - ratio) * stretch;
      const std::int64_t source = base + offset;
      weights[k] = is_cubic ? cubic(distance, options.cubic_coeff_a)
                            : std::max(0.0, 1.0 - std::fabs(distance));
      if (options.exclude_outside && (source < 0 || source >= axis.input)) weights[k] = 0.0;
      sum += weights[k];
      result.sources[o * count + k] = std::clamp<std::int64_t>(source, 0, axis.input - 1);
    }
    const bool normalise = (options.antialias || options.exclude_outside) && sum != 0.0;
    for (std::size_t k = 0; k < count; ++k) {
      result.weights[o * count + k] = static_cast<float>(normalise ? weights[k] / sum : weights[k]);
    }
  }
  return result;
}

std::vector<std::int64_t> positions_outside(const ResampleAxis& axis,
                                            const ResampleOptions& options) {
  std::vector<std::int64_t> outside;
  if (options.position != ResamplePosition::CropAndResize || axis.is_kept()) return outside;
  for (std::int64_t o = 0; o < axis.output; ++o) {
    const float position = position_of(axis, options.position, o);
    if (!(position >= 0.0F && position <= static_cast<float>(axis.input - 1))) outside.push_back(o);
  }
  return outside;
}

std::vector<Part> parts_of(const Axes& axes, std::size_t most) {
  std::vector<Part> parts;
  std::size_t d = 0;
  while (d < axes.size()) {
    if (axes[d].is_kept()) {
      ++d;
      continue;
    }
    std::size_t end = std::min(d + most, axes.size());
    while (axes[end - 1].is_kept()) --end;
    parts.push_back(part_of(axes, d, end - d));
    d = end;
  }
  return parts;
}

std::vector<Part> blended_parts(DType dtype, const Axes& axes, const ResampleOptions& options) {
  const bool is_code = is_quantized(dtype);
  if (options.mode != ResampleMode::Linear || options.antialias ||
      (!is_code && dtype != DType::Float32)) {
    return {};
  }
  std::vector<Part> parts = parts_of(axes, 3);
  // Codes are rounded once.
  if (is_code && parts.size() != 1) parts.clear();
  return parts;
}

std::vector<math::LinearTap> taps_of(const ResampleAxis& axis, const ResampleOptions& options) {
  std::vector<math::LinearTap> taps(static_cast<std::size_t>(axis.output));
  if (axis.is_kept()) {
    for (std::int64_t o = 0; o < axis.output; ++o) taps[static_cast<std::size_t>(o)] = {o, o, 1, 0};
    return taps;
  }
  const WeightedSources sources = weighted_sources(axis, options);
  for (std::size_t o = 0; o < taps.size(); ++o) {
    taps[o] = {sources.sources[2 * o], sources.sources[2 * o + 1], sources.weights[2 * o],
               sources.weights[2 * o + 1]};
  }
  return taps;
}

DType working_dtype(DType dtype) {
  const bool wide = dtype == DType::Float64 || dtype == DType::Int32 || dtype == DType::Int64;
  return wide ? DType::Float64 : DType::Float32;
}

math::Fraction rest_of(DType dtype, const ResampleOptions& options) {
  // As ONNX Runtime has it for plain integers.
  const bool drops =
      !is_quantized(dtype) && options.mode == ResampleMode::Linear && !options.antialias;
  return drops ? math::Fraction::Dropped : math::Fraction::Rounded;
}

}  // namespace quanta::interpolation
