// auto_mixed_precision, declared in sensitivity.h.

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "quanta/fusion/accuracy/detail/layer_switches.h"
#include "quanta/fusion/accuracy/detail/layer_times.h"
#include "quanta/fusion/accuracy/detail/metric_memory.h"
#include "quanta/fusion/sensitivity.h"
#include "quanta/observers/collector_kinds.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

using accuracy::LayerSwitches;
using accuracy::LayerTimes;
using accuracy::MetricMemory;

constexpr std::string_view kOp = "auto_mixed_precision";

double weight_bytes(const LayerSwitches::Layer& layer, Precision precision) {
  const auto numel = static_cast<double>(layer.weighted->weight->numel());
  if (precision == Precision::Float) return 4.0 * numel;
  const bool per_channel = is_per_channel(layer.weighted->qconfig->weight()->qscheme());
  const double scales = per_channel ? static_cast<double>(layer.weighted->out_channels()) : 1.0;
  return numel * (precision == Precision::Int4 ? 0.5 : 1.0) + 4.0 * scales;
}

/// What one layer may become, cheapest first, Float last.
struct Option {
  Precision precision = Precision::Float;
  PrecisionCost cost;
  double loss = 0.0;  ///< of the metric, with this layer alone so
};
struct Candidate {
  std::size_t layer = 0;  ///< position in the switches
  std::vector<Option> options;
  std::size_t now = 0;
};

/// Only what the budget is about counts; bytes where it is about the metric alone.
double price(const PrecisionCost& cost, const PrecisionBudget& budget) {
  const bool by_time = budget.milliseconds.has_value() && !budget.bytes.has_value();
  return by_time ? cost.milliseconds : cost.bytes;
}

bool is_within(const PrecisionCost& cost, const PrecisionBudget& budget) {
  return (!budget.milliseconds || cost.milliseconds <= *budget.milliseconds) &&
         (!budget.bytes || cost.bytes <= *budget.bytes);
}

class Search {
 public:
  Search(const nn::Module& ready, nn::Module& prepared, const CalibrationData& data,
         const detail::AnyMetric& metric, const PrecisionBudget& budget,
         const MixedPrecisionOptions& options)
      : prepared_(prepared),
        switches_(prepared, ready, data.run),
        memory_(switches_, metric, options.run),
        budget_(budget),
        choices_(options.choices) {
    std::sort(choices_.begin(), choices_.end(), std::greater<>());  // Int4 before Int8
  }

  const LayerSwitches& switches() const { return switches_; }
  double float_metric() const { return float_metric_; }

  /// The loss of each layer alone in each form.
  void measure_layers(const LayerTimes& float_times, const LayerTimes& int8_times) {
    // A QConfig that a layer has of its own is not for a mapping to change. What has no weight (stubs,
    // sums) goes with its neighbours.
    std::vector<std::size_t> chosen = switches_.choosable();
    std::erase_if(chosen, [&](std::size_t i) {
      return switches_.layers()[i].has_own_qconfig || !switches_.layers()[i].weighted;
    });
    memory_.expect(1 + chosen.size() * (2 * choices_.size()));
    all_float();
    float_metric_ = memory_.measure(prepared_, "float");
    for (const std::size_t i : chosen) {
      const LayerSwitches::Layer& layer = switches_.layers()[i];
      Candidate candidate;
      candidate.layer = i;
      for (const Precision precision : choices_) {
        apply(i, precision);
        const double alone = memory_.measure(
            prepared_, fmt::format("{} alone {}", layer.path, to_string(precision)));
        candidate.options.push_back({precision,
                                     {weight_bytes(layer, precision), int8_times.of(layer.path)},
                                     std::max(0.0, float_metric_ - alone)});
        apply(i, Precision::Float);
      }
      candidate.options.push_back(
          {Precision::Float,
           {weight_bytes(layer, Precision::Float), float_times.of(layer.path)},
           0.0});
      candidates_.push_back(std::move(candidate));
    }
  }

  /// Every layer in its cheapest form; what no mapping can name is quantized.
  void start() {
    for (std::size_t i = 0; i < switches_.layers().size(); ++i) switches_.set_quantized(i);
    for (const Candidate& candidate : candidates_) {
      apply(candidate.layer, candidate.options[candidate.now].precision);
    }
  }

  /// Gives the layer that gains most for its price the next form. False when there is none left
  /// within the budget.
  bool step() {
    Candidate* best = nullptr;
    std::size_t best_form = 0;
    double best_rate = -1.0;
    for (Candidate& candidate : candidates_) {
      const Option& now = candidate.options[candidate.now];
      for (std::size_t form = candidate.now + 1; form < candidate.options.size(); ++form) {
        const Option& next = candidate.options[form];
        PrecisionCost after = cost();
        after.bytes += next.cost.bytes - now.cost.bytes;
        after.milliseconds += next.cost.milliseconds - now.cost.milliseconds;
        if (!is_within(after, budget_)) continue;
        const double gain = now.loss - next.loss;
        const double paid = std::max(price(next.cost, budget_) - price(now.cost, budget_), 1e-9);
        if (gain / paid > best_rate) {
          best_rate = gain / paid;
          best = &candidate;
          best_form = form;
        }
      }
    }
    if (best == nullptr) return false;
    best->now = best_form;
    apply(best->layer, best->options[best_form].precision);
    return true;
  }

