#pragma once

// Private: the pictures of a report, as HTML and SVG.

#include <string>
#include <utility>
#include <vector>

#include "quanta/fusion/report.h"

namespace quanta::reporting {

/// Two bars for each name, of values of 0 or more; those that are not finite fill the line or are
/// left out.
struct BarRow {
  std::string name;
  double first = 0.0, second = 0.0;
  std::string text;  ///< behind them, HTML
};
/// Lines every `step`.
std::string bars(const std::vector<BarRow>& rows, double most, double step,
                 const std::string& first_class, const std::string& second_class);
/// The line that says which colour is which.
std::string key(const std::vector<std::pair<std::string, std::string>>& classes);

/// A picture below its name and a line about it, which is HTML.
std::string figure(const std::string& name, const std::string& about, const std::string& svg);

/// Values in float, filled, and quantized, as a line; the codes below, the numbers beyond them
/// shaded.
std::string histogram_figure(const LayerReport& layer);
/// The range of each channel of the weight, and its SQNR below.
std::string channels_figure(const LayerReport& layer);
/// The nodes in rows, each below those whose results it takes; "" where they are too many.
std::string graph_picture(const std::vector<ReportNode>& nodes,
                          const std::vector<LayerReport>& layers);
inline constexpr std::size_t kMostNodes = 2000;

/// A curve of (x, y), for `line_chart`; it has gaps where y is not finite.
struct Curve {
  std::string name;
  std::vector<std::pair<double, double>> points;
};
/// Curves in one picture, in the order of the colours; a band where `lower` and `upper` have as many
/// points as each other; upright lines at `marks`.
std::string line_chart(const std::vector<Curve>& curves, const Curve& lower, const Curve& upper,
                       const std::vector<double>& marks);

}  // namespace quanta::reporting
