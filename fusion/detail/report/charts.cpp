#include "quanta/fusion/detail/report/charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "quanta/fusion/detail/report/page.h"

namespace quanta::reporting {
namespace {

constexpr double kWidth = 360.0;

/// Percent of a track.
double share(double value, double most) {
  if (std::isnan(value) || !(most > 0.0)) return 0.0;
  return 100.0 * std::clamp(value / most, 0.0, 1.0);
}

double log_height(std::int64_t count, std::int64_t most) {
  if (count <= 0 || most <= 0) return 0.0;
  return std::log1p(static_cast<double>(count)) / std::log1p(static_cast<double>(most));
}

/// A line over bins as steps: "M0 100H2V80...".
std::string steps(const std::vector<std::int64_t>& bins, std::int64_t most, double base,
                  double height) {
  const double width = kWidth / static_cast<double>(bins.size());
  std::string path = fmt::format("M0 {}", place_text(base));
  for (std::size_t i = 0; i < bins.size(); ++i) {
    path += fmt::format("V{}H{}", place_text(base - height * log_height(bins[i], most)),
                        place_text(width * static_cast<double>(i + 1)));
  }
  return path + fmt::format("V{}", place_text(base));
}

std::string rectangle(double x, double y, double width, double height, const char* colour) {
  return fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"var(--{})\"/>\n",
                     place_text(x), place_text(y), place_text(std::max(width, 0.0)),
                     place_text(height), colour);
}

/// The codes as ticks below a histogram, lines through it where they are few, and its ends.
std::string grid_lines(const ReportGrid& grid, double low, double high, double top, double base) {
  const auto at = [&](double value) {
    return std::clamp((value - low) / (high - low), 0.0, 1.0) * kWidth;
  };
  std::string svg = rectangle(0.0, top, at(grid.low() - 0.5 * grid.scale), base - top, "bad-soft");
  const double end = at(grid.high() + 0.5 * grid.scale);
  svg += rectangle(end, top, kWidth - end, base - top, "bad-soft");
  constexpr std::int64_t kMostLines = 40, kMostTicks = 300;
  const std::int64_t codes = grid.quant_max - grid.quant_min + 1;
  if (codes < 1 || codes > kMostTicks) return svg;
  std::string path;
  for (std::int64_t code = grid.quant_min; code <= grid.quant_max; ++code) {
    const double value = grid.scale * static_cast<double>(code - grid.zero_point);
    if (value < low || value > high) continue;
    path += fmt::format("M{} {}V{}", place_text(at(value)),
                        place_text(codes <= kMostLines ? top : base + 2.0), place_text(base + 8.0));
  }
  return svg + fmt::format("<path d=\"{}\" stroke=\"var(--int8)\" stroke-width=\"0.6\"/>\n", path);
}

/// Numbers below an axis from low to high.
std::string axis_texts(double low, double high, double y) {
  return fmt::format(
      "<text x=\"0\" y=\"{0}\">{1}</text><text x=\"{2}\" y=\"{0}\" "
      "text-anchor=\"end\">{3}</text>\n",
      place_text(y), number_text(low, 3), place_text(kWidth), number_text(high, 3));
}

std::string svg_of(double height, const std::string& content) {
  return fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" fill=\"none\">\n{}</svg>\n",
                     place_text(kWidth), place_text(height), content);
}

}  // namespace

std::string figure(const std::string& name, const std::string& about, const std::string& svg) {
  return fmt::format(
      "<figure><figcaption><span class=\"name\">{}</span>{}</figcaption>\n{}</figure>\n",
      escape(name), about, svg);
}

std::string bars(const std::vector<BarRow>& rows, double most, double step,
                 const std::string& first_class, const std::string& second_class) {
  std::string html =
      fmt::format("<div class=\"scroll\" style=\"--step:{}%\">\n", place_text(share(step, most)));
  for (const BarRow& row : rows) {
    html += fmt::format(
        "<div class=\"row\"><span class=\"name\">{}</span><span class=\"track\"><i class=\"{}\" "
        "style=\"width:{}%\"></i>",
        escape(row.name), first_class, place_text(share(row.first, most)));
    if (!std::isnan(row.second)) {
      html += fmt::format("<i class=\"{}\" style=\"width:{}%\"></i>", second_class,
                          place_text(share(row.second, most)));
    }
    html += fmt::format("</span><span class=\"num\">{}</span></div>\n", row.text);
  }
  return html + "</div>\n";
}

