#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "quanta/fusion/detail/report/page.h"
#include "quanta/fusion/report.h"

namespace quanta {

using reporting::decibels_text;
using reporting::escape;
using reporting::place_text;
using reporting::shortened;

std::string to_svg(const Report& report) {
  constexpr std::size_t kMostLayers = 40;
  constexpr double kWidth = 820.0, kLeft = 230.0, kRight = 700.0, kTop = 92.0, kRow = 24.0;
  const std::size_t count = std::min(report.layers.size(), kMostLayers);
  double most = 40.0;
  for (std::size_t i = 0; i < count; ++i) {
    const LayerReport& layer = report.layers[i];
    if (std::isfinite(layer.sqnr)) most = std::max(most, layer.sqnr);
    const double alone = layer.sqnr_alone.value_or(0.0);
    if (std::isfinite(alone)) most = std::max(most, alone);
  }
  const double height = kTop + kRow * static_cast<double>(count) + 22.0;
  const auto length = [&](double decibels) {
    if (std::isnan(decibels)) return 0.0;
    return (kRight - kLeft) * std::clamp(decibels / most, 0.0, 1.0);
  };
  std::string summary;
  if (!report.outputs.empty()) {
    summary = fmt::format("output {} dB", decibels_text(report.outputs[0].sqnr));
  }
  if (report.top1) {
    summary +=
        fmt::format(", top-1 {:.2f} % ({:.2f} % in float)", *report.top1, *report.float_top1);
  }
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" role=\"img\">\n<style>{2}text{{font:12px "
      "system-ui,sans-serif;fill:var(--ink)}}"
      ".dim{{fill:var(--dim)}}.name{{font:12px ui-monospace,monospace}}</style>\n"
      "<rect width=\"{0}\" height=\"{1}\" rx=\"10\" fill=\"var(--card)\" stroke=\"var(--line)\"/>\n"
      "<text x=\"20\" y=\"30\" style=\"font-size:17px;font-weight:600\">{3}</text>\n"
      "<text x=\"20\" y=\"50\" class=\"dim\">{4}</text>\n",
      place_text(kWidth), place_text(height), reporting::colours(),
      escape(shortened(report.title, 80)), escape(summary));
  svg +=
      "<rect x=\"20\" y=\"62\" width=\"11\" height=\"11\" rx=\"3\" fill=\"var(--first)\"/>"
      "<text x=\"37\" y=\"72\" class=\"dim\">SQNR in dB, accumulated</text>"
      "<rect x=\"200\" y=\"62\" width=\"11\" height=\"11\" rx=\"3\" fill=\"var(--second)\"/>"
      "<text x=\"217\" y=\"72\" class=\"dim\">the layer alone</text>\n";
  for (double decibels = 0.0; decibels <= most; decibels += 10.0) {
    const std::string x = place_text(kLeft + length(decibels));
    svg += fmt::format(
        "<path d=\"M{0} {1}V{2}\" stroke=\"var(--line)\"/><text x=\"{0}\" y=\"{3}\" class=\"dim\" "
        "text-anchor=\"middle\">{4}</text>\n",
        x, place_text(kTop - 6.0), place_text(height - 18.0), place_text(height - 5.0),
        place_text(decibels));
  }
  for (std::size_t i = 0; i < count; ++i) {
    const LayerReport& layer = report.layers[i];
    const double y = kTop + kRow * static_cast<double>(i);
    const double alone = layer.sqnr_alone.value_or(NAN);
    svg += fmt::format("<text x=\"20\" y=\"{}\" class=\"name\">{}</text>", place_text(y + 13.0),
                       escape(shortened(layer.name, 28)));
    const char* bar =
        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"8\" rx=\"2\" fill=\"var(--{})\"/>";
    svg += fmt::format(fmt::runtime(bar), place_text(kLeft), place_text(y),
                       place_text(length(layer.sqnr)), "first");
    svg += fmt::format(fmt::runtime(bar), place_text(kLeft), place_text(y + 10.0),
                       place_text(length(alone)), "second");
    svg += fmt::format("<text x=\"{}\" y=\"{}\" class=\"dim\" text-anchor=\"end\">{} / {}</text>\n",
                       place_text(kWidth - 20.0), place_text(y + 13.0), decibels_text(layer.sqnr),
                       decibels_text(alone));
  }
  return svg + "</svg>\n";
}

}  // namespace quanta
