#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "quanta/fusion/detail/report/charts.h"
#include "quanta/fusion/detail/report/page.h"
#include "quanta/fusion/report.h"

namespace quanta {
namespace {

using namespace reporting;

/// Below it a figure is shown as a poor one.
constexpr double kPoor = 20.0;

std::string tile(const std::string& value, std::string_view about) {
  return fmt::format("<div class=\"tile\"><b>{}</b><span>{}</span></div>\n", escape(value),
                     escape(about));
}

std::string tiles(const Report& report) {
  std::string html = "<div class=\"tiles\">\n";
  constexpr std::size_t kMostOutputs = 4;
  for (std::size_t i = 0; i < std::min(report.outputs.size(), kMostOutputs); ++i) {
    const OutputReport& output = report.outputs[i];
    html += tile(decibels_text(output.sqnr) + " dB",
                 fmt::format("SQNR of {}, cosine {}", output.name, number_text(output.cosine, 5)));
  }
  if (report.top1) {
    html += tile(fmt::format("{:.2f} %", *report.top1),
                 fmt::format("top-1, {:.2f} % in float", *report.float_top1));
  }
  if (report.metric) {
    html += tile(number_text(*report.metric, 5), fmt::format("{}, {} in float", report.metric_name,
                                                             number_text(*report.float_metric, 5)));
  }
  if (report.ms) {
    html += tile(
        fmt::format("{:.3g} ms", *report.ms),
        fmt::format("a call, {:.3g} ms in float; {} threads", *report.float_ms, report.threads));
  }
  html += tile(
      amount_text(static_cast<double>(report.bytes)) + "B",
      fmt::format("state, {}B in float", amount_text(static_cast<double>(report.float_bytes))));
  const auto layers = std::count_if(report.nodes.begin(), report.nodes.end(),
                                    [](const auto& node) { return node.kind != LayerKind::Float; });
  html += tile(fmt::format("{} of {}", layers, report.nodes.size()), "nodes are not in float");
  return html + "</div>\n";
}

std::string suggestions(const Report& report) {
  if (report.suggestions.empty()) return "";
  std::string html = "<ol>\n";
  for (const Suggestion& suggestion : report.suggestions) {
    html += "<li>";
    if (!suggestion.layer.empty())
      html += fmt::format("<code>{}</code> ", escape(suggestion.layer));
    html += fmt::format("<span class=\"chip\">{}</span> {}</li>\n", escape(suggestion.method),
                        escape(suggestion.text));
  }
  return section("Suggestions", "By rules of thumb, the worst layer first.", html + "</ol>\n");
}

std::string ratio_bars(const Report& report) {
  constexpr double kStep = 10.0;
  double most = 40.0;
  for (const LayerReport& layer : report.layers) {
    if (std::isfinite(layer.sqnr)) most = std::max(most, layer.sqnr);
    const double alone = layer.sqnr_alone.value_or(0.0);
    if (std::isfinite(alone)) most = std::max(most, alone);
  }
  std::vector<BarRow> rows;
  for (const LayerReport& layer : report.layers) {
    rows.push_back({.name = layer.name,
                    .first = layer.sqnr,
                    .second = layer.sqnr_alone.value_or(NAN),
                    .text = fmt::format(
                        "{} / {}", decibels_text(layer.sqnr),
                        layer.sqnr_alone ? decibels_text(*layer.sqnr_alone) : std::string("-"))});
  }
  return section(
      "Signal to quantization noise by layer",
      "In dB, more is better; lines every 10 dB. Accumulated: with the errors of the layers before "
      "it. Alone: the quantized layer is given what the float layer was given.",
      key({{"first", "accumulated"}, {"second", "alone"}}) +
          bars(rows, most, kStep, "first", "second"));
}

std::string speed_bars(const Report& report) {
  if (!report.ms) return "";
  double most = 0.0;
  std::vector<BarRow> rows;
  for (const LayerReport& layer : report.layers) {
    most = std::max({most, layer.float_ms.value_or(0.0), layer.ms.value_or(0.0)});
    rows.push_back({.name = layer.name,
                    .first = layer.float_ms.value_or(NAN),
                    .second = layer.ms.value_or(NAN),
                    .text = fmt::format("{:.3f} / {:.3f}", layer.float_ms.value_or(NAN),
                                        layer.ms.value_or(NAN))});
  }
  return section(
      "Speed by layer",
      "Milliseconds of the first call, float / quantized: the median of the runs, module "
      "by module. A frozen plan is faster.",
      key({{"plain", "float"}, {"int8", "quantized"}}) + bars(rows, most, most, "plain", "int8"));
}

/// A cell with a number to sort by.
std::string cell(const std::string& text, double value, bool poor = false) {
  std::string sorted = std::isnan(value) ? "" : fmt::format("{}", value);
  if (std::isinf(value)) sorted = value > 0 ? "1e300" : "-1e300";
  return fmt::format("<td data-v=\"{}\"{}>{}</td>", sorted, poor ? " class=\"poor\"" : "", text);
}

std::string optional_cell(const std::optional<double>& value, const char* format) {
  if (!value) return cell("-", NAN);
  return cell(fmt::format(fmt::runtime(format), *value), *value);
}

std::string row(const LayerReport& layer, std::size_t position) {
  std::string html = fmt::format(
      "<tr>{}<td class=\"text name\">{}</td><td class=\"text\">{}</td><td "
      "class=\"text\">{}</td><td class=\"text\">{}</td>",
      cell(std::to_string(position), static_cast<double>(position)), escape(layer.name),
      escape(shortened(layer.float_type, 40)), escape(shortened(layer.type, 40)),
      to_string(layer.kind));
  html += cell(decibels_text(layer.sqnr), layer.sqnr, layer.sqnr < kPoor);
  const double alone = layer.sqnr_alone.value_or(NAN);
  html += cell(decibels_text(alone), alone, alone < kPoor);
  html += cell(fmt::format("{:.5f}", layer.cosine), layer.cosine);
  html += cell(number_text(layer.largest_error, 3), layer.largest_error);
  const double saturated = layer.saturated ? 100.0 * *layer.saturated : NAN;
  html += cell(layer.saturated ? fmt::format("{:.2f}", saturated) : "-", saturated);
  html += cell(number_text(layer.low, 3), layer.low) + cell(number_text(layer.high, 3), layer.high);
  html += layer.grid ? cell(number_text(layer.grid->scale), layer.grid->scale) +
                           cell(std::to_string(layer.grid->zero_point),
                                static_cast<double>(layer.grid->zero_point))
                     : cell("-", NAN) + cell("-", NAN);
  html += layer.weight ? cell(decibels_text(layer.weight->sqnr), layer.weight->sqnr,
                              layer.weight->sqnr < kPoor)
                       : cell("-", NAN);
  html += optional_cell(layer.float_ms, "{:.3f}") + optional_cell(layer.ms, "{:.3f}");
  const auto work = static_cast<double>(layer.multiply_adds);
  html += layer.multiply_adds > 0 ? cell(amount_text(work), work) : cell("-", NAN);
  return html + "</tr>\n";
}

std::string table(const Report& report) {
  struct Column {
    const char *name, *about;
    bool is_text = false;
  };
  const Column columns[] = {
      {"#", "in the order of calls"},
      {"layer", "its name", true},
      {"float", "what it is in float", true},
      {"quantized", "what it became", true},
      {"kind", "its arithmetic", true},
      {"SQNR", "dB, accumulated"},
      {"alone", "dB, given the float layer's inputs"},
      {"cosine", "of the angle between both results"},
      {"error", "the largest of an element"},
      {"sat. %", "results beyond the codes"},
      {"min", "of the float results"},
      {"max", "of the float results"},
      {"scale", "of its codes"},
      {"zero", "zero point of its codes"},
      {"weight", "dB of the quantized weight"},
      {"float ms", "in float"},
      {"ms", "quantized"},
      {"MACs", "multiply-adds of a call"},
  };
  std::string html = "<div class=\"table\">\n<table>\n<thead><tr>";
  for (const Column& column : columns) {
    html += fmt::format("<th{}><button title=\"{}\">{}</button></th>",
                        column.is_text ? " class=\"text\"" : "", column.about, column.name);
  }
  html += "</tr></thead>\n<tbody>\n";
  for (std::size_t i = 0; i < report.layers.size(); ++i) html += row(report.layers[i], i + 1);
  return section("Layers", "A click on a column's head sorts by it.",
                 html + "</tbody>\n</table>\n</div>\n");
}

std::string histograms(const Report& report) {
  std::string html;
  for (const LayerReport& layer : report.layers) {
    if (layer.histogram) html += histogram_figure(layer);
  }
  if (html.empty()) return "";
  return section("Results of the worst layers",
                 "How often each value occurs, on a logarithmic scale. The ticks below are the "
                 "codes; what lies "
                 "in the shaded parts is saturated.",
                 key({{"first", "float"}, {"second", "quantized"}, {"int8", "codes"}}) +
                     "<div class=\"cards\">\n" + html + "</div>\n");
}

std::string weights(const Report& report) {
  constexpr std::size_t kMost = 12;
  std::vector<const LayerReport*> worst;
  for (const LayerReport& layer : report.layers) {
    if (layer.weight && !std::isnan(layer.weight->sqnr)) worst.push_back(&layer);
  }
  if (worst.empty()) return "";
  std::stable_sort(worst.begin(), worst.end(), [](const LayerReport* a, const LayerReport* b) {
    return a->weight->sqnr < b->weight->sqnr;
  });
  worst.resize(std::min(worst.size(), kMost));
  std::string html;
  for (const LayerReport* layer : worst) html += channels_figure(*layer);
  return section(
      "Weights by channel",
      "Of the layers whose weights lose most: above from the least to the greatest weight "
      "of each output channel, below its SQNR (60 dB at most).",
      key({{"first", "range"}, {"second", "SQNR"}}) + "<div class=\"cards\">\n" + html +
          "</div>\n");
}

std::string network(const Report& report) {
  const std::string picture = graph_picture(report.nodes, report.layers);
  if (picture.empty()) return "";
  return section(
      "The network",
      "As the quantized form runs, from above. Numbers are the SQNR in dB, accumulated.",
      key({{"int8", "int8"}, {"weight", "int8 weight or simulated"}, {"plain", "float"}}) +
          "<div class=\"scroll\">\n" + picture + "</div>\n");
}

}  // namespace

std::string to_html(const Report& report) {
  std::string body = fmt::format("<h1>{}</h1>\n<p>{} call{} of data, {} layers compared.</p>\n",
                                 escape(report.title), report.calls, report.calls == 1 ? "" : "s",
                                 report.layers.size());
  body += tiles(report) + suggestions(report) + ratio_bars(report) + table(report) +
          histograms(report) + weights(report) + network(report) + speed_bars(report);
  return page(report.title, body + "<footer>Written by Quanta.</footer>\n");
}

}  // namespace quanta
