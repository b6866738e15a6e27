#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "quanta/observers/aimet/analyzer.h"
#include "quanta/observers/collector_kinds.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/quant_math.h"

namespace quanta::aimet {
namespace {

struct Candidate {
  float delta;
  float offset;
};

// The values that all codes are tried for, and how the error of one counts.
struct Noise {
  const Histogram<float>& histogram;
  float num_steps;
  float gamma;
  float p;

  float error(float difference) const {
    return p == 2.0F ? difference * difference : std::pow(std::fabs(difference), p);
  }

  float of(const Candidate& candidate) const {
    const float width = histogram.edges[1] - histogram.edges[0];
    const float first = histogram.edges[0] + width / 2.0F;
    double sum = 0.0;
    for (std::size_t i = 0; i < histogram.counts.size(); ++i) {
      if (histogram.counts[i] == 0.0F) continue;
      const float center = first + width * static_cast<float>(i);
      const float code = math::round_half_even(center / candidate.delta - candidate.offset);
      const float clipped = math::clamp(code, 0.0F, num_steps);
      const float value = (clipped + candidate.offset) * candidate.delta;
      float term = error(value - center) * histogram.counts[i];
      if (clipped != code) term *= gamma;
      sum += static_cast<double>(term);
    }
    return static_cast<float>(sum);
  }
};

std::vector<float> deltas(float largest, std::int64_t count, float at_least) {
  std::vector<float> all;
  for (std::int64_t k = 1; k <= count; ++k) {
    const float delta = largest * static_cast<float>(k) / static_cast<float>(count - 1);
    all.push_back(std::max(delta, at_least));
  }
  return all;
}

std::vector<Candidate> symmetric_candidates(float low, float high, std::int64_t num_steps,
                                            std::int64_t count) {
  const float largest = 2.0F * std::max(high, -low) / static_cast<float>(num_steps);
  const std::int64_t half = num_steps / 2;
  const auto offset = static_cast<float>(half - num_steps);
  std::vector<Candidate> all;
  for (const float delta : deltas(largest, count, minimum_scale(num_steps))) {
    all.push_back({delta, offset});
  }
  return all;
}

// Offsets in equal steps from -n to 0, and the one that the observed range has itself.
std::vector<float> offsets(std::int64_t num_steps, std::int64_t count, float observed) {
  const auto n = static_cast<double>(num_steps);
  const std::int64_t steps = std::min(num_steps + 2, count) - 2;
  const double step = n / static_cast<double>(steps);
  std::vector<float> all;
  for (std::int64_t i = 0; i <= steps; ++i) {
    all.push_back(math::round_half_even(static_cast<float>(-n + static_cast<double>(i) * step)));
  }
  all.push_back(observed);
  return all;
}

std::vector<Candidate> asymmetric_candidates(float low, float high, std::int64_t num_steps,
                                             std::int64_t delta_count, std::int64_t offset_count) {
  const auto n = static_cast<float>(num_steps);
  const float smallest = minimum_scale(num_steps);
  const float widest = (high - low) / n;
  const float observed = math::round_half_even(low / widest);
  const float observed_min = widest * observed;
  const float observed_max = observed_min + widest * n;
  std::vector<Candidate> all;
  for (const float delta : deltas(widest, delta_count, 0.0F)) {
    for (const float offset : offsets(num_steps, offset_count, observed)) {
      const float min = std::max(observed_min, delta * offset);
      const float max = std::min(observed_max, delta * offset + delta * n);
      const float clipped = std::max((max - min) / n, smallest);
      all.push_back({clipped, math::round_half_even(min / clipped)});
    }
  }
  return all;
}

}  // namespace

SqnrAnalyzerOptions SqnrAnalyzerOptions::tf_enhanced(const Dims& shape, const Dims& block_size) {
  SqnrAnalyzerOptions options;
  options.histogram = {shape, block_size, 512, 3.0};
  return options;
}

void describe(SqnrAnalyzerOptions& options, SettingFields& fields) {
  describe(options.histogram, fields);
  fields("asymmetric_delta_candidates", options.asymmetric_delta_candidates);
  fields("symmetric_delta_candidates", options.symmetric_delta_candidates);
  fields("offset_candidates", options.offset_candidates);
  fields("gamma", options.gamma);
  fields("p", options.p);
}

SqnrAnalyzer::SqnrAnalyzer(const Options& options)
    : HistogramAnalyzer("SqnrAnalyzer", options.histogram), options_(options) {
  QUANTA_CHECK(options.symmetric_delta_candidates >= 2 && options.asymmetric_delta_candidates >= 2,
               "SqnrAnalyzer: delta_candidates: expected at least 2 of either kind, got {} and {}",
               options.symmetric_delta_candidates, options.asymmetric_delta_candidates);
  QUANTA_CHECK(options.offset_candidates >= 3,
               "SqnrAnalyzer: offset_candidates: expected at least 3, got {}",
               options.offset_candidates);
  QUANTA_CHECK(options.gamma > 0.0 && options.p > 0.0,
               "SqnrAnalyzer: gamma: expected gamma and p > 0, got {} and {}", options.gamma,
               options.p);
}

std::shared_ptr<EncodingAnalyzer> SqnrAnalyzer::of_shape(const Dims& shape,
                                                         const Dims& block_size) const {
  Options options = options_;
  options.histogram.shape = shape;
  options.histogram.block_size = block_size;
  return std::make_shared<SqnrAnalyzer>(options);
}

HistogramAnalyzer::Ends SqnrAnalyzer::ends_of(const Histogram<float>& histogram,
                                              std::int64_t num_steps, bool symmetric) const {
  const auto n = static_cast<float>(num_steps);
  const float low = std::min(histogram.min, 0.0F);
  const float high = std::max(std::max(histogram.max, 0.0F), low + minimum_scale(num_steps) * n);
  const std::vector<Candidate> candidates =
      symmetric ? symmetric_candidates(low, high, num_steps, options_.symmetric_delta_candidates)
                : asymmetric_candidates(low, high, num_steps, options_.asymmetric_delta_candidates,
                                        options_.offset_candidates);
  const Noise noise{histogram, n, static_cast<float>(options_.gamma),
                    static_cast<float>(options_.p)};
  Candidate best = candidates.front();
  float least = std::numeric_limits<float>::infinity();
  for (const Candidate& candidate : candidates) {
    const float one = noise.of(candidate);
    if (one < least) {
      least = one;
      best = candidate;
    }
  }
  const float min = best.offset * best.delta;
  return {min, min + n * best.delta};
}

}  // namespace quanta::aimet

namespace quanta::detail {

std::vector<CollectorKind> kinds_of_sqnr_analyzer() {
  return {collector_kind<aimet::SqnrAnalyzer>("SqnrAnalyzer")};
}

}  // namespace quanta::detail
