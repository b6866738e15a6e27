#include "quanta/runtime/detail/cpu_limit.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

namespace quanta::detail {
namespace {

namespace fs = std::filesystem;

std::optional<std::string> first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::optional<double> number(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  std::istringstream stream(*text);
  double value = 0.0;
  if (!(stream >> value)) return std::nullopt;
  return value;
}

// "max 100000" or "150000 100000".
std::optional<double> quota_v2(const fs::path& folder) {
  const std::optional<std::string> line = first_line(folder / "cpu.max");
  if (!line) return std::nullopt;
  std::istringstream stream(*line);
  double quota = 0.0;
  double period = 0.0;
  if (!(stream >> quota >> period) || quota <= 0.0 || period <= 0.0) return std::nullopt;
  return quota / period;
}

std::optional<double> quota_v1(const fs::path& folder) {
  const std::optional<double> quota = number(first_line(folder / "cpu.cfs_quota_us"));
  const std::optional<double> period = number(first_line(folder / "cpu.cfs_period_us"));
  if (!quota || !period || *quota <= 0.0 || *period <= 0.0) return std::nullopt;
  return *quota / *period;
}

void take_less(std::optional<double>& least, const std::optional<double>& quota) {
  if (quota && (!least || *quota < *least)) least = quota;
}

// The folder of a group and those of its parents. In a container the path may be one outside.
template <typename Quota>
void walk_up(const fs::path& root, const std::string& group, Quota&& quota,
             std::optional<double>& least) {
  fs::path inner = fs::path(group).relative_path().lexically_normal();
  for (int depth = 0; depth < 64; ++depth) {
    take_less(least, quota(root / inner));
    if (inner.empty() || inner == ".") return;
    inner = inner.parent_path();
  }
}

}  // namespace

std::optional<double> cgroup_quota(const std::string& cgroup, const fs::path& root) {
  std::optional<double> least;
  std::istringstream lines(cgroup);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    if (group.find("..") != std::string::npos) continue;
    if (controllers == ",,") {
      walk_up(root, group, quota_v2, least);
    } else if (controllers.find(",cpu,") != std::string::npos) {
      walk_up(root / "cpu", group, quota_v1, least);
    }
  }
  return least;
}

int usable_processors() {
  int count = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) count = std::max(1, CPU_COUNT(&set));
  std::ifstream file("/proc/self/cgroup");
  std::ostringstream text;
  text << file.rdbuf();
  const std::optional<double> quota = cgroup_quota(text.str(), "/sys/fs/cgroup");
  if (!quota) return count;
  return std::clamp(static_cast<int>(std::ceil(std::min(*quota, 1e6))), 1, count);
}

}  // namespace quanta::detail
