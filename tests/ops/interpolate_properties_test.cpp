#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "elementwise_support.h"
#include "quanta/ops/interpolate.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/random.h"

// Every mode over random sizes and factors, beside plain loops.

namespace quanta {
namespace {

using test::random_codes;

constexpr std::int64_t kRounds = 150;

struct Draw {
  Tensor x;
  InterpolateOptions options;
  std::int64_t spatial;
  Dims output;  // of the spatial dimensions
};

std::int64_t output_of(std::int64_t input, double factor) {
  return static_cast<std::int64_t>(std::floor(static_cast<double>(input) * factor));
}

Draw draw(Generator& generator, std::int64_t spatial, DType dtype) {
  Draw result{{}, {}, spatial, {}};
  Dims sizes{generator.integer(1, 2), generator.integer(1, 19)};
  for (std::int64_t d = 0; d < spatial; ++d) sizes.push_back(generator.integer(2, 7));
  result.x = is_quantized(dtype)
                 ? Tensor(random_codes(sizes, dtype, 0.1, generator.integer(0, 90), generator))
                 : randn(sizes, generator).to(dtype);
  if (generator.integer(0, 1) == 0) {
    result.x = result.x.contiguous(MemoryFormat::ChannelsLast);
  }
  // One factor for all dimensions, one for each, or sizes.
  const std::int64_t kind = generator.integer(0, 2);
  for (std::int64_t d = 0; d < spatial; ++d) {
    const std::int64_t input = sizes[static_cast<std::size_t>(d + 2)];
    if (kind == 0) {
      result.output.push_back(generator.integer(1, 13));
      continue;
    }
    std::vector<double>& factors = result.options.scale_factor;
    if (kind == 2 || d == 0) {
      factors.push_back(0.1 * static_cast<double>(generator.integer(5, 31)));
    }
    result.output.push_back(output_of(input, factors.back()));
  }
  if (kind == 0) result.options.size = result.output;
  return result;
}

// Input positions for each output position along a spatial dimension.
float scale_of(const Draw& drawn, std::size_t d) {
  const std::vector<double>& factors = drawn.options.scale_factor;
  if (!factors.empty()) return static_cast<float>(1.0 / factors[factors.size() == 1 ? 0 : d]);
  return static_cast<float>(drawn.x.sizes()[d + 2]) / static_cast<float>(drawn.output[d]);
}

// Calls visit(index of the result's element, n, c, output position of each dimension).
template <typename Visit>
void for_each_element(const Draw& drawn, Visit&& visit) {
  std::array<std::int64_t, 3> size{1, 1, 1};
  const auto spatial = static_cast<std::size_t>(drawn.spatial);
  for (std::size_t d = 0; d < spatial; ++d) size[d] = drawn.output[d];
  std::size_t i = 0;
  for (std::int64_t plane = 0; plane < drawn.x.size(0) * drawn.x.size(1); ++plane) {
    for (std::int64_t a = 0; a < size[0]; ++a) {
      for (std::int64_t b = 0; b < size[1]; ++b) {
        for (std::int64_t c = 0; c < size[2]; ++c) visit(i++, plane, std::array{a, b, c});
      }
    }
  }
}

std::vector<float> plain_values(const Tensor& x) {
  return x.is_quantized() ? int_repr(x.as_quantized()).to_float_vector() : x.to_float_vector();
}

std::size_t place_of(const Draw& drawn, std::int64_t plane, const Dims& position) {
  std::int64_t place = plane;
  for (std::size_t d = 0; d < position.size(); ++d) {
    place = place * drawn.x.sizes()[d + 2] + position[d];
  }
  return static_cast<std::size_t>(place);
}

// torch's rule where whole ratios do not count.
std::int64_t nearest_of(const Draw& drawn, std::size_t d, std::int64_t o, bool exact,
                        bool whole_ratios) {
  const std::int64_t input = drawn.x.sizes()[d + 2];
  if (whole_ratios && !exact) {
    if (drawn.output[d] == input) return o;
    if (drawn.output[d] == 2 * input) return o / 2;
  }
  const float position = (static_cast<float>(o) + (exact ? 0.5F : 0.0F)) * scale_of(drawn, d);
  return std::min(static_cast<std::int64_t>(std::floor(position)), input - 1);
}

bool has_whole_ratios(const Draw& drawn) {
  const Tensor& x = drawn.x;
  if (drawn.spatial == 2) return !x.is_quantized();  // all results here are small
  return drawn.spatial == 3 && !x.is_quantized() && x.size(1) > 3 &&
         x.is_contiguous(MemoryFormat::ChannelsLast);
}

}  // namespace

TEST_CASE("interpolate: the nearest modes copy what plain loops copy, whatever the factors") {
  Generator generator(191);
  for (std::int64_t round = 0; round < kRounds; ++round) {
    constexpr std::array kTypes{DType::Float32, DType::QUInt8, DType::QInt8, DType::Float64};
    const DType dtype = kTypes[static_cast<std::size_t>(generator.integer(0, 3))];
    Draw drawn = draw(generator, generator.integer(1, 3), dtype);
    const bool exact = generator.integer(0, 1) == 0;
    drawn.options.mode = exact ? InterpolateMode::NearestExact : InterpolateMode::Nearest;
    CAPTURE(round);
    CAPTURE(drawn.x.sizes());
    const Tensor y = interpolate(drawn.x, drawn.options);
    const std::vector<float> values = plain_values(drawn.x);
    const std::vector<float> got = plain_values(y);
    // Codes whose sizes stay are copied.
    const bool stays =
        dtype != DType::Float32 && is_quantized(dtype) && y.sizes() == drawn.x.sizes();
    std::size_t different = 0;
    for_each_element(drawn, [&](std::size_t i, std::int64_t plane, const auto& o) {
      Dims from;
      for (std::size_t d = 0; d < static_cast<std::size_t>(drawn.spatial); ++d) {
        from.push_back(stays ? o[d] : nearest_of(drawn, d, o[d], exact, has_whole_ratios(drawn)));
      }
      if (got[i] != values[place_of(drawn, plane, from)]) ++different;
    });
    CHECK(different == 0);
  }
}

TEST_CASE("interpolate: the linear modes blend what plain loops blend, whatever the factors") {
  Generator generator(192);
  for (std::int64_t round = 0; round < kRounds; ++round) {
    const std::int64_t spatial = generator.integer(1, 3);
    const bool is_float = spatial != 2 || generator.integer(0, 2) == 0;
    Draw drawn = draw(generator, spatial, is_float ? DType::Float32 : DType::QUInt8);
    constexpr std::array kModes{InterpolateMode::Linear, InterpolateMode::Bilinear,
                                InterpolateMode::Trilinear};
    drawn.options.mode = kModes[static_cast<std::size_t>(spatial - 1)];
    drawn.options.align_corners = generator.integer(0, 1) == 0;
    CAPTURE(round);
    CAPTURE(drawn.x.sizes());
    const Tensor y = interpolate(drawn.x, drawn.options);
    const bool stays = !is_float && y.sizes() == drawn.x.sizes();
    const std::vector<float> values = plain_values(drawn.x);
    const std::vector<float> got = plain_values(y);
    double worst = 0.0;
    for_each_element(drawn, [&](std::size_t i, std::int64_t plane, const auto& o) {
      double sum = 0.0;
      for (int corner = 0; corner < 1 << spatial; ++corner) {
        double weight = 1.0;
        Dims from;
        for (std::size_t d = 0; d < static_cast<std::size_t>(spatial); ++d) {
          const std::int64_t input = drawn.x.sizes()[d + 2];
          const std::int64_t output = drawn.output[d];
          const auto at = static_cast<double>(o[d]);
          double source = (at + 0.5) * static_cast<double>(scale_of(drawn, d)) - 0.5;
          if (drawn.options.align_corners) {
            source = output > 1
                         ? at * static_cast<double>(input - 1) / static_cast<double>(output - 1)
                         : 0.0;
          } else if (stays || (is_float && input == output)) {
            source = at;  // whatever the factor
          }
          source = std::clamp(source, 0.0, static_cast<double>(input - 1));
          const auto low = static_cast<std::int64_t>(source);
          const bool is_high = (corner >> d & 1) != 0;
          const double high_weight = source - static_cast<double>(low);
          weight *= is_high ? high_weight : 1.0 - high_weight;
          from.push_back(std::min(low + (is_high ? 1 : 0), input - 1));
        }
        sum += weight * static_cast<double>(values[place_of(drawn, plane, from)]);
      }
      worst = std::max(worst, std::abs(static_cast<double>(got[i]) - sum));
    });
    CHECK(worst < (is_float ? 2e-5 : 0.501));
  }
}

TEST_CASE("interpolate: an infinity does not reach its neighbours where a size is kept") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const Tensor x = Tensor::from_values({1, kInfinity, 3}, {1, 1, 3});
  const std::vector<float> y =
      interpolate(x, {.scale_factor = {1.3}, .mode = InterpolateMode::Linear}).to_float_vector();
  CHECK(y[0] == 1.0F);
  CHECK(y[2] == 3.0F);
}

}  // namespace quanta
