#include "quanta/runtime/profile_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>

namespace quanta {
namespace {

/// What happens to a column when lines are too long.
struct Room {
  std::size_t least = 0;  ///< that text may be shortened to; 0: a column of numbers, as it is
  int given_up = 0;       ///< the higher, the sooner it is left out; 0: never
};

struct Column {
  std::string name;
  Room room;
  std::vector<std::string> cells{};
  std::size_t width = 0;

  bool is_text() const { return room.least > 0; }
  std::size_t natural() const {
    std::size_t width_of_all = name.size();
    for (const std::string& cell : cells) width_of_all = std::max(width_of_all, cell.size());
    return width_of_all;
  }
  std::size_t least() const { return is_text() ? std::min(natural(), room.least) : natural(); }
  bool is_empty() const {
    return std::all_of(cells.begin(), cells.end(),
                       [](const std::string& cell) { return cell.empty() || cell == "-"; });
  }
};

constexpr std::size_t kBetween = 2;

std::size_t least_width(const std::vector<Column>& columns) {
  std::size_t width = kBetween * (columns.size() - 1);
  for (const Column& column : columns) width += column.least();
  return width;
}

/// Leaves out and shortens until lines fit; gives the names of what was left out.
std::vector<std::string> fit(std::vector<Column>& columns, std::size_t width) {
  std::vector<std::string> left_out;
  for (Column& column : columns) column.width = column.natural();
  if (width == 0) return left_out;
  while (least_width(columns) > width) {
    const auto first = std::max_element(
        columns.begin(), columns.end(),
        [](const Column& a, const Column& b) { return a.room.given_up < b.room.given_up; });
    if (first->room.given_up == 0) break;
    left_out.push_back(first->name);
    columns.erase(first);
  }
  const std::size_t least = least_width(columns);
  std::size_t spare = width > least ? width - least : 0;
  for (Column& column : columns) {
    if (!column.is_text()) continue;
    const std::size_t more = std::min(spare, column.natural() - column.least());
    column.width = column.least() + more;
    spare -= more;
  }
  return left_out;
}

/// The end of a path tells more than its beginning.
std::string shortened(const std::string& text, std::size_t length, bool keep_end) {
  if (text.size() <= length) return text;
  return keep_end ? ".." + text.substr(text.size() - (length - 2))
                  : text.substr(0, length - 2) + "..";
}

std::string line_of(const std::vector<Column>& columns,
                    const std::function<const std::string&(const Column&)>& cell) {
  std::string line;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const Column& column = columns[i];
    const std::string text = shortened(cell(column), column.width, i == 0);
    line += column.is_text() ? fmt::format("{:<{}}", text, column.width)
                             : fmt::format("{:>{}}", text, column.width);
    line.append(kBetween, ' ');
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::string number_or_dash(double value, int digits) {
  return value > 0.0 ? fmt::format("{:.{}f}", value, digits) : "-";
}
std::string percent_or_dash(double share) {
  return share > 0.0 ? fmt::format("{:.1f}%", 100.0 * share) : "-";
}

/// A share of what the machine gives; none where that is not known.
double share_of(double value, double of) { return of > 0.0 ? value / of : 0.0; }

std::string float_cell(const ComparedModule& row) {
  if (row.float_us) return fmt::format("{:.1f}", *row.float_us);
  const bool elsewhere = row.compared_at && *row.compared_at != row.quantized.path;
  return elsewhere ? "(outer)" : "-";
}

std::string ratio_cell(const ComparedModule& row) {
  if (!row.float_us) return "-";
  return fmt::format("{:.2f}{}", *row.float_us / row.compared_us, row.is_slower() ? "*" : "");
}

/// The cells of a module in the order of `empty_columns`.
std::vector<std::string> cells_of(const ComparedModule& row, const ProfileTableOptions& options,
                                  double whole_us) {
  const ModuleTime& module = row.quantized;
  const MachineRates& machine = options.machine;
  const double giga_ops = giga_ops_per_second(module.work, module.us);
  const double giga_bytes = giga_bytes_per_second(module.work, module.us);
  const double read = machine.read_bandwidth && module.work.bytes > 0
                          ? machine.read_bandwidth(static_cast<std::size_t>(module.work.bytes))
                          : 0.0;
  const auto type = options.types.find(module.path);
  const auto plan = options.plan_us.find(module.path);
  return {module.path.empty() ? "(network)" : module.path,
          type == options.types.end() ? "" : type->second,
          fmt::format("{}", fmt::join(module.kernels, ", ")),
          fmt::format("{:.1f}", module.us),
          percent_or_dash(share_of(module.us, whole_us)),
          plan == options.plan_us.end() ? "-" : fmt::format("{:.1f}", plan->second),
          number_or_dash(giga_ops, 1),
          percent_or_dash(share_of(1e9 * giga_ops, machine.int8_ops)),
          percent_or_dash(share_of(1e9 * giga_ops, machine.tile_ops)),
          number_or_dash(giga_bytes, 1),
          percent_or_dash(share_of(1e9 * giga_bytes, read)),
          float_cell(row),
          ratio_cell(row)};
}

std::vector<Column> empty_columns() {
  return {{"module", {.least = 22}},
          {"type", {.least = 12, .given_up = 5}},
          {"kernel", {.least = 16, .given_up = 1}},
          {"us", {}},
          {"share", {}},
          {"plan us", {}},
          {"GOP/s", {.given_up = 2}},
          {"% peak", {}},
          {"% AMX", {.given_up = 3}},
          {"GB/s", {.given_up = 4}},
          {"% read", {}},
          {"float us", {}},
          {"ratio", {}}};
}

}  // namespace

std::string profile_table(const ProfileComparison& comparison, const ProfileTableOptions& options) {
  double whole_us = options.outside_us;
  for (const ComparedModule& row : comparison.modules) whole_us += row.quantized.us;
  std::vector<Column> columns = empty_columns();
  for (const ComparedModule& row : comparison.modules) {
    const std::vector<std::string> cells = cells_of(row, options, whole_us);
    for (std::size_t i = 0; i < cells.size(); ++i) columns[i].cells.push_back(cells[i]);
  }
  std::erase_if(columns,
                [](const Column& column) { return column.name != "module" && column.is_empty(); });
  const std::vector<std::string> left_out = fit(columns, options.width);
  std::string text =
      line_of(columns, [](const Column& column) -> const std::string& { return column.name; });
  for (std::size_t i = 0; i < comparison.modules.size(); ++i) {
    text += line_of(columns,
                    [&](const Column& column) -> const std::string& { return column.cells[i]; });
  }
  if (!left_out.empty()) {
    text += fmt::format("left out for want of room: {}\n", fmt::join(left_out, ", "));
  }
  return text;
}

std::string profile_table(const std::vector<ModuleTime>& modules,
                          const ProfileTableOptions& options) {
  return profile_table(compare_profiles(modules, {}), options);
}

}  // namespace quanta
