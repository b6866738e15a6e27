#pragma once

#include <cstdint>
#include <type_traits>

/// Threads of kernels. Functions here may be called by many threads at once; what throws says so.
namespace quanta {

/// More than that is taken for a mistake.
inline constexpr int kMaxThreads = 1024;
/// Sets how many threads the ops of the calling thread use, those of oneDNN (OpenMP's) among them.
/// Throws ArgumentError for less than 1 or more than kMaxThreads, and BackendError where the system
/// does not let the process have so many (RLIMIT_NPROC, a container's pids limit; tried when the
/// calling thread's number rises, about 0.1 ms a thread); the number is then as it was before.
/// Unless set, it is OMP_NUM_THREADS (kMaxThreads where that is more), or else what the process may
/// use at once: its affinity, and the quota of its cgroup (see docs/threads.md); less where the
/// thread's first call finds that so many cannot start.
void set_num_threads(int threads);
int get_num_threads();

namespace detail {
void parallel_for_impl(std::int64_t count, std::int64_t grain, void* body,
                       void (*call)(void*, std::int64_t, std::int64_t));
}  // namespace detail

/// Runs `body(begin, end)` over [0, count) in parts of at least `grain` items, on up to
/// get_num_threads() threads. Exceptions of `body` reach the caller.
template <typename Body>
void parallel_for(std::int64_t count, std::int64_t grain, Body&& body) {
  if (count <= 0) return;
  if (count <= grain || get_num_threads() == 1) {
    body(std::int64_t{0}, count);
    return;
  }
  detail::parallel_for_impl(count, grain, &body,
                            [](void* self, std::int64_t begin, std::int64_t end) {
                              (*static_cast<std::remove_reference_t<Body>*>(self))(begin, end);
                            });
}

}  // namespace quanta
