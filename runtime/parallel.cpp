#include "quanta/runtime/parallel.h"

#include <omp.h>

#include <algorithm>
#include <cstdlib>
#include <exception>

#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/cpu_limit.h"

namespace quanta {
namespace {

// OpenMP keeps a number for each thread, and knows of affinities but not of containers' quotas.
thread_local bool has_number = false;

void choose_number() {
  has_number = true;
  static const int usable =
      std::getenv("OMP_NUM_THREADS") == nullptr ? detail::usable_processors() : 0;
  if (usable > 0 && omp_get_max_threads() > usable) omp_set_num_threads(usable);
}

}  // namespace

void set_num_threads(int threads) {
  QUANTA_CHECK(threads >= 1, "set_num_threads: threads: expected >= 1, got {}", threads);
  has_number = true;
  omp_set_num_threads(threads);
}

// Inside a parallel region everything runs on the calling thread.
int get_num_threads() {
  if (!has_number) [[unlikely]]
    choose_number();
  return omp_in_parallel() != 0 ? 1 : omp_get_max_threads();
}

namespace detail {

void parallel_for_impl(std::int64_t count, std::int64_t grain, void* body,
                       void (*call)(void*, std::int64_t, std::int64_t)) {
  const std::int64_t parts = std::min<std::int64_t>(
      get_num_threads(), (count + grain - 1) / std::max<std::int64_t>(grain, 1));
  if (parts <= 1) {
    call(body, 0, count);
    return;
  }
  std::exception_ptr error;
#pragma omp parallel num_threads(static_cast <int>(parts))
  {
    const std::int64_t team = omp_get_num_threads();
    const std::int64_t rank = omp_get_thread_num();
    const std::int64_t begin = count * rank / team;
    const std::int64_t end = count * (rank + 1) / team;
    try {
      if (begin < end) call(body, begin, end);
    } catch (...) {
#pragma omp critical(quanta_parallel_for_error)
      error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace detail
}  // namespace quanta
