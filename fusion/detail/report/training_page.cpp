#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "quanta/fusion/detail/report/charts.h"
#include "quanta/fusion/detail/report/page.h"
#include "quanta/fusion/training_report.h"
#include "quanta/runtime/atomic_file.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/json.h"

namespace quanta {
namespace {

using namespace reporting;
using detail::Json;

std::vector<double> marks_of(const TrainingReport& report) {
  std::vector<double> marks;
  for (const TrainingReport::Event& event : report.events()) {
    marks.push_back(static_cast<double>(event.step));
  }
  return marks;
}

/// Values that stand for a stride of steps each.
Curve curve_of(const TrainingReport& report, std::string name, const std::vector<double>& values) {
  Curve curve{std::move(name), {}};
  for (std::size_t i = 0; i < values.size(); ++i) {
    curve.points.emplace_back(static_cast<double>(report.stride()) * static_cast<double>(i),
                              values[i]);
  }
  return curve;
}

/// The mean of a twentieth of the curve around each point.
Curve smoothed(const Curve& curve) {
  const std::size_t reach = std::max<std::size_t>(curve.points.size() / 40, 2);
  Curve result{"mean", {}};
  for (std::size_t i = 0; i < curve.points.size(); ++i) {
    const std::size_t begin = i - std::min(i, reach);
    const std::size_t end = std::min(i + reach + 1, curve.points.size());
    double sum = 0.0, count = 0.0;
    for (std::size_t k = begin; k < end; ++k) {
      if (!std::isfinite(curve.points[k].second)) continue;
      sum += curve.points[k].second;
      count += 1.0;
    }
    result.points.emplace_back(curve.points[i].first, count > 0.0 ? sum / count : NAN);
  }
  return result;
}

std::string last_of(const std::vector<double>& values) {
  return values.empty() ? "-" : number_text(values.back());
}

std::string ranges(const TrainingReport& report, bool of_weights) {
  std::string html;
  for (const TrainingReport::Range& range : report.ranges()) {
    if (range.is_weight != of_weights) continue;
    html += figure(range.name, fmt::format("{} .. {}", last_of(range.low), last_of(range.high)),
                   line_chart({}, curve_of(report, "low", range.low),
                              curve_of(report, "high", range.high), marks_of(report)));
  }
  if (html.empty()) return "";
  return section(
      of_weights ? "Ranges of weights" : "Ranges of results",
      "What the codes of each fake quantizer reach, over all channels, by steps. A range "
      "that still moves at the end was not trained long enough.",
      "<div class=\"cards\">\n" + html + "</div>\n");
}

std::string events(const TrainingReport& report) {
  if (report.events().empty()) return "";
  std::string html = "<ol>\n";
  for (const TrainingReport::Event& event : report.events()) {
    html += fmt::format("<li><span class=\"chip\">step {}</span> {}</li>\n", event.step,
                        escape(event.text));
  }
  return section("Events", "Upright lines in the pictures.", html + "</ol>\n");
}

Json numbers(const std::vector<double>& values) {
  Json::Array array;
  for (const double value : values) {
    if (std::isfinite(value)) {
      array.emplace_back(value);
    } else {
      array.emplace_back(nullptr);
    }
  }
  return array;
}

}  // namespace

std::string to_html(const TrainingReport& report) {
  const Curve loss = curve_of(report, "loss", report.losses());
  std::string body =
      fmt::format("<h1>{}</h1>\n<p>{} steps; a point of a curve is the mean of {}.</p>\n",
                  escape(report.title()), report.steps(), report.stride());
  body +=
      section("Loss", "By steps.",
              key({{"first", "loss"}, {"second", "its mean around"}}) + "<div class=\"cards\">\n" +
                  figure("loss", last_of(report.losses()),
                         line_chart({loss, smoothed(loss)}, {}, {}, marks_of(report))) +
                  "</div>\n");
  std::string metrics;
  for (const TrainingReport::Metric& metric : report.metrics()) {
    Curve curve{metric.name, {}};
    for (std::size_t i = 0; i < metric.values.size(); ++i) {
      curve.points.emplace_back(static_cast<double>(metric.steps[i]), metric.values[i]);
    }
    metrics += figure(metric.name, last_of(metric.values),
                      metric.values.size() > 1 ? line_chart({curve}, {}, {}, {}) : std::string());
  }
  if (!metrics.empty()) {
    body += section("Figures of merit", "By steps; the number is the last one.",
                    "<div class=\"cards\">\n" + metrics + "</div>\n");
  }
  body += events(report) + ranges(report, false) + ranges(report, true);
  return page(report.title(), body + "<footer>Written by Quanta.</footer>\n");
}

std::string to_json(const TrainingReport& report) {
  Json::Array ranges, metrics, events;
  for (const TrainingReport::Range& range : report.ranges()) {
    ranges.emplace_back(Json::Object{{"name", Json(clean_utf8(range.name))},
                                     {"weight", Json(range.is_weight)},
                                     {"low", numbers(range.low)},
                                     {"high", numbers(range.high)}});
  }
  for (const TrainingReport::Metric& metric : report.metrics()) {
    Json::Array steps;
    for (const std::int64_t step : metric.steps) steps.emplace_back(step);
    metrics.emplace_back(Json::Object{{"name", Json(clean_utf8(metric.name))},
                                      {"steps", std::move(steps)},
                                      {"values", numbers(metric.values)}});
  }
  for (const TrainingReport::Event& event : report.events()) {
    events.emplace_back(
        Json::Object{{"step", Json(event.step)}, {"text", Json(clean_utf8(event.text))}});
  }
  return detail::to_json_text(Json::Object{{"title", Json(clean_utf8(report.title()))},
                                           {"steps", Json(report.steps())},
                                           {"stride", Json(report.stride())},
                                           {"loss", numbers(report.losses())},
                                           {"ranges", std::move(ranges)},
                                           {"metrics", std::move(metrics)},
                                           {"events", std::move(events)}});
}

void write_report(const TrainingReport& report, const std::filesystem::path& path) {
  const std::string ending = path.extension().string();
  QUANTA_CHECK(ending == ".html" || ending == ".json",
               "write_report: path: expected a file .html or .json, got {}", path.string());
  const std::string content = ending == ".html" ? to_html(report) : to_json(report);
  write_file_atomically(path, [&](const auto& sink) { sink(std::as_bytes(std::span(content))); });
}

}  // namespace quanta