  PrecisionCost cost() const {
    PrecisionCost sum;
    for (const Candidate& candidate : candidates_) {
      sum.bytes += candidate.options[candidate.now].cost.bytes;
      sum.milliseconds += candidate.options[candidate.now].cost.milliseconds;
    }
    return sum;
  }

  PrecisionPoint point() {
    PrecisionPoint result;
    std::string what;
    for (const Candidate& candidate : candidates_) {
      const LayerSwitches::Layer& layer = switches_.layers()[candidate.layer];
      const Precision precision = candidate.options[candidate.now].precision;
      result.choices[layer.path] = precision;
      what += fmt::format("{}={} ", layer.path, to_string(precision));
    }
    result.cost = cost();
    result.metric = memory_.measure(prepared_, what);
    return result;
  }

  /// Whether there is a layer with a weight that the chosen mapping quantizes.
  bool quantizes() const {
    const bool any_chosen = std::any_of(
        candidates_.begin(), candidates_.end(),
        [](const auto& each) { return each.options[each.now].precision != Precision::Float; });
    return any_chosen ||
           std::any_of(switches_.layers().begin(), switches_.layers().end(), [](const auto& layer) {
             return layer.weighted && (layer.has_own_qconfig || !layer.can_choose);
           });
  }

  QConfigMapping mapping(const QConfigMapping& qconfigs) const {
    QConfigMapping result = qconfigs;
    for (const Candidate& candidate : candidates_) {
      const LayerSwitches::Layer& layer = switches_.layers()[candidate.layer];
      const Precision precision = candidate.options[candidate.now].precision;
      if (precision == Precision::Float) result.set_module_name(layer.path, std::nullopt);
      if (precision == Precision::Int4) {
        // That of the mapping, not the one with the fake quantizer.
        QConfig qconfig = *layer.weighted->qconfig;
        if (const auto inner = inner_observer(qconfig.activation)) qconfig.activation = *inner;
        result.set_module_name(layer.path, with_weight_bits(qconfig, 4));
      }
    }
    return result;
  }

 private:
  static std::optional<ObserverFactory> inner_observer(const ObserverFactory& factory) {
    if (!factory) return std::nullopt;
    const std::shared_ptr<Observer> made = factory();
    const auto* fake = dynamic_cast<const FakeQuantizeBase*>(made.get());
    if (fake == nullptr || fake->observer() == nullptr) return std::nullopt;
    const std::shared_ptr<Observer> inner = fake->observer();
    return ObserverFactory{to_string(*inner), [inner] { return inner->clone(); }};
  }
  void all_float() {
    for (std::size_t i = 0; i < switches_.layers().size(); ++i) switches_.set_float(i);
  }
  void apply(std::size_t layer, Precision precision) {
    if (precision == Precision::Float) {
      switches_.set_float(layer);
    } else if (precision == Precision::Int4) {
      switches_.set_quantized(
          layer, with_weight_bits(*switches_.layers()[layer].weighted->qconfig, 4).weight);
    } else {
      switches_.set_quantized(layer);
    }
  }

  nn::Module& prepared_;
  LayerSwitches switches_;
  MetricMemory memory_;
  PrecisionBudget budget_;
  std::vector<Precision> choices_;
  std::vector<Candidate> candidates_;
  double float_metric_ = 0.0;
};

bool beats(const PrecisionPoint& a, const PrecisionPoint& b) {
  const bool no_worse = a.metric >= b.metric && a.cost.bytes <= b.cost.bytes &&
                        a.cost.milliseconds <= b.cost.milliseconds;
  const bool better = a.metric > b.metric || a.cost.bytes < b.cost.bytes ||
                      a.cost.milliseconds < b.cost.milliseconds;
  return no_worse && better;
}

std::vector<PrecisionPoint> pareto_of(const std::vector<PrecisionPoint>& points) {
  std::vector<PrecisionPoint> result;
  for (const PrecisionPoint& point : points) {
    const bool is_beaten =
        std::any_of(points.begin(), points.end(),
                    [&](const PrecisionPoint& other) { return beats(other, point); });
    if (!is_beaten) result.push_back(point);
  }
  std::stable_sort(result.begin(), result.end(),
                   [](const auto& a, const auto& b) { return a.cost.bytes < b.cost.bytes; });
  return result;
}

