#include "quanta/fusion/training_report.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "quanta/nn/detail/child_path.h"
#include "quanta/observers/fake_quantize.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

struct Named {
  std::string name;
  bool is_weight = false;
  std::shared_ptr<Observer> observer;
};

std::vector<Named> fake_quantizers(const nn::Module& model) {
  std::vector<Named> found;
  for (const auto& [path, module] : model.named_modules()) {
    for (const nn::Module::NamedObserver& named : module->named_observers()) {
      if (dynamic_cast<const FakeQuantizeBase*>(named.observer.get()) == nullptr) continue;
      const bool is_weight = named.name.starts_with("weight");
      found.push_back({nn::detail::child_path(path, named.name), is_weight, named.observer});
    }
  }
  return found;
}

struct Ends {
  double low = std::numeric_limits<double>::quiet_NaN();
  double high = std::numeric_limits<double>::quiet_NaN();
};

// What the codes reach, over all channels; NaN for quantizers without codes.
Ends ends_of(const Observer& observer) {
  Ends ends;
  ObservedQParams qparams;
  try {
    if (!observer.has_data()) return ends;
    qparams = observer.calculate_qparams();
  } catch (const UnsupportedError&) {  // a format without codes
    return ends;
  }
  const std::vector<float> scales = qparams.scale.cpu().to_float_vector();
  const std::vector<float> zero_points =
      qparams.zero_point.cpu().to(DType::Float32).to_float_vector();
  for (std::size_t c = 0; c < scales.size(); ++c) {
    const double zero_point = zero_points[std::min(c, zero_points.size() - 1)];
    const double low = scales[c] * (static_cast<double>(observer.quant_min()) - zero_point);
    const double high = scales[c] * (static_cast<double>(observer.quant_max()) - zero_point);
    ends.low = c == 0 ? low : std::min(ends.low, low);
    ends.high = c == 0 ? high : std::max(ends.high, high);
  }
  return ends;
}

// Every second one.
void halve(std::vector<double>& values) {
  for (std::size_t i = 0; 2 * i < values.size(); ++i) values[i] = values[2 * i];
  values.resize((values.size() + 1) / 2);
}

}  // namespace

void TrainingReport::note_ranges(const nn::Module& model) {
  const std::vector<Named> found = fake_quantizers(model);
  if (steps_ == 0) {
    ranges_.clear();
    for (const Named& named : found) ranges_.push_back({named.name, named.is_weight, {}, {}});
  }
  const bool are_same = std::ranges::equal(found, ranges_, {}, &Named::name, &Range::name);
  QUANTA_CHECK(
      are_same,
      "TrainingReport::step: model: expected the {} fake quantizers of the steps before, got "
      "{} others",
      ranges_.size(), found.size());
  std::vector<Ends> ends;
  for (const Named& named : found) ends.push_back(ends_of(*named.observer));
  for (std::size_t i = 0; i < found.size(); ++i) {
    ranges_[i].low.push_back(ends[i].low);
    ranges_[i].high.push_back(ends[i].high);
  }
}

void TrainingReport::thin_out() {
  for (std::size_t i = 0; 2 * i < loss_sums_.size(); ++i) {
    const std::size_t second = 2 * i + 1;
    loss_sums_[i] = loss_sums_[2 * i] + (second < loss_sums_.size() ? loss_sums_[second] : 0.0);
  }
  loss_sums_.resize((loss_sums_.size() + 1) / 2);
  for (Range& range : ranges_) {
    halve(range.low);
    halve(range.high);
  }
  stride_ *= 2;
}

void TrainingReport::step(const nn::Module& model, double loss) {
  if (steps_ % stride_ == 0) {
    if (loss_sums_.size() == kMostPoints) thin_out();
    note_ranges(model);
    loss_sums_.push_back(0.0);
  }
  loss_sums_.back() += loss;
  ++steps_;
}

void TrainingReport::metric(std::string_view name, double value) {
  auto found = std::ranges::find(metrics_, name, &Metric::name);
  if (found == metrics_.end()) {
    metrics_.push_back({std::string(name), {}, {}});
    found = metrics_.end() - 1;
  }
  found->steps.push_back(steps_);
  found->values.push_back(value);
}

void TrainingReport::event(std::string text) { events_.push_back({steps_, std::move(text)}); }

std::vector<double> TrainingReport::losses() const {
  std::vector<double> means;
  for (std::size_t i = 0; i < loss_sums_.size(); ++i) {
    const std::int64_t begin = static_cast<std::int64_t>(i) * stride_;
    means.push_back(loss_sums_[i] / static_cast<double>(std::min(stride_, steps_ - begin)));
  }
  return means;
}

}  // namespace quanta
