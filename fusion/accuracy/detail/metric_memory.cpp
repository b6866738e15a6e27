#include "quanta/fusion/accuracy/detail/metric_memory.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "quanta/runtime/atomic_file.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/hash_bytes.h"
#include "quanta/runtime/detail/json.h"
#include "quanta/runtime/detail/text_file.h"

namespace quanta::accuracy {
namespace {

using quanta::detail::Json;

constexpr const char* kFormat = "quanta.metrics";

// Layers, their QConfigs, weights and ranges: with any of them another, other answers are right.
std::string fingerprint(const LayerSwitches& switches) {
  std::string text;
  for (const LayerSwitches::Layer& layer : switches.layers()) {
    text += fmt::format("{} {}\n", layer.path, layer.type);
    if (layer.result != nullptr) {
      const ObservedQParams qparams = layer.result->calculate_qparams();
      for (const float scale : qparams.scale.to_float_vector()) text += fmt::format("{:a} ", scale);
      for (const std::int64_t zero : qparams.zero_point.to_int64_vector()) {
        text += fmt::format("{} ", zero);
      }
    }
    if (!layer.weighted) continue;
    text += layer.weighted->qconfig->weight.name;
    for (const float weight : layer.weighted->weight->to_float_vector()) {
      text.append(reinterpret_cast<const char*>(&weight), sizeof weight);
    }
  }
  return fmt::format("{} layers, {:016x}", switches.layers().size(),
                     quanta::detail::hash_bytes(std::as_bytes(std::span(text))));
}

}  // namespace

MetricMemory::MetricMemory(const LayerSwitches& switches, detail::AnyMetric metric,
                           const SensitivityOptions& options)
    : metric_(std::move(metric)), options_(options) {
  if (options_.resume.empty()) return;
  network_ = fingerprint(switches);
  const std::string place = options_.resume.string();
  if (!std::filesystem::exists(options_.resume)) return;
  const std::string text = quanta::detail::read_text_file(options_.resume, "resume");
  const Json file = quanta::detail::parse_json(text, place);
  const Json* format = file.find("format");
  const Json* network = file.find("network");
  const Json* metrics = file.find("metrics");
  if (format == nullptr || format->as_string() == nullptr || *format->as_string() != kFormat ||
      network == nullptr || network->as_string() == nullptr || metrics == nullptr ||
      metrics->as_object() == nullptr) {
    throw FileError(place + ": resume: expected a file of metrics, got another");
  }
  if (*network->as_string() != network_) {
    throw FileError(fmt::format(
        "{}: resume: expected answers for this network ({}), got those for another ({}): give "
        "another file, or remove it",
        place, network_, *network->as_string()));
  }
  for (const auto& [what, value] : *metrics->as_object()) {
    if (!value.is_number()) {
      throw FileError(
          fmt::format("{}: metrics: {}: expected a number, got {}", place, what, value.kind()));
    }
    known_[what] = value.as_number();
  }
}

double MetricMemory::measure(const nn::Module& model, const std::string& what) {
  auto found = known_.find(what);
  if (found == known_.end()) {
    const autograd::NoGradGuard no_grad;
    const double value = metric_(model);
    QUANTA_CHECK(std::isfinite(value),
                 "metric: expected a finite number for the network '{}', got {}", what, value);
    found = known_.emplace(what, value).first;
    if (!options_.resume.empty()) save();
  }
  ++done_;
  if (options_.progress) options_.progress(what, done_, std::max(done_, total_));
  return found->second;
}

void MetricMemory::save() const {
  Json::Object metrics;
  for (const auto& [what, value] : known_) metrics.emplace_back(what, value);
  const std::string text = quanta::detail::to_json_text(Json(Json::Object{
                               {"format", kFormat}, {"network", network_}, {"metrics", metrics}})) +
                           "\n";
  write_file_atomically(options_.resume,
                        [&](const auto& sink) { sink(std::as_bytes(std::span(text))); });
}

}  // namespace quanta::accuracy