void check_arguments(const PrecisionBudget& budget, const MixedPrecisionOptions& options) {
  QUANTA_CHECK(budget.metric || budget.milliseconds || budget.bytes,
               "{}: budget: expected a metric, milliseconds or bytes, got none of them", kOp);
  QUANTA_CHECK(options.timing_runs >= 1, "{}: timing_runs: expected at least 1, got {}", kOp,
               options.timing_runs);
  QUANTA_CHECK(!options.choices.empty(), "{}: choices: expected Int8 or Int4, got none", kOp);
  for (const Precision precision : options.choices) {
    QUANTA_CHECK(precision != Precision::Float, "{}: choices: expected Int8 and Int4 only, got {}",
                 kOp, to_string(precision));
  }
}

}  // namespace

namespace detail {

MixedPrecision mixed_precision_of(const nn::Module& ready, nn::Module& prepared,
                                  const std::function<void(const AnyMetric&)>& with_int8,
                                  const QConfigMapping& qconfigs, const CalibrationData& data,
                                  const AnyMetric& metric, const TryMapping& try_mapping,
                                  const PrecisionBudget& budget,
                                  const MixedPrecisionOptions& options) {
  check_arguments(budget, options);
  const autograd::NoGradGuard no_grad;
  const LayerTimes float_times(ready, data.example, options.timing_runs);
  std::optional<LayerTimes> int8_times;
  with_int8([&](const nn::Module& int8) {
    int8_times.emplace(int8, data.example, options.timing_runs);
    return 0.0;
  });
  Search search(ready, prepared, data, metric, budget, options);
  search.measure_layers(float_times, *int8_times);
  QUANTA_CHECK(!budget.metric || search.float_metric() >= *budget.metric,
               "{}: budget.metric: expected what the float network reaches at most, {}, got {}",
               kOp, search.float_metric(), *budget.metric);
  search.start();
  QUANTA_CHECK(is_within(search.cost(), budget),
               "{}: budget: expected at least what the cheapest network costs, {:.0f} bytes and "
               "{:.3f} ms, got {} bytes and {} ms",
               kOp, search.cost().bytes, search.cost().milliseconds,
               budget.bytes ? fmt::format("{:.0f}", *budget.bytes) : "any",
               budget.milliseconds ? fmt::format("{:.3f}", *budget.milliseconds) : "any");

  MixedPrecision result;
  result.float_metric = search.float_metric();
  std::vector<PrecisionPoint> points;
  std::optional<PrecisionPoint> best;
  bool met = false, quantizes = true;
  // A network without a quantized layer cannot be converted: it is the float one.
  const auto real_metric = [&](const QConfigMapping& mapping) {
    return quantizes ? try_mapping(mapping) : search.float_metric();
  };
  for (;;) {
    points.push_back(search.point());
    const PrecisionPoint& point = points.back();
    if (budget.metric) {
      // Only the network that will run decides.
      if (point.metric >= *budget.metric) {
        const QConfigMapping mapping = search.mapping(qconfigs);
        quantizes = search.quantizes();
        const double real = real_metric(mapping);
        if (!best || real > result.metric) {
          best = point;
          result.metric = real;
          result.qconfigs = mapping;
        }
        met = real >= *budget.metric;
        if (met) break;
      }
    } else if (!best || point.metric > best->metric) {
      best = point;
      result.qconfigs = search.mapping(qconfigs);
      quantizes = search.quantizes();
    }
    if (!search.step()) break;
  }
  if (budget.metric) {
    double most = result.metric;
    for (const PrecisionPoint& point : points) {
      if (!best) most = std::max(most, point.metric);
    }
    QUANTA_CHECK(met, "{}: budget: expected one that can be reached, got {} (the best was {})", kOp,
                 *budget.metric, most);
  } else {
    result.metric = real_metric(result.qconfigs);
  }
  result.choices = best->choices;
  result.cost = best->cost;
  result.pareto = pareto_of(points);
  return result;
}

}  // namespace detail

std::string to_string(const MixedPrecision& result) {
  std::map<Precision, int> counts;
  for (const auto& [path, precision] : result.choices) ++counts[precision];
  std::string text =
      fmt::format("metric {:.4f} (float {:.4f}), {:.0f} bytes, {:.3f} ms:", result.metric,
                  result.float_metric, result.cost.bytes, result.cost.milliseconds);
  for (const auto& [precision, count] : counts) {
    text += fmt::format(" {} {},", count, to_string(precision));
  }
  text.back() = '\n';
  text += fmt::format("{:>12}  {:>10}  {:>10}  {:>5}\n", "bytes", "ms", "metric", "float");
  for (const PrecisionPoint& point : result.pareto) {
    const auto floats =
        std::count_if(point.choices.begin(), point.choices.end(),
                      [](const auto& each) { return each.second == Precision::Float; });
    text += fmt::format("{:>12.0f}  {:>10.3f}  {:>10.4f}  {:>5}\n", point.cost.bytes,
                        point.cost.milliseconds, point.metric, floats);
  }
  return text;
}

}  // namespace quanta
