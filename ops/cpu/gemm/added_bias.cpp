#include "quanta/ops/cpu/gemm/added_bias.h"

#include <cmath>
#include <limits>

#include "quanta/runtime/quant_math.h"

namespace quanta::cpu {
namespace {

/// A sum that two roundings could turn into different codes, and the right one.
struct DoubtfulSum {
  std::int32_t sum;
  std::int32_t code;
};

class Channel {
 public:
  Channel(const RequantizeParams& params, std::int64_t n, double reach)
      : params_(params),
        bias_(params.bias[n]),
        multiplier_(params.multiplier[n]),
        product_(static_cast<double>(bias_) * static_cast<double>(params.bias_factor)),
        reach_(reach) {}

  std::optional<float> bias_to_add() const {
    std::vector<DoubtfulSum> doubtful;
    if (!find_doubtful(doubtful)) return std::nullopt;
    float above = static_cast<float>(product_);
    float below = above;
    constexpr int kNeighbours = 4;
    for (int i = 0; i <= kNeighbours; ++i) {
      if (is_right(above, doubtful)) return above;
      if (is_right(below, doubtful)) return below;
      above = std::nextafter(above, std::numeric_limits<float>::infinity());
      below = std::nextafter(below, -std::numeric_limits<float>::infinity());
    }
    return std::nullopt;
  }

 private:
  std::int32_t code(std::int32_t sum, float bias, float factor) const {
    return math::requantize(sum, bias, factor, multiplier_, params_.zero_point, params_.min,
                            params_.max);
  }

  bool is_right(float bias, const std::vector<DoubtfulSum>& doubtful) const {
    for (const DoubtfulSum& at : doubtful) {
      if (code(at.sum, bias, 1.0F) != at.code) return false;
    }
    return true;
  }

  // The code grows with the sum in both ways of rounding, so only the places matter at which it
  // does. Both ways stay within a few 2^-24 of the exact value; sums that lie further from such a
  // place than 2^-20 have the same code in both.
  bool find_doubtful(std::vector<DoubtfulSum>& doubtful) const {
    const double steps = 1.0 / static_cast<double>(multiplier_);
    for (std::int32_t next = params_.min + 1; next <= params_.max; ++next) {
      const double place = (next - 0.5 - params_.zero_point) * steps - product_;
      const double radius = (std::fabs(place) + std::fabs(product_) + 1.0) * 0x1p-20;
      if (std::fabs(place) - radius > reach_) continue;
      // Such places lie too close together, or are no numbers.
      if (!(radius < 8.0)) return false;
      for (double sum = std::ceil(place - radius); sum <= place + radius; sum += 1.0) {
        const auto integer = static_cast<std::int32_t>(sum);
        doubtful.push_back({integer, code(integer, bias_, params_.bias_factor)});
      }
    }
    return true;
  }

  const RequantizeParams& params_;
  float bias_;
  float multiplier_;
  double product_;
  double reach_;
};

}  // namespace

std::optional<std::vector<float>> biases_to_add(const RequantizeParams& params,
                                                std::int64_t channels, double reach) {
  if (params.bias == nullptr) return std::vector<float>(static_cast<std::size_t>(channels), 0.0F);
  if (params.bias_factor == 1.0F) return std::vector<float>(params.bias, params.bias + channels);
  std::vector<float> result;
  for (std::int64_t n = 0; n < channels; ++n) {
    const std::optional<float> bias = Channel(params, n, reach).bias_to_add();
    if (!bias) return std::nullopt;
    result.push_back(*bias);
  }
  return result;
}

}  // namespace quanta::cpu
