#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <span>

#include "quanta/fusion/detail/report/page.h"
#include "quanta/fusion/report.h"
#include "quanta/runtime/atomic_file.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/json.h"

namespace quanta {
namespace {

using detail::Json;
using reporting::clean_utf8;
using reporting::decibels_text;
using reporting::number_text;

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }
Json number(const std::optional<double>& value) { return value ? number(*value) : Json(nullptr); }
Json decibels(double value) {
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return number(value);
}
Json text(std::string_view value) { return clean_utf8(value); }
Json count(std::size_t value) { return static_cast<std::int64_t>(value); }

Json counts(const std::vector<std::int64_t>& values) {
  return Json::Array(values.begin(), values.end());
}

Json weight_json(const WeightReport& weight) {
  Json::Array channels;
  for (const WeightReport::Channel& channel : weight.channels) {
    channels.push_back(Json::Object{{"low", number(channel.low)},
                                    {"high", number(channel.high)},
                                    {"sqnr", decibels(channel.sqnr)}});
  }
  return Json::Object{{"sqnr", decibels(weight.sqnr)},
                      {"per_channel", weight.per_channel ? Json(*weight.per_channel) : Json()},
                      {"channels", std::move(channels)}};
}

Json layer_json(const LayerReport& layer) {
  Json::Object object{
      {"name", text(layer.name)},
      {"float_type", text(layer.float_type)},
      {"type", text(layer.type)},
      {"kind", text(to_string(layer.kind))},
      {"sqnr", decibels(layer.sqnr)},
      {"sqnr_alone", layer.sqnr_alone ? decibels(*layer.sqnr_alone) : Json()},
      {"cosine", number(layer.cosine)},
      {"largest_error", number(layer.largest_error)},
      {"bias_share", number(layer.bias_share)},
      {"saturated", number(layer.saturated)},
      {"low", number(layer.low)},
      {"high", number(layer.high)},
      {"rms", number(layer.rms)},
      {"float_ms", number(layer.float_ms)},
      {"ms", number(layer.ms)},
      {"multiply_adds", layer.multiply_adds},
  };
  if (layer.grid) {
    object.emplace_back("grid", Json::Object{{"scale", number(layer.grid->scale)},
                                             {"zero_point", layer.grid->zero_point},
                                             {"quant_min", layer.grid->quant_min},
                                             {"quant_max", layer.grid->quant_max}});
  }
  if (layer.weight) object.emplace_back("weight", weight_json(*layer.weight));
  if (layer.histogram) {
    object.emplace_back("histogram",
                        Json::Object{{"low", number(layer.histogram->low)},
                                     {"high", number(layer.histogram->high)},
                                     {"float", counts(layer.histogram->in_float)},
                                     {"quantized", counts(layer.histogram->quantized)}});
  }
  return object;
}

Json node_json(const ReportNode& node) {
  Json::Array inputs;
  for (const std::size_t input : node.inputs) inputs.push_back(count(input));
  return Json::Object{{"name", text(node.name)},
                      {"type", text(node.type)},
                      {"kind", text(to_string(node.kind))},
                      {"inputs", std::move(inputs)},
                      {"layer", node.layer ? count(*node.layer) : Json()}};
}

/// Letters, not bytes.
std::size_t width_of(std::string_view name) {
  return static_cast<std::size_t>(
      std::count_if(name.begin(), name.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

/// Names come from files: nothing in them moves the cursor of a terminal.
std::string printable(std::string_view name) {
  std::string result = clean_utf8(name);
  for (char& c : result) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  }
  return result;
}

std::string padded(std::string name, std::size_t width) {
  name.append(width - std::min(width, width_of(name)), ' ');
  return name;
}

std::string both(const std::optional<double>& before, const std::optional<double>& after,
                 const char* unit) {
  return fmt::format("{}{} -> {}{}", number_text(before.value_or(NAN), 5), unit,
                     number_text(after.value_or(NAN), 5), unit);
}

}  // namespace

std::string to_string(const Report& report) {
  std::string result = printable(report.title) + "\n";
  for (const OutputReport& output : report.outputs) {
    result += fmt::format("{}: SQNR {} dB, cosine {}, largest error {}\n", printable(output.name),
                          decibels_text(output.sqnr), number_text(output.cosine, 6),
                          number_text(output.largest_error));
  }
  if (report.top1) result += fmt::format("top-1: {}\n", both(report.float_top1, report.top1, " %"));
  if (report.metric) {
    result += fmt::format("{}: {}\n", printable(report.metric_name),
                          both(report.float_metric, report.metric, ""));
  }
  if (report.ms) {
    result += fmt::format("one call: {}, module by module, {} threads\n",
                          both(report.float_ms, report.ms, " ms"), report.threads);
  }
  std::size_t names = 5, types = 4;
  for (const LayerReport& layer : report.layers) {
    names = std::max(names, width_of(printable(layer.name)));
    types = std::max(types, width_of(printable(layer.type)));
  }
  result += fmt::format("\n{}  {}  {:>7}  {:>7}  {:>8}  {:>9}  {:>6}  {:>9}  {:>9}  {:>8}  {:>8}\n",
                        padded("layer", names), padded("type", types), "SQNR dB", "alone", "cosine",
                        "error", "sat. %", "scale", "weight dB", "float ms", "ms");
  const auto milliseconds = [](const std::optional<double>& value) {
    return value ? fmt::format("{:.3f}", *value) : std::string("-");
  };
  for (const LayerReport& layer : report.layers) {
    result += fmt::format(
        "{}  {}  {:>7}  {:>7}  {:>8.5f}  {:>9}  {:>6}  {:>9}  {:>9}  {:>8}  {:>8}\n",
        padded(printable(layer.name), names), padded(printable(layer.type), types),
        decibels_text(layer.sqnr), layer.sqnr_alone ? decibels_text(*layer.sqnr_alone) : "-",
        layer.cosine, number_text(layer.largest_error, 3),
        layer.saturated ? fmt::format("{:.2f}", 100.0 * *layer.saturated) : "-",
        layer.grid ? number_text(layer.grid->scale) : "-",
        layer.weight ? decibels_text(layer.weight->sqnr) : "-", milliseconds(layer.float_ms),
        milliseconds(layer.ms));
  }
  if (!report.suggestions.empty()) result += "\nsuggestions:\n";
  for (const Suggestion& suggestion : report.suggestions) {
    result += fmt::format("- {}{}: {}\n",
                          suggestion.layer.empty() ? "" : printable(suggestion.layer) + ": ",
                          suggestion.method, printable(suggestion.text));
  }
  return result;
}

std::string to_json(const Report& report) {
  Json::Array layers, outputs, nodes, suggestions;
  for (const LayerReport& layer : report.layers) layers.push_back(layer_json(layer));
  for (const OutputReport& output : report.outputs) {
    outputs.push_back(Json::Object{{"name", text(output.name)},
                                   {"sqnr", decibels(output.sqnr)},
                                   {"cosine", number(output.cosine)},
                                   {"largest_error", number(output.largest_error)}});
  }
  for (const ReportNode& node : report.nodes) nodes.push_back(node_json(node));
  for (const Suggestion& suggestion : report.suggestions) {
    suggestions.push_back(Json::Object{{"layer", text(suggestion.layer)},
                                       {"method", text(suggestion.method)},
                                       {"text", text(suggestion.text)}});
  }
  return detail::to_json_text(Json::Object{
             {"title", text(report.title)},
             {"calls", count(report.calls)},
             {"threads", report.threads},
             {"float_top1", number(report.float_top1)},
             {"top1", number(report.top1)},
             {"metric_name", text(report.metric_name)},
             {"float_metric", number(report.float_metric)},
             {"metric", number(report.metric)},
             {"float_ms", number(report.float_ms)},
             {"ms", number(report.ms)},
             {"float_bytes", count(report.float_bytes)},
             {"bytes", count(report.bytes)},
             {"outputs", std::move(outputs)},
             {"layers", std::move(layers)},
             {"nodes", std::move(nodes)},
             {"suggestions", std::move(suggestions)},
         }) +
         "\n";
}

void write_report(const Report& report, const std::filesystem::path& path) {
  const std::string ending = path.extension().string();
  QUANTA_CHECK(ending == ".html" || ending == ".json" || ending == ".svg" || ending == ".txt",
               "write_report: path: expected a file .html, .json, .svg or .txt, got {}",
               path.string());
  const std::string content = ending == ".html"   ? to_html(report)
                              : ending == ".json" ? to_json(report)
                              : ending == ".svg"  ? to_svg(report)
                                                  : to_string(report);
  write_file_atomically(path, [&](const auto& sink) { sink(std::as_bytes(std::span(content))); });
}

}  // namespace quanta
