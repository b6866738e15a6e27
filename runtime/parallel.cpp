#include "quanta/runtime/parallel.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <mutex>

#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/detail/cpu_limit.h"
#include "quanta/runtime/detail/item_loop.h"
#include "quanta/runtime/detail/openmp.h"
#include "quanta/runtime/detail/sanitizers.h"
#include "quanta/runtime/detail/startable.h"
#include "quanta/runtime/detail/team.h"
#include "quanta/runtime/detail/workers.h"

namespace quanta {
namespace {

// OpenMP keeps a number for each thread, and knows of affinities but not of containers' quotas.
thread_local bool has_number = false;
// It has been seen to get as many, so that a number that it had may always be set again.
thread_local int known_to_start = 1;

/// The threads that start for a caller with so many: helpers of ours, and OpenMP's.
int started_for(int threads) {
  return threads - 1 + std::min(threads, std::max(omp_get_thread_limit(), 1)) - 1;
}

void choose_number() {
  has_number = true;
  static const int usable =
      std::getenv("OMP_NUM_THREADS") == nullptr ? detail::usable_processors() : kMaxThreads;
  // The process has been seen to get as many.
  static std::atomic<int> known{1};
  int number = std::min({usable, kMaxThreads, omp_get_max_threads()});
  if (number > known.load(std::memory_order_relaxed)) {
    const int needed = started_for(number);
    const int started = detail::startable_threads(needed);
    if (started == needed) {
      known.store(number, std::memory_order_relaxed);
    } else {
      number = std::min(number, 1 + started / 2);
    }
  }
  known_to_start = number;
  if (omp_get_max_threads() > number) omp_set_num_threads(number);
}

}  // namespace

void set_num_threads(int threads) {
  QUANTA_CHECK(threads >= 1 && threads <= kMaxThreads,
               "set_num_threads: threads: expected 1 to {}, got {}", kMaxThreads, threads);
  if (threads > known_to_start) {
    // OpenMP would end the process.
    const int needed = started_for(threads);
    const int started = detail::startable_threads(needed);
    if (started < needed) {
      throw BackendError(fmt::format(
          "set_num_threads: threads: expected a number that the process may have, got {}"
          ": of {} further threads, Quanta's and OpenMP's, {} could be started (raise "
          "RLIMIT_NPROC, ulimit -u, or the pids limit of the container, or take fewer)",
          threads, needed, started));
    }
    known_to_start = threads;
  }
  has_number = true;
  omp_set_num_threads(threads);
}

// Inside a parallel loop everything runs on the calling thread.
int get_num_threads() {
  if (detail::Workers::is_inside() || omp_in_parallel() != 0) return 1;
  if (!has_number) [[unlikely]]
    choose_number();
  return std::min(omp_get_max_threads(), kMaxThreads);
}

namespace detail {

namespace {

// OpenMP's threads wait for some milliseconds after each region, actively: helpers of ours beside
// them would get no processor. Where oneDNN runs now and then, the other loops use its threads.
constexpr int kOtherLoops = 256;
thread_local int loops_since_openmp = kOtherLoops;

bool openmp_is_awake() {
#if QUANTA_THREAD_SANITIZER
  // Helpers of ours often come too late for a short part, whose races nobody would see. All threads
  // of OpenMP take theirs: every other loop is one of OpenMP's.
  static thread_local bool uses_openmp = false;
  uses_openmp = !uses_openmp;
  if (uses_openmp) return true;
#endif
  if (loops_since_openmp >= kOtherLoops) return false;
  ++loops_since_openmp;
  return true;
}

/// A loop in parts, whose exceptions are kept.
struct Loop {
  std::int64_t count;
  std::int64_t parts;
  void* body;
  void (*call)(void*, std::int64_t, std::int64_t);
  std::mutex mutex{};
  std::exception_ptr error{};

  void run(std::int64_t part, std::int64_t of) noexcept {
    const std::int64_t begin = count * part / of;
    const std::int64_t end = count * (part + 1) / of;
    try {
      if (begin < end) call(body, begin, end);
    } catch (...) {
      const std::lock_guard lock(mutex);
      error = std::current_exception();
    }
  }
};

}  // namespace

void note_openmp() noexcept {
  if (omp_get_max_threads() > 1) loops_since_openmp = 0;
}

void forget_openmp() noexcept { loops_since_openmp = kOtherLoops; }

void parallel_for_impl(std::int64_t count, std::int64_t grain, void* body,
                       void (*call)(void*, std::int64_t, std::int64_t)) {
  const std::int64_t parts =
      std::min<std::int64_t>(get_num_threads(), ceil_div(count, std::max<std::int64_t>(grain, 1)));
  if (parts <= 1) {
    call(body, 0, count);
    return;
  }
  Loop loop{count, parts, body, call};
  if (openmp_is_awake()) {
#pragma omp parallel num_threads(static_cast <int>(parts))
    loop.run(omp_get_thread_num(), omp_get_num_threads());
  } else {
    Workers::mine().run(static_cast<int>(parts), &loop, [](void* self, int part) noexcept {
      auto& of = *static_cast<Loop*>(self);
      of.run(part, of.parts);
    });
  }
  if (loop.error) std::rethrow_exception(loop.error);
}

void for_each_item_impl(std::int64_t count, ItemLength length, void* body,
                        void (*call)(void*, std::int64_t, int)) {
  struct Items {
    std::int64_t count;
    void* body;
    void (*call)(void*, std::int64_t, int);
    std::atomic<std::int64_t> next{0};
    std::mutex mutex{};
    std::exception_ptr error{};

    void take(int worker) noexcept {
      try {
        for (std::int64_t item = next++; item < count; item = next++) call(body, item, worker);
      } catch (...) {
        next = count;
        const std::lock_guard lock(mutex);
        error = std::current_exception();
      }
    }
  } items{count, body, call};
  const auto workers = static_cast<int>(std::min<std::int64_t>(count, get_num_threads()));
  if (workers <= 1) {
    items.take(0);
  } else if (openmp_is_awake()) {
#pragma omp parallel num_threads(workers)
    items.take(omp_get_thread_num());
  } else {
    const auto run = length == ItemLength::Long ? &Workers::run_long : &Workers::run;
    (Workers::mine().*run)(workers, &items, [](void* self, int worker) noexcept {
      static_cast<Items*>(self)->take(worker);
    });
  }
  if (items.error) std::rethrow_exception(items.error);
}

void run_team_impl(int threads, void* body, void (*call)(void*, const Team&) noexcept) {
  Team::Meeting meeting;
  const int wanted = std::min(threads, get_num_threads());
  if (wanted <= 1) {
    call(body, Team(0, 1, meeting));
    return;
  }
  if (openmp_is_awake()) {
#pragma omp parallel num_threads(wanted)
    call(body, Team(omp_get_thread_num(), omp_get_num_threads(), meeting));
    return;
  }
  struct Joined {
    Team::Meeting& meeting;
    void* body;
    void (*call)(void*, const Team&) noexcept;
  } joined{meeting, body, call};
  Workers& workers = Workers::mine();
  const int size =
      workers.run_together(wanted, &joined, [](void* self, int rank, int size) noexcept {
        const auto& team = *static_cast<const Joined*>(self);
        team.call(team.body, Team(rank, size, team.meeting));
      });
  if (size > 1) workers.note_team(meeting.waited.load(std::memory_order_relaxed));
}

}  // namespace detail
}  // namespace quanta
