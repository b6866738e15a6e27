#include "quanta/runtime/detail/cpu_limit.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <thread>

#include "quanta/runtime/error.h"
#include "quanta/runtime/parallel.h"
#include "support/files.h"

namespace quanta::test {
namespace {

void write(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text << "\n";
}

}  // namespace

TEST_CASE("cgroup quotas: the least one of the group and its parents, of both versions") {
  const TemporaryFolder folder;
  const std::filesystem::path root = folder / "cgroup";
  CHECK_FALSE(detail::cgroup_quota("0::/a/b\n", root));
  write(root / "cpu.max", "max 100000");
  CHECK_FALSE(detail::cgroup_quota("0::/\n", root));
  write(root / "a" / "cpu.max", "150000 100000");
  CHECK(detail::cgroup_quota("0::/a/b\n", root) == 1.5);
  write(root / "a" / "b" / "cpu.max", "400000 100000");
  CHECK(detail::cgroup_quota("0::/a/b\n", root) == 1.5);
  write(root / "a" / "b" / "cpu.max", "50000 100000");
  CHECK(detail::cgroup_quota("0::/a/b\n", root) == 0.5);
  write(root / "cpu" / "job" / "cpu.cfs_quota_us", "200000");
  write(root / "cpu" / "job" / "cpu.cfs_period_us", "100000");
  CHECK(detail::cgroup_quota("4:memory:/job\n3:cpu,cpuacct:/job\n", root) == 2.0);
  write(root / "cpu" / "job" / "cpu.cfs_quota_us", "-1");
  CHECK_FALSE(detail::cgroup_quota("3:cpu,cpuacct:/job\n", root));
}

TEST_CASE("cgroup quotas: texts that make no sense are none") {
  const TemporaryFolder folder;
  const std::filesystem::path root = folder / "cgroup";
  for (const char* text : {"", "x", "100000", "-5 10", "1 0", "nan nan"}) {
    write(root / "cpu.max", text);
    CHECK_FALSE(detail::cgroup_quota("0::/\n", root));
  }
  for (const char* text : {"", ":", "::", "0:", "0::/../../x", "0::/"}) {
    CHECK_FALSE(detail::cgroup_quota(text, root));
  }
}

TEST_CASE("threads: by default not more than the process may use; a choice is the thread's own") {
  CHECK(detail::usable_processors() >= 1);
  int before = 0;
  int chosen = 0;
  std::thread([&] {
    before = get_num_threads();
    set_num_threads(3);
    chosen = get_num_threads();
  }).join();
  CHECK(chosen == 3);
  int other = 0;
  std::thread([&] { other = get_num_threads(); }).join();
  CHECK(other == before);
}

TEST_CASE("set_num_threads: numbers that OpenMP could not start are refused") {
  std::thread([] {
    const int before = get_num_threads();
    for (const int count : {std::numeric_limits<int>::max(), kMaxThreads + 1, 0, -1}) {
      CHECK_THROWS_WITH_AS(set_num_threads(count), doctest::Contains("expected 1 to 1024"),
                           ArgumentError);
    }
    CHECK(get_num_threads() == before);
    set_num_threads(kMaxThreads);
    CHECK(get_num_threads() == kMaxThreads);
  }).join();
}

}  // namespace quanta::test
