#include "quanta/runtime/profile_table.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string_view>

namespace quanta {
namespace {

bool is_at_or_below(std::string_view path, std::string_view outer) {
  if (!path.starts_with(outer)) return false;
  return path.size() == outer.size() || (!outer.empty() && path[outer.size()] == '.');
}

bool any_at_or_below(const std::vector<ModuleTime>& modules, std::string_view outer) {
  return std::any_of(modules.begin(), modules.end(),
                     [&](const ModuleTime& module) { return is_at_or_below(module.path, outer); });
}

/// The paths at which both networks have something to compare.
std::set<std::string> common_paths(const std::vector<ModuleTime>& a,
                                   const std::vector<ModuleTime>& b) {
  std::set<std::string> paths;
  for (const ModuleTime& module : a) {
    if (any_at_or_below(b, module.path)) paths.insert(module.path);
  }
  for (const ModuleTime& module : b) {
    if (any_at_or_below(a, module.path)) paths.insert(module.path);
  }
  return paths;
}

/// The innermost of `paths` that holds `path`. Ops of the network itself are compared with
/// themselves only.
std::optional<std::string> innermost(const std::set<std::string>& paths, std::string path) {
  for (;;) {
    if (paths.contains(path)) return path;
    const std::size_t dot = path.rfind('.');
    if (dot == std::string::npos) return std::nullopt;
    path.resize(dot);
  }
}

/// The middle one of one or more values.
double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

std::vector<ModuleTime> median_times(const std::vector<std::vector<ModuleProfile>>& runs) {
  std::vector<ModuleTime> modules;
  std::map<std::string_view, std::vector<double>> times;
  for (const std::vector<ModuleProfile>& run : runs) {
    for (const ModuleProfile& row : run) {
      std::vector<double>& of_module = times[row.path];
      if (of_module.empty()) modules.push_back({row.path, row.ops, row.kernels, 0.0, row.work});
      of_module.push_back(row.op_us);
    }
  }
  for (ModuleTime& module : modules) module.us = median(times[module.path]);
  return modules;
}

ProfileComparison compare_profiles(const std::vector<ModuleTime>& quantized,
                                   const std::vector<ModuleTime>& in_float) {
  const std::set<std::string> paths = common_paths(quantized, in_float);
  struct Sums {
    double quantized_us = 0.0;
    std::optional<double> float_us;
  };
  std::map<std::string, Sums> sums;
  ProfileComparison result;
  for (const ModuleTime& module : in_float) {
    if (const auto path = innermost(paths, module.path)) {
      Sums& at = sums[*path];
      at.float_us = at.float_us.value_or(0.0) + module.us;
    }
  }
  for (const ModuleTime& module : quantized) {
    if (const auto path = innermost(paths, module.path)) sums[*path].quantized_us += module.us;
  }
  std::set<std::string> shown;
  for (const ModuleTime& module : quantized) {
    ComparedModule row{module, {}, module.us, innermost(paths, module.path)};
    // The float time stands once, with the first module that it is compared with.
    if (row.compared_at && shown.insert(*row.compared_at).second) {
      row.float_us = sums[*row.compared_at].float_us;
      row.compared_us = sums[*row.compared_at].quantized_us;
    }
    result.modules.push_back(std::move(row));
  }
  for (const ModuleTime& module : in_float) {
    const auto path = innermost(paths, module.path);
    if (!path || !shown.contains(*path)) result.float_only.push_back(module);
  }
  return result;
}

}  // namespace quanta
