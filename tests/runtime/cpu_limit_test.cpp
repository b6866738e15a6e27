#include "quanta/runtime/detail/cpu_limit.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <thread>

#include "quanta/runtime/detail/openmp.h"
#include "quanta/runtime/detail/sanitizers.h"
#include "quanta/runtime/detail/startable.h"
#include "quanta/runtime/detail/team.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/parallel.h"
#include "support/files.h"
#include "support/threads.h"

namespace quanta::test {
namespace {

void write(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text << "\n";
}

constexpr int kNoLimit = 77;

/// In a child: as a user for whom the limit holds. False where there is none.
bool limit_threads(rlim_t most) {
  const rlimit limit{most, most};
  constexpr uid_t kNobody = 65534;
  if (::setrlimit(RLIMIT_NPROC, &limit) != 0) return false;
  if (::getuid() == 0 && ::setuid(kNobody) != 0) return false;
  return detail::startable_threads(static_cast<int>(most)) < static_cast<int>(most);
}

/// The text of what set_num_threads throws.
std::string refusal(int threads) {
  try {
    set_num_threads(threads);
    return {};
  } catch (const BackendError& error) {
    return error.what();
  }
}

constexpr std::int64_t kSum = 99 * 100 / 2;
std::int64_t sum_of_parts() {
  std::atomic<std::int64_t> sum{0};
  parallel_for(100, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) sum += i;
  });
  return sum;
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
  }).join();
}

TEST_CASE("startable_threads: as many as are asked for where nothing limits them") {
  CHECK(detail::startable_threads(0) == 0);
  CHECK(detail::startable_threads(5) == 5);
}

TEST_CASE("set_num_threads: what a limit of the system does not let start is refused") {
  const auto child = [](rlim_t most, const auto& body) {
    const pid_t pid = ::fork();
    if (pid == 0) ::_exit(limit_threads(most) ? static_cast<int>(body()) : kNoLimit);
    REQUIRE(pid > 0);
    int status = -1;
    REQUIRE(::waitpid(pid, &status, 0) == pid);
    REQUIRE(WIFEXITED(status));
    return WEXITSTATUS(status);
  };
  // None at all: the caller does all parts itself, and has one thread by default.
  const int alone = child(1, [] {
    set_num_threads(1);
    return refusal(kMaxThreads).find("RLIMIT_NPROC") != std::string::npos &&
           get_num_threads() == 1 && sum_of_parts() == kSum;
  });
  if (alone == kNoLimit) {
    MESSAGE("skipped: RLIMIT_NPROC does not hold for this user");
    return;
  }
  CHECK(alone == 1);
  // Some, unless other processes of that user have them all.
  const int few = child(600, [] {
    if (detail::startable_threads(40) < 40) return 2;
    int good = 0;
    std::thread([&] {  // for it has no helpers yet
      set_num_threads(3);
      const bool refused = !refusal(kMaxThreads).empty() && get_num_threads() == 3;
      // Both kinds of threads.
      const bool ours = sum_of_parts() == kSum;
      detail::note_openmp();
      good = refused && ours && sum_of_parts() == kSum ? 1 : 0;
    })
        .join();
    return good;
  });
  if (few == 2) {
    MESSAGE("skipped: that user has many processes");
  } else {
    CHECK(few == 1);
  }
}

// Under ThreadSanitizer every other loop is one of OpenMP's, which cannot do without.
#if !QUANTA_THREAD_SANITIZER
TEST_CASE("parallel_for: helpers that cannot be started are done without") {
  const pid_t pid = ::fork();
  if (pid == 0) {
    const Threads before_the_limit(3);
    if (!limit_threads(1)) ::_exit(kNoLimit);
    bool good = get_num_threads() == 3;
    for (int i = 0; i < 10; ++i) {
      good = good && sum_of_parts() == kSum;
      detail::run_team(3, [&](const detail::Team& team) { good = good && team.size() == 1; });
    }
    ::_exit(good ? 1 : 0);
  }
  REQUIRE(pid > 0);
  int status = -1;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNoLimit) {
    MESSAGE("skipped: RLIMIT_NPROC does not hold for this user");
  } else {
    CHECK(WEXITSTATUS(status) == 1);
  }
}
#endif

}  // namespace quanta::test
