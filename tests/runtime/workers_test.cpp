#include "quanta/runtime/detail/workers.h"

#include <doctest/doctest.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "quanta/runtime/detail/cpu_limit.h"
#include "quanta/runtime/detail/openmp.h"
#include "quanta/runtime/detail/sanitizers.h"
#include "quanta/runtime/detail/team.h"
#include "quanta/runtime/parallel.h"
#include "support/threads.h"

namespace quanta::test {
namespace {

using detail::Workers;

/// Counts how often each of [0, count) is done.
std::vector<int> count_items(std::int64_t count, std::int64_t grain) {
  std::vector<int> done(static_cast<std::size_t>(count));
  parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) ++done[static_cast<std::size_t>(i)];
  });
  return done;
}

bool each_once(const std::vector<int>& done) {
  return static_cast<std::size_t>(std::count(done.begin(), done.end(), 1)) == done.size();
}

}  // namespace

TEST_CASE("parallel_for: each item is done once by any number of threads") {
  for (const int threads : {1, 2, 3, 7}) {
    const Threads guard(threads);
    CAPTURE(threads);
    for (std::int64_t count = 0; count < 200; ++count) CHECK(each_once(count_items(count, 1)));
    CHECK(each_once(count_items(1000, 300)));
  }
}

TEST_CASE("parallel_for: loops follow loops and pauses") {
  const Threads guard(3);
  for (int round = 0; round < 3000; ++round) {
    REQUIRE(each_once(count_items(5, 1)));
    // Now and then long enough for the helpers to sleep.
    if (round % 500 == 0) ::usleep(2000);
  }
}

TEST_CASE("parallel_for: loops of OpenMP's threads and of ours take turns") {
  const Threads guard(3);
  for (int round = 0; round < 3; ++round) {
    detail::note_openmp();
    for (int i = 0; i < 600; ++i) REQUIRE(each_once(count_items(7, 1)));
  }
}

TEST_CASE("parallel_for: what a part throws reaches the caller when all parts are over") {
  const Threads guard(4);
  for (const bool openmp : {false, true}) {
    for (std::int64_t bad = 0; bad < 4; ++bad) {
      if (openmp) detail::note_openmp();
      std::atomic<int> parts{0};
      auto body = [&](std::int64_t begin, std::int64_t) {
        ++parts;
        if (begin == bad) throw std::runtime_error("part " + std::to_string(bad));
      };
      CHECK_THROWS_WITH_AS(parallel_for(4, 1, body), ("part " + std::to_string(bad)).c_str(),
                           std::runtime_error);
      CHECK(parts == 4);
      CHECK(each_once(count_items(9, 1)));
    }
  }
}

TEST_CASE("parallel_for: a loop in a loop has one thread") {
  const Threads guard(3);
  std::atomic<int> threads{0};
  std::atomic<int> items{0};
  parallel_for(3, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      threads += get_num_threads();
      parallel_for(10, 1, [&](std::int64_t first, std::int64_t last) {
        items += static_cast<int>(last - first);
      });
    }
  });
  CHECK(threads == 3);
  CHECK(items == 30);
  CHECK(get_num_threads() == 3);
}

TEST_CASE("parallel_for: a caller has the first part where it has one alone") {
  if (QUANTA_THREAD_SANITIZER) return;  // every other loop is OpenMP's there
  const std::thread::id caller = std::this_thread::get_id();
  int shared = 0;
  for (const int threads : {2, 3, 5}) {
    const Threads guard(threads);
    for (int round = 0; round < 300; ++round) {
      std::vector<std::thread::id> by(static_cast<std::size_t>(threads));
      std::atomic<int> begun{0};
      parallel_for(threads, 1, [&](std::int64_t begin, std::int64_t) {
        by[static_cast<std::size_t>(begin)] = std::this_thread::get_id();
        ++begun;
        // Until each part has a thread; not for long, as helpers may have no processor.
        for (int turn = 0; turn < 100 && begun < threads; ++turn) std::this_thread::yield();
      });
      if (std::ranges::count(by, caller) != 1) continue;
      CHECK(by[0] == caller);
      ++shared;
    }
  }
  if (detail::usable_processors() > 1) CHECK(shared > 0);
}

