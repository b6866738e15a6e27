// Quantizers that give a given encoding.

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "quanta/nn/aimet/affine_quantizer.h"
#include "quanta/nn/aimet/detail/affine_parameters.h"
#include "quanta/nn/aimet/float_quantizer.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"

namespace quanta::aimet {
namespace {

// How many neighbours of a number are tried for one that gives the wanted scale: a difference and a
// quotient, or two logarithms, are rounded on the way to it.
constexpr int kNeighbours = 16;

float neighbour(float value, int steps) {
  const float towards =
      steps < 0 ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::infinity();
  for (int i = 0; i < std::abs(steps); ++i) value = std::nextafter(value, towards);
  return value;
}

Tensor as_float32(const Tensor& x) { return x.detach().to(DType::Float32).contiguous(); }

template <typename Wanted>
const Wanted& require(std::string_view name, std::string_view kind, const Encoding& encoding) {
  const auto* wanted = dynamic_cast<const Wanted*>(&encoding);
  QUANTA_CHECK(wanted != nullptr, "{}: from_encodings: encoding: expected {}, got {} {} one", name,
               kind, encoding.granularity(), encoding.mapping());
  return *wanted;
}

AffineQuantizerOptions options_from(const AffineEncoding& encoding) {
  return {.shape = encoding.scale().sizes(),
          .qmin = encoding.grid().qmin(),
          .qmax = encoding.grid().qmax(),
          .symmetric = encoding.symmetric(),
          .block_size = encoding.block_size(),
          .zero_point_shift = encoding.zero_point_shift()};
}

// The ends of the grid, the upper one such that (max - min) / num_steps is the scale again.
Range range_of(const AffineEncoding& encoding) {
  const Grid& grid = encoding.grid();
  const Tensor scale = as_float32(encoding.scale());
  const Tensor offset = as_float32(encoding.offset());
  const auto end = [&](std::int64_t code) {
    return detail::map_two(scale, offset, [code](float step, float shift) {
      return step * (shift + static_cast<float>(code));
    });
  };
  const Tensor min = end(grid.qmin());
  const Tensor max = end(grid.qmax());
  const auto n = static_cast<float>(grid.num_steps());
  const auto* low = min.data<float>();
  const auto* steps = scale.data<float>();
  auto* high = static_cast<float*>(max.data_ptr());
  for (std::int64_t i = 0; i < max.numel(); ++i) {
    for (int distance = 0; distance <= 2 * kNeighbours; ++distance) {
      const int away = distance % 2 == 0 ? distance / 2 : -(distance + 1) / 2;
      const float candidate = neighbour(high[i], away);
      if ((candidate - low[i]) / n != steps[i]) continue;
      high[i] = candidate;
      break;
    }
  }
  return {min, max};
}

bool is_whole_within(const Tensor& offset, const Grid& grid) {
  const auto least = -static_cast<float>(grid.qmax());
  const auto most = -static_cast<float>(grid.qmin());
  const std::vector<float> values = offset.to_float_vector();
  return std::all_of(values.begin(), values.end(), [&](float value) {
    return value == std::trunc(value) && value >= least && value <= most;
  });
}

void put_range(AffineQuantizer& quantizer, const AffineEncoding& encoding) {
  const Tensor scale = as_float32(encoding.scale());
  const Tensor offset = as_float32(encoding.offset());
  const auto gives = [&](const std::optional<Tensor>& got, const Tensor& wanted) {
    return got.has_value() && got->equal(wanted);
  };
  const Range range = range_of(encoding);
  quantizer.set_range(range.min, range.max);
  if (!gives(quantizer.get_scale(), scale) || !gives(quantizer.get_offset(), offset)) {
    // Differences of float32 ends, divided by the steps, do not reach every scale.
    quantizer.use_scale_offset();
    const autograd::NoGradGuard guard;
    for (const auto& [name, parameter] : quantizer.named_parameters()) {
      parameter.copy_(name == "scale" ? scale : offset);
    }
  }
  QUANTA_CHECK(gives(quantizer.get_scale(), scale),
               "{}: from_encodings: scale: expected scales that a range gives (at least {}), got "
               "others",
               quantizer.to_string(), minimum_scale(encoding.num_steps()));
  QUANTA_CHECK(gives(quantizer.get_offset(), offset) &&
                   (encoding.symmetric() || is_whole_within(offset, encoding.grid())),
               "{}: from_encodings: offset: expected {}, got others", quantizer.to_string(),
               encoding.symmetric() ? "the middle of a symmetric grid"
                                    : "whole numbers from -qmax to -qmin");
}

template <typename T>
std::shared_ptr<T> affine_from(std::string_view name, const Encoding& encoding) {
  const auto& affine = require<AffineEncoding>(name, "an affine one", encoding);
  auto quantizer = nn::make_module<T>(options_from(affine));
  put_range(*quantizer, affine);
  return quantizer;
}

}  // namespace

std::shared_ptr<Quantize> Quantize::from_encodings(const Encoding& encoding) {
  return affine_from<Quantize>("Quantize", encoding);
}

std::shared_ptr<QuantizeDequantize> QuantizeDequantize::from_encodings(const Encoding& encoding) {
  if (dynamic_cast<const GroupedBlockEncoding*>(&encoding) != nullptr) {
    return GroupedBlockQuantizeDequantize::from_encodings(encoding);
  }
  return affine_from<QuantizeDequantize>("QuantizeDequantize", encoding);
}

std::shared_ptr<GroupedBlockQuantizeDequantize> GroupedBlockQuantizeDequantize::from_encodings(
    const Encoding& encoding) {
  const auto& grouped = require<GroupedBlockEncoding>("GroupedBlockQuantizeDequantize",
                                                      "one of grouped blocks", encoding);
  auto quantizer = nn::make_module<GroupedBlockQuantizeDequantize>(
      GroupedBlockOptions{{.shape = grouped.scale().sizes(),
                           .bitwidth = grouped.bitwidth(),
                           .symmetric = true,
                           .block_size = grouped.block_size()},
                          grouped.groups().decompressed_bw,
                          grouped.groups().block_grouping});
  put_range(*quantizer, grouped);
  return quantizer;
}

std::shared_ptr<FloatQuantizeDequantize> FloatQuantizeDequantize::from_encodings(
    const Encoding& encoding) {
  const auto& floating = require<FloatEncoding>("FloatQuantizeDequantize", "a float one", encoding);
  const FloatSpec& spec = floating.spec();
  auto quantizer = nn::make_module<FloatQuantizeDequantize>(FloatQuantizerOptions{
      .exponent_bits = spec.exponent_bits,
      .mantissa_bits = spec.mantissa_bits,
      .finite = spec.finite,
      .unsigned_zero = spec.unsigned_zero,
      .shape = floating.scale().sizes(),
      .block_size = floating.block_size(),
      .power_of_two_scale = floating.is_mxfp4() && !floating.meta_scale().defined(),
      .meta_scale = floating.meta_scale()});
  const Tensor scale = as_float32(floating.scale());
  const Tensor maxval = mul_scalar(scale, spec.max());
  // The neighbours are tried for all scales at once; each keeps its closest.
  const Tensor best = maxval.clone();
  auto* chosen = static_cast<float*>(best.data_ptr());
  std::vector<float> errors(static_cast<std::size_t>(scale.numel()),
                            std::numeric_limits<float>::infinity());
  for (int away = -kNeighbours; away <= kNeighbours; ++away) {
    const Tensor candidate = detail::map_two(
        maxval, maxval, [away](float value, float) { return neighbour(value, away); });
    const Tensor got = quantizer->scale_of(candidate);
    for (std::int64_t i = 0; i < scale.numel(); ++i) {
      const float error = std::fabs(got.data<float>()[i] - scale.data<float>()[i]);
      float& least = errors[static_cast<std::size_t>(i)];
      const bool is_first = error == least && away == 0;
      if (!(error < least) && !is_first) continue;
      least = error;
      chosen[i] = candidate.data<float>()[i];
    }
  }
  quantizer->set_maxval(best);
  return quantizer;
}

std::shared_ptr<Quantizer> quantizer_from(const Encoding& encoding) {
  if (encoding.mapping() == "float") return FloatQuantizeDequantize::from_encodings(encoding);
  return QuantizeDequantize::from_encodings(encoding);
}

}  // namespace quanta::aimet
