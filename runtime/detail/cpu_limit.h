#pragma once

// Private: how many processors this process may use at once.

#include <filesystem>
#include <optional>
#include <string>

namespace quanta::detail {

/// The quota that a container's cgroup has, in processors (1.5: one and a half): of `cgroup`, the text
/// of /proc/self/cgroup, or of a parent, whichever is least. `root` is /sys/fs/cgroup. Version 2
/// (cpu.max) and 1 (cpu.cfs_quota_us). Nothing where there is none, or nothing can be read.
std::optional<double> cgroup_quota(const std::string& cgroup, const std::filesystem::path& root);

/// The processors of the process's affinity, or its quota rounded up where that is less. At least 1.
int usable_processors();

}  // namespace quanta::detail