std::string key(const std::vector<std::pair<std::string, std::string>>& classes) {
  std::string html = "<div class=\"key\">";
  for (const auto& [name, text] : classes) {
    html += fmt::format("<span><i class=\"{}\"></i>{}</span>", name, escape(text));
  }
  return html + "</div>\n";
}

std::string histogram_figure(const LayerReport& layer) {
  const ReportHistogram& histogram = *layer.histogram;
  constexpr double kTop = 4.0, kBase = 120.0, kHeight = 148.0;
  std::int64_t most = 1;
  for (const std::int64_t count : histogram.in_float) most = std::max(most, count);
  for (const std::int64_t count : histogram.quantized) most = std::max(most, count);
  std::string svg;
  if (layer.grid && histogram.high > histogram.low) {
    svg += grid_lines(*layer.grid, histogram.low, histogram.high, kTop, kBase);
  }
  svg += fmt::format("<path d=\"{}\" fill=\"var(--first)\" fill-opacity=\"0.45\"/>\n",
                     steps(histogram.in_float, most, kBase, kBase - kTop));
  svg += fmt::format("<path d=\"{}\" stroke=\"var(--second)\" stroke-width=\"1.2\"/>\n",
                     steps(histogram.quantized, most, kBase, kBase - kTop));
  svg += fmt::format("<path d=\"M0 {0}H{1}\" stroke=\"var(--line)\"/>\n", place_text(kBase),
                     place_text(kWidth));
  svg += axis_texts(histogram.low, histogram.high, kHeight - 6.0);
  std::string about = fmt::format("SQNR {} dB, alone {}", decibels_text(layer.sqnr),
                                  layer.sqnr_alone ? decibels_text(*layer.sqnr_alone) : "-");
  if (layer.grid) {
    about += fmt::format("; scale {}, zero point {}", number_text(layer.grid->scale),
                         layer.grid->zero_point);
  }
  if (layer.saturated) about += fmt::format("; {:.2f} % saturated", 100.0 * *layer.saturated);
  return figure(layer.name, about, svg_of(kHeight, svg));
}

std::string channels_figure(const LayerReport& layer) {
  const WeightReport& weight = *layer.weight;
  constexpr double kRanges = 84.0, kBase = 132.0, kHeight = 148.0, kMostDecibels = 60.0;
  double low = 0.0, high = 0.0;
  for (const WeightReport::Channel& channel : weight.channels) {
    if (std::isfinite(channel.low)) low = std::min(low, channel.low);
    if (std::isfinite(channel.high)) high = std::max(high, channel.high);
  }
  const double span = high > low ? high - low : 1.0;
  const auto y = [&](double value) {
    return kRanges * (1.0 - std::clamp((value - low) / span, 0.0, 1.0));
  };
  const double width =
      kWidth / static_cast<double>(std::max<std::size_t>(weight.channels.size(), 1));
  std::string ranges, ratios;
  for (std::size_t i = 0; i < weight.channels.size(); ++i) {
    const WeightReport::Channel& channel = weight.channels[i];
    const std::string x = place_text(width * (static_cast<double>(i) + 0.5));
    ranges += fmt::format("M{} {}V{}", x, place_text(y(channel.low)),
                          place_text(std::min(y(channel.high), y(channel.low) - 0.5)));
    const double decibels = std::isnan(channel.sqnr) ? 0.0 : channel.sqnr;
    ratios += fmt::format("M{} {}V{}", x, place_text(kBase),
                          place_text(kBase - 0.4 * std::clamp(decibels, 1.0, kMostDecibels)));
  }
  const std::string stroke = place_text(std::clamp(0.7 * width, 0.4, 12.0));
  std::string svg =
      fmt::format("<path d=\"{}\" stroke=\"var(--first)\" stroke-width=\"{}\"/>\n", ranges, stroke);
  svg += fmt::format("<path d=\"M0 {0}H{1}M0 {2}H{1}\" stroke=\"var(--line)\"/>\n",
                     place_text(y(0.0)), place_text(kWidth), place_text(kBase));
  svg += fmt::format("<path d=\"{}\" stroke=\"var(--second)\" stroke-width=\"{}\"/>\n", ratios,
                     stroke);
  svg += fmt::format("<text x=\"0\" y=\"{}\">{} channels</text>\n", place_text(kHeight - 4.0),
                     weight.channels.size());
  std::string about = fmt::format("{} .. {}; SQNR {} dB", number_text(low, 3), number_text(high, 3),
                                  decibels_text(weight.sqnr));
  if (weight.per_channel) {
    about += *weight.per_channel ? "; a scale for each channel" : "; one scale";
  }
  return figure(layer.name, about, svg_of(kHeight, svg));
}

