#include "quanta/fusion/detail/report/figures.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "quanta/nn/conv.h"
#include "quanta/nn/weight_only/linear.h"
#include "quanta/observers/fake_quantize.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/dtype.h"
#include "quanta/runtime/state_dict.h"

namespace quanta::reporting {
namespace {

struct Layout {
  std::int64_t channels = 1, inner = 1;
};

// Channels along dimension 1, or one for all where there are fewer dimensions.
Layout layout_of(const Dims& sizes) {
  if (sizes.size() < 2) return {};
  Layout layout{.channels = sizes[1]};
  for (std::size_t d = 2; d < sizes.size(); ++d) layout.inner *= sizes[d];
  return layout;
}

}  // namespace

Tensor plain_floats(const Tensor& x) {
  const Tensor host = x.device().is_cpu() ? x : x.cpu();
  const Tensor floats = host.is_quantized() ? dequantize(QTensor(host)) : host;
  return floats.to(DType::Float32).contiguous();
}

void Figures::add(const Tensor& reference, const Tensor& value,
                  const std::optional<ReportGrid>& grid) {
  sqnr_.add(reference, value);
  const Tensor want = plain_floats(reference);
  const Tensor got = plain_floats(value);
  if (count_ == 0) {
    low_ = std::numeric_limits<double>::infinity();
    high_ = -low_;
  }
  const Layout layout = layout_of(want.sizes());
  const auto channels = static_cast<std::size_t>(layout.channels);
  if (channel_errors_.size() < channels) {
    channel_errors_.resize(channels, 0.0);
    channel_counts_.resize(channels, 0);
  }
  has_grid_ = has_grid_ || grid.has_value();
  const double lowest = grid ? grid->low() - 0.5 * grid->scale : 0.0;
  const double highest = grid ? grid->high() + 0.5 * grid->scale : 0.0;
  const float* a = want.data<float>();
  const float* b = got.data<float>();
  const std::int64_t rows = want.numel() == 0 ? 0 : want.numel() / layout.inner;
  for (std::int64_t row = 0; row < rows; ++row) {
    double channel_error = 0.0;
    for (std::int64_t i = row * layout.inner; i < (row + 1) * layout.inner; ++i) {
      const double x = a[i], y = b[i];
      const double error = y - x;
      reference_squares_ += x * x;
      value_squares_ += y * y;
      products_ += x * y;
      error_squares_ += error * error;
      channel_error += error;
      largest_error_ = std::max(largest_error_, std::fabs(error));
      low_ = std::min(low_, x);
      high_ = std::max(high_, x);
      if (grid && (x < lowest || x > highest)) ++saturated_;
    }
    const auto channel = static_cast<std::size_t>(row % layout.channels);
    channel_errors_[channel] += channel_error;
    channel_counts_[channel] += layout.inner;
  }
  count_ += want.numel();
}

double Figures::cosine() const {
  if (reference_squares_ == 0.0 && value_squares_ == 0.0) return 1.0;
  if (reference_squares_ == 0.0 || value_squares_ == 0.0) return 0.0;
  return products_ / (std::sqrt(reference_squares_) * std::sqrt(value_squares_));
}

double Figures::bias_share() const {
  if (!(error_squares_ > 0.0)) return 0.0;
  double taken = 0.0;
  for (std::size_t c = 0; c < channel_errors_.size(); ++c) {
    // The mean of few elements is not zero even where errors have no bias.
    constexpr std::int64_t kEnough = 32;
    if (channel_counts_[c] < kEnough) continue;
    taken += channel_errors_[c] * channel_errors_[c] / static_cast<double>(channel_counts_[c]);
  }
  return std::min(taken / error_squares_, 1.0);
}

std::optional<double> Figures::saturated() const {
  if (!has_grid_ || count_ == 0) return std::nullopt;
  return static_cast<double>(saturated_) / static_cast<double>(count_);
}

double Figures::rms() const {
  return count_ == 0 ? 0.0 : std::sqrt(reference_squares_ / static_cast<double>(count_));
}

void count_values(const Tensor& x, double low, double high, std::vector<std::int64_t>& bins) {
  const Tensor floats = plain_floats(x);
  const float* values = floats.data<float>();
  const auto count = static_cast<double>(bins.size());
  const double width = high > low ? (high - low) / count : 1.0;
  for (std::int64_t i = 0; i < floats.numel(); ++i) {
    const double place = std::floor((values[i] - low) / width);
    if (std::isnan(place)) continue;
    ++bins[static_cast<std::size_t>(std::clamp(place, 0.0, count - 1.0))];
  }
}

std::optional<ReportGrid> grid_of(const Tensor& x) {
  if (!x.defined() || !x.is_quantized()) return std::nullopt;
  const Quantizer& quantizer = x.impl()->quantizer;
  if (is_per_channel(quantizer.scheme)) return std::nullopt;
  const IntRange range = quant_range(x.dtype());
  return ReportGrid{.scale = quantizer.scale,
                    .zero_point = quantizer.zero_point,
                    .quant_min = range.min,
                    .quant_max = range.max};
}

std::optional<WeightReport> compare_weights(const Tensor& reference, const Tensor& value,
                                            std::int64_t axis) {
  if (!reference.defined() || !value.defined() || reference.sizes() != value.sizes() ||
      axis >= reference.dim()) {
    return std::nullopt;
  }
  const Tensor want = plain_floats(reference);
  const Tensor got = plain_floats(value);
  WeightReport report{.sqnr = sqnr(want, got), .channels = {}, .per_channel = {}};
  if (value.is_quantized()) report.per_channel = is_per_channel(value.impl()->quantizer.scheme);
  for (std::int64_t c = 0; c < want.size(axis); ++c) {
    const Tensor channel = want.select(axis, c).contiguous();
    WeightReport::Channel figures{.sqnr = sqnr(channel, got.select(axis, c))};
    const float* weights = channel.data<float>();
    const auto [low, high] = std::minmax_element(weights, weights + channel.numel());
    if (channel.numel() > 0) {
      figures.low = *low;
      figures.high = *high;
    }
    report.channels.push_back(figures);
  }
  return report;
}

Tensor weight_of(const nn::Module& module) {
  if (const auto* coded = dynamic_cast<const nn::weight_only::Linear*>(&module)) {
    return coded->weight();
  }
  Tensor weight;
  for (const auto& [name, tensor] : module.state_dict()) {
    const bool is_weight =
        name == "weight" || name == "0.weight" || name.ends_with("_packed_params/0");
    if (is_weight && tensor.defined() && tensor.dim() >= 2) {
      weight = tensor;
      break;
    }
  }
  if (!weight.defined() || weight.is_quantized()) return weight;
  for (const nn::Module::NamedObserver& named : module.named_observers()) {
    const auto* fake = dynamic_cast<const FakeQuantizeBase*>(named.observer.get());
    if (named.name == "weight_fake_quant" && fake != nullptr && fake->is_fake_quant_enabled()) {
      return named.observer->forward(weight.detach());
    }
  }
  return weight;
}

std::int64_t channel_axis(const nn::Module& module) {
  return module.type_name().find("ConvTranspose") != std::string::npos ? 1 : 0;
}

}  // namespace quanta::reporting
