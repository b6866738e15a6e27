#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/fusion/accuracy/detail/channel_sums.h"
#include "quanta/fusion/accuracy/detail/weighted_layers.h"
#include "quanta/fusion/accuracy/outliers.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

constexpr std::string_view kOp = "keep_outliers_in_float";

bool has_outliers(std::vector<float> largest, const FloatOutliersOptions& options) {
  const float most = *std::ranges::max_element(largest);
  const auto middle = largest.begin() + static_cast<std::ptrdiff_t>(largest.size() / 2);
  std::ranges::nth_element(largest, middle);
  return static_cast<double>(most) >= options.magnitude &&
         static_cast<double>(most) > options.ratio * static_cast<double>(*middle);
}

}  // namespace

namespace detail {

void keep_outliers_in_float(nn::Module& model, const QConfigMapping& qconfigs,
                            const CalibrationData& data, const FloatOutliersOptions& options) {
  QUANTA_CHECK(options.ratio >= 1.0 && options.magnitude >= 0.0,
               "{}: ratio, magnitude: expected numbers of at least 1 and 0, got {} and {}", kOp,
               options.ratio, options.magnitude);
  std::vector<accuracy::WeightedLayer> layers = accuracy::weighted_layers(model, qconfigs);
  std::erase_if(layers, [](const accuracy::WeightedLayer& layer) { return !layer.qconfig; });
  const std::vector<accuracy::ChannelSums> sums =
      accuracy::channel_sums(model, layers, accuracy::Side::Inputs, data.run, kOp);
  std::vector<std::string> kept;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (has_outliers(sums[i].largest, options)) {
      layers[i].unit->set_qconfig(std::nullopt);
      kept.push_back(layers[i].path);
    }
    data.report("outlier-float: " + layers[i].path, i + 1, layers.size());
  }
  if (options.kept != nullptr) *options.kept = std::move(kept);
}

}  // namespace detail

AccuracyMethod keep_outliers_in_float_method(const FloatOutliersOptions& options) {
  return {"outlier-float", [options](nn::Module& model, nn::Module&, const QConfigMapping& qconfigs,
                                     const CalibrationData& data) {
            detail::keep_outliers_in_float(model, qconfigs, data, options);
          }};
}

}  // namespace quanta