std::string line_chart(const std::vector<Curve>& curves, const Curve& lower, const Curve& upper,
                       const std::vector<double>& marks) {
  constexpr double kTop = 6.0, kBase = 120.0, kHeight = 140.0;
  const double infinity = std::numeric_limits<double>::infinity();
  double left = infinity, right = -infinity, low = infinity, high = -infinity;
  const auto widen = [&](const Curve& curve) {
    for (const auto& [x, y] : curve.points) {
      if (!std::isfinite(x) || !std::isfinite(y)) continue;
      left = std::min(left, x);
      right = std::max(right, x);
      low = std::min(low, y);
      high = std::max(high, y);
    }
  };
  for (const Curve& curve : curves) widen(curve);
  widen(lower);
  widen(upper);
  if (!(left <= right)) return svg_of(kHeight, "<text x=\"0\" y=\"20\">no points</text>\n");
  const double width = right > left ? right - left : 1.0;
  const double span = high > low ? high - low : 1.0;
  const auto path = [&](const Curve& curve) {
    std::string text;
    bool is_on = false;
    for (const auto& [x, y] : curve.points) {
      if (!std::isfinite(x) || !std::isfinite(y)) {
        is_on = false;
        continue;
      }
      text += fmt::format("{}{} {}", is_on ? "L" : "M", place_text((x - left) / width * kWidth),
                          place_text(kBase - (y - low) / span * (kBase - kTop)));
      is_on = true;
    }
    return text;
  };
  std::string svg = fmt::format("<path d=\"M0 {0}H{1}M0 {2}H{1}\" stroke=\"var(--line)\"/>\n",
                                place_text(kBase), place_text(kWidth), place_text(kTop));
  for (const double mark : marks) {
    if (!(mark >= left && mark <= right)) continue;
    svg += fmt::format("<path d=\"M{0} {1}V{2}\" stroke=\"var(--plain)\"/>\n",
                       place_text((mark - left) / width * kWidth), place_text(kTop),
                       place_text(kBase));
  }
  if (!lower.points.empty() && lower.points.size() == upper.points.size()) {
    Curve band = upper;
    band.points.insert(band.points.end(), lower.points.rbegin(), lower.points.rend());
    svg +=
        fmt::format("<path d=\"{}Z\" fill=\"var(--int8)\" fill-opacity=\"0.25\"/>\n", path(band));
    svg += fmt::format("<path d=\"{}{}\" stroke=\"var(--int8)\"/>\n", path(lower), path(upper));
  }
  constexpr std::array kColours{"first", "second", "int8", "plain"};
  for (std::size_t i = 0; i < curves.size(); ++i) {
    svg += fmt::format(
        "<path d=\"{}\" stroke=\"var(--{})\" stroke-width=\"1.6\" stroke-linejoin=\"round\"/>\n",
        path(curves[i]), kColours[i % kColours.size()]);
  }
  svg += fmt::format("<text x=\"2\" y=\"{}\">{}</text><text x=\"2\" y=\"{}\">{}</text>\n",
                     place_text(kTop + 10.0), number_text(high, 3), place_text(kBase - 4.0),
                     number_text(low, 3));
  svg += axis_texts(left, right, kHeight - 6.0);
  return svg_of(kHeight, svg);
}

}  // namespace quanta::reporting
