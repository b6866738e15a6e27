#include "quanta/observers/mse_observer.h"

#include <cmath>

#include "quanta/observers/collector_kinds.h"
#include "quanta/observers/detail/observer_factory.h"
#include "quanta/observers/detail/reduce.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/cat.h"
#include "quanta/ops/fake_quantize.h"
#include "quanta/ops/reduce.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

// torchao's start of the search.
constexpr float kLargestLoss = 1e9F;

UniformSettings settings_from(const AffineQuantizedMSEObserverOptions& options) {
  return {.dtype = options.dtype,
          .qscheme = options.qscheme,
          .reduce_range = options.reduce_range,
          .quant_min = options.quant_min,
          .quant_max = options.quant_max,
          .eps = options.eps};
}

std::optional<std::int64_t> channel_axis(const AffineQuantizedMSEObserverOptions& options) {
  return is_per_channel(options.qscheme) ? std::optional(options.ch_axis) : std::nullopt;
}

// What quantizing loses of channels x elements: the mean of the squares for each channel.
Tensor losses(const Tensor& rows, const ObservedQParams& qparams, IntRange range) {
  const Device device = rows.device();
  const Tensor quantized = fake_quantize_per_channel_affine(
      rows, qparams.scale.to(device), qparams.zero_point.to(device), 0, range.min, range.max);
  const Tensor lost = sub(quantized, rows);
  return mean(mul(lost, lost), {1});
}

}  // namespace

AffineQuantizedMSEObserver::AffineQuantizedMSEObserver(const Options& options)
    : RangeObserver("AffineQuantizedMSEObserver", settings_from(options), channel_axis(options),
                    std::nullopt),
      options_(options) {
  QUANTA_CHECK(options.steps >= 1, "{}: steps: expected at least 1, got {}", name(), options.steps);
  QUANTA_SUPPORTED(options.qscheme != QScheme::PerChannelAffineFloatQParams,
                   "{}: qscheme: expected a scheme with integer zero points, got {}", name(),
                   options.qscheme);
}

Digest AffineQuantizedMSEObserver::digest(const Tensor& x) const {
  require_floating(x, Devices::All);
  if (x.numel() == 0 || (options_.run_once && has_data())) return {};

  const autograd::NoGradGuard no_grad;
  Tensor rows = detail::dense_floats(x);
  if (is_per_channel(qscheme_)) {
    const std::int64_t axis = wrap_dim(ch_axis(), x.dim(), name(), "ch_axis");
    rows = rows.transpose(0, axis).contiguous().reshape({x.size(axis), -1});
  } else {
    rows = rows.reshape({1, -1});
  }
  ValueRange best = detail::channel_range(rows, 0);
  detail::require_finite(name(), best);
  const std::size_t channels = best.min.size();
  std::vector<float> largest(channels);
  for (std::size_t c = 0; c < channels; ++c) {
    largest[c] = std::max(std::abs(best.min[c]), best.max[c]);
  }

  const auto end_of = [&](std::size_t channel, std::int64_t step) {
    return largest[channel] / static_cast<float>(options_.steps) * static_cast<float>(step);
  };
  const QParamsRule rule = this->rule();
  // All losses come back at once. A step still waits once, for the check of its zero points.
  std::vector<Tensor> of_steps;
  ValueRange tried = best;
  for (std::int64_t i = 1; i <= options_.steps; ++i) {
    for (std::size_t c = 0; c < channels; ++c) {
      tried.max[c] = end_of(c, i);
      tried.min[c] = -tried.max[c];
    }
    of_steps.push_back(losses(rows, qparams(tried.min, tried.max, rule), range_));
  }
  const std::vector<float> loss = cat(of_steps).to_float_vector();
  for (std::size_t c = 0; c < channels; ++c) {
    float least = kLargestLoss;
    for (std::int64_t i = 1; i <= options_.steps; ++i) {
      const float here = loss[static_cast<std::size_t>(i - 1) * channels + c];
      if (!(here < least)) continue;
      least = here;
      best.max[c] = end_of(c, i);
      best.min[c] = -best.max[c];
    }
  }
  return {.range = std::move(best)};
}

bool AffineQuantizedMSEObserver::absorb(const Digest& digest) {
  if (options_.run_once && has_data()) return true;
  const ValueRange& best = digest.range;
  const Dims sizes{static_cast<std::int64_t>(best.min.size())};
  set_range(Tensor::from_values(best.min, sizes), Tensor::from_values(best.max, sizes));
  return true;
}

bool AffineQuantizedMSEObserver::join(Digest& digest, const Digest& next) const {
  if (!options_.run_once) digest = next;
  return true;
}

void AffineQuantizedMSEObserver::set_batch_reduction(BatchReduction) {
  throw UnsupportedError(
      fmt::format("{}: set_batch_reduction: expected an observer of the tensors' ranges "
                  "(MinMaxObserver and its relatives), got one that searches all values",
                  name()));
}

void AffineQuantizedMSEObserver::merge(const Collector& other) {
  require_same_kind(other);
  throw UnsupportedError(
      fmt::format("{}: merge: expected an observer that does not depend on the order of batches: "
                  "MinMaxObserver, PerChannelMinMaxObserver and HistogramObserver can be merged",
                  name()));
}

// Settings and factories -------------------------------------------------------------------------

void describe(AffineQuantizedMSEObserverOptions& options, SettingFields& fields) {
  fields("dtype", options.dtype);
  fields("qscheme", options.qscheme);
  fields("ch_axis", options.ch_axis);
  fields("steps", options.steps);
  fields("run_once", options.run_once);
  fields("reduce_range", options.reduce_range);
  fields("quant_min", options.quant_min);
  fields("quant_max", options.quant_max);
  fields("eps", options.eps);
}

ObserverFactory AffineQuantizedMSEObserver::with_args(const Options& options) {
  return detail::observer_factory<AffineQuantizedMSEObserver>(options);
}

namespace detail {

std::vector<CollectorKind> kinds_of_mse_observer() {
  return {collector_kind<AffineQuantizedMSEObserver>("AffineQuantizedMSEObserver")};
}

}  // namespace detail
}  // namespace quanta
