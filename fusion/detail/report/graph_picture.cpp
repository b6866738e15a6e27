#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "quanta/fusion/detail/report/charts.h"
#include "quanta/fusion/detail/report/page.h"

// A drawing in rows (Sugiyama's): each node a row below the last of those whose results it takes;
// where a result goes further than a row, a place in each row between is kept for its line; then the
// nodes of a row are put near the means of those above and below.

namespace quanta::reporting {
namespace {

constexpr double kNodeWidth = 168.0, kNodeHeight = 34.0, kColumn = 184.0, kRow = 56.0,
                 kNarrow = 28.0;

/// A node of the report, or a place for a line.
struct Place {
  std::size_t node = 0;
  bool is_line = false;
  std::size_t row = 0;
  double x = 0.0;                  ///< its middle
  std::vector<std::size_t> above;  ///< places in the row before
  std::vector<std::size_t> below;
};

class Layout {
 public:
  explicit Layout(const std::vector<ReportNode>& nodes) {
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      Place place{.node = i, .above = {}, .below = {}};
      for (const std::size_t input : nodes[i].inputs) {
        if (input < i) place.row = std::max(place.row, places[input].row + 1);
      }
      places.push_back(std::move(place));
    }
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      for (const std::size_t input : nodes[i].inputs) {
        if (input < i) connect(input, i);
      }
    }
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (places[i].row >= rows.size()) rows.resize(places[i].row + 1);
      rows[places[i].row].push_back(i);
    }
    constexpr int kSweeps = 4;
    for (auto& row : rows) spread(row);
    for (int i = 0; i < kSweeps; ++i) {
      for (std::size_t r = 1; r < rows.size(); ++r) sort(rows[r], &Place::above);
      for (std::size_t r = rows.size(); r-- > 1;) sort(rows[r - 1], &Place::below);
    }
    for (std::size_t r = 1; r < rows.size(); ++r) sort(rows[r], &Place::above);
  }

  std::vector<Place> places;
  std::vector<std::vector<std::size_t>> rows;

 private:
  /// All lines from a node share their way down.
  void connect(std::size_t from, std::size_t to) {
    std::size_t last = from;
    for (std::size_t row = places[from].row + 1; row < places[to].row; ++row) {
      const auto [known, is_new] = lines_.try_emplace({from, row}, places.size());
      if (is_new) {
        places.push_back({.node = from, .is_line = true, .row = row, .above = {last}, .below = {}});
        places[last].below.push_back(known->second);
      }
      last = known->second;
    }
    places[to].above.push_back(last);
    places[last].below.push_back(to);
  }
  /// Side by side around 0, in this order.
  void spread(const std::vector<std::size_t>& row) {
    double width = 0.0;
    for (const std::size_t i : row) width += places[i].is_line ? kNarrow : kColumn;
    double x = -0.5 * width;
    for (const std::size_t i : row) {
      const double own = places[i].is_line ? kNarrow : kColumn;
      places[i].x = x + 0.5 * own;
      x += own;
    }
  }
  void sort(std::vector<std::size_t>& row, std::vector<std::size_t> Place::*neighbours) {
    std::map<std::size_t, double> wish;
    for (const std::size_t i : row) {
      double sum = 0.0;
      for (const std::size_t other : places[i].*neighbours) sum += places[other].x;
      const std::size_t count = (places[i].*neighbours).size();
      wish[i] = count == 0 ? places[i].x : sum / static_cast<double>(count);
    }
    std::stable_sort(row.begin(), row.end(),
                     [&](std::size_t a, std::size_t b) { return wish[a] < wish[b]; });
    spread(row);
    // The row as a whole goes where its members want to be.
    double shift = 0.0;
    for (const std::size_t i : row) shift += wish[i] - places[i].x;
    shift /= static_cast<double>(std::max<std::size_t>(row.size(), 1));
    for (const std::size_t i : row) places[i].x += shift;
  }

  std::map<std::pair<std::size_t, std::size_t>, std::size_t> lines_;
};

const char* colour_of(LayerKind kind) {
  switch (kind) {
    case LayerKind::Float:
      return "plain";
    case LayerKind::Codes:
      return "int8";
    case LayerKind::CodedWeight:
    case LayerKind::Simulated:
      return "second";
  }
  return "plain";
}

}  // namespace

std::string graph_picture(const std::vector<ReportNode>& nodes,
                          const std::vector<LayerReport>& layers) {
  if (nodes.empty() || nodes.size() > kMostNodes) return "";
  const Layout layout(nodes);
  double left = 0.0, right = 0.0;
  for (const Place& place : layout.places) {
    left = std::min(left, place.x - 0.5 * kNodeWidth);
    right = std::max(right, place.x + 0.5 * kNodeWidth);
  }
  const auto y = [](const Place& place) { return 6.0 + kRow * static_cast<double>(place.row); };
  std::string lines, boxes;
  for (const Place& place : layout.places) {
    const double x = place.x - left + 6.0;
    const double top = y(place);
    for (const std::size_t from : place.above) {
      const Place& other = layout.places[from];
      const double x0 = other.x - left + 6.0, y0 = y(other) + kNodeHeight;
      const double middle = 0.5 * (y0 + top);
      lines += fmt::format("M{} {}C{} {} {} {} {} {}", place_text(x0), place_text(y0),
                           place_text(x0), place_text(middle), place_text(x), place_text(middle),
                           place_text(x), place_text(top));
    }
    if (place.is_line) {
      lines +=
          fmt::format("M{} {}V{}", place_text(x), place_text(top), place_text(top + kNodeHeight));
      continue;
    }
    const ReportNode& node = nodes[place.node];
    const char* colour = colour_of(node.kind);
    constexpr std::size_t kNameLetters = 23, kTypeLetters = 20;
    std::string detail = shortened(node.type, kTypeLetters);
    if (node.layer && *node.layer < layers.size()) {
      detail += " " + decibels_text(layers[*node.layer].sqnr);
    }
    boxes += fmt::format(
        "<g><title>{0}: {1}</title><rect x=\"{2}\" y=\"{3}\" width=\"{4}\" height=\"{5}\" rx=\"6\" "
        "fill=\"var(--{6}-soft)\" stroke=\"var(--{6})\"/><text class=\"label\" x=\"{7}\" "
        "y=\"{8}\">{9}</text><text x=\"{7}\" y=\"{10}\">{11}</text></g>\n",
        escape(node.name), escape(node.type), place_text(x - 0.5 * kNodeWidth), place_text(top),
        place_text(kNodeWidth), place_text(kNodeHeight), colour,
        place_text(x - 0.5 * kNodeWidth + 7.0), place_text(top + 14.0),
        escape(shortened(node.name, kNameLetters)), place_text(top + 27.0), escape(detail));
  }
  const double width = right - left + 12.0;
  const double height = kRow * static_cast<double>(layout.rows.size());
  return fmt::format(
      "<svg width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" role=\"img\" "
      "fill=\"none\">\n<path "
      "d=\"{2}\" stroke=\"var(--dim)\" stroke-opacity=\"0.6\"/>\n{3}</svg>\n",
      place_text(width), place_text(height), lines, boxes);
}

}  // namespace quanta::reporting