TEST_CASE("parallel_for: many callers have helpers of their own") {
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 6; ++caller) {
    callers.emplace_back([&] {
      const Threads guard(3);
      for (int round = 0; round < 300; ++round) wrong += each_once(count_items(6, 1)) ? 0 : 1;
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK(wrong == 0);
}

// Under ThreadSanitizer every other loop is one of OpenMP's, whoever has a processor.
#if !QUANTA_THREAD_SANITIZER
TEST_CASE("parallel_for: helpers without a processor of their own leave the work to the caller") {
  int wrong = 0;
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(sched_getcpu()), &one);
    const bool bound = pthread_setaffinity_np(pthread_self(), sizeof(one), &one) == 0;
    const Threads guard(3);
    for (int round = 0; round < 300; ++round) {
      std::vector<std::thread::id> threads(3);
      parallel_for(3, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          threads[static_cast<std::size_t>(i)] = std::this_thread::get_id();
        }
      });
      for (const std::thread::id id : threads) {
        if (id == std::thread::id() || (bound && id != std::this_thread::get_id())) ++wrong;
      }
      detail::run_team(3, [&](const detail::Team& team) { team.barrier(); });
    }
  }).join();
  CHECK(wrong == 0);
}
#endif

TEST_CASE("Workers: helpers that are about to end a part end with their owner") {
  // The owner is ready as soon as the helper says so, which then has not looked for more yet.
  for (int round = 0; round < 3000; ++round) {
    Workers workers;
    std::atomic<int> sum{0};
    const auto add = [](void* self, int part) noexcept {
      *static_cast<std::atomic<int>*>(self) += part;
      std::atomic<int> steps{0};
      while (steps.fetch_add(1) < 1000) {
      }
    };
    for (int job = 0; job < 4; ++job) workers.run(3, &sum, add);
    REQUIRE(sum == 12);
  }
}

TEST_CASE("Workers: a helper that does not come is not waited for") {
  // Each helper that takes a part keeps it until the caller has done all others itself.
  Workers workers;
  struct Job {
    std::thread::id caller = std::this_thread::get_id();
    std::atomic<int> left{0}, held{0};
  };
  for (int round = 0; round < 200; ++round) {
    Job job;
    job.left = 20;
    workers.run(20, &job, [](void* self, int) noexcept {
      auto& of = *static_cast<Job*>(self);
      --of.left;
      if (std::this_thread::get_id() == of.caller) return;
      ++of.held;
      while (of.left > 0) std::this_thread::yield();
    });
    CHECK(job.left == 0);
    CHECK(job.held <= 19);  // of 19 helpers
  }
}

TEST_CASE("Workers: a team has ranks without gaps") {
  Workers workers;
  struct Job {
    std::atomic<int> ranks{0}, sizes{0}, members{0};
  };
  for (int round = 0; round < 500; ++round) {
    Job job;
    workers.run_together(4, &job, [](void* self, int rank, int size) noexcept {
      auto& of = *static_cast<Job*>(self);
      of.ranks += rank;
      of.sizes += size;
      ++of.members;
    });
    const int members = job.members;
    REQUIRE(members >= 1);
    REQUIRE(members <= 4);
    REQUIRE(job.ranks == members * (members - 1) / 2);
    REQUIRE(job.sizes == members * members);
  }
}

TEST_CASE("run_team: teams after pauses meet at barriers") {
  const Threads guard(3);
  for (int round = 0; round < 20; ++round) {
    if (round % 5 == 0) ::usleep(1000);
    std::vector<int> written(3);
    std::atomic<int> wrong{0};
    detail::run_team(3, [&](const detail::Team& team) {
      for (int step = 1; step < 50; ++step) {
        written[static_cast<std::size_t>(team.rank())] = step;
        team.barrier();
        for (int rank = 0; rank < team.size(); ++rank) {
          if (written[static_cast<std::size_t>(rank)] != step) ++wrong;
        }
        team.barrier();
      }
    });
    CHECK(wrong == 0);
  }
}

TEST_CASE("parallel_for: a child of fork has helpers of its own") {
  const Threads guard(3);
  CHECK(each_once(count_items(30, 1)));
  const pid_t child = ::fork();
  if (child == 0) {
    bool good = true;
    for (int i = 0; i < 20; ++i) good = good && each_once(count_items(30, 1));
    ::_exit(good ? 0 : 1);
  }
  REQUIRE(child > 0);
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(each_once(count_items(30, 1)));
}

}  // namespace quanta::test
