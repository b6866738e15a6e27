#include <omp.h>

#include <algorithm>
#include <thread>

#include "quanta/runtime/detail/team.h"
#include "quanta/runtime/parallel.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace quanta::detail {
namespace {

void pause() noexcept {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

}  // namespace

void Team::barrier() const noexcept {
  if (size_ == 1) return;
  const std::uint32_t round = meeting_->round.load(std::memory_order_relaxed);
  if (meeting_->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
    meeting_->arrived.store(0, std::memory_order_relaxed);
    meeting_->round.store(round + 1, std::memory_order_release);
    return;
  }
  // A pause takes 10 to 140 cycles. A thread that is still not there was put off by the system,
  // which may want this very processor to run it.
  constexpr int kSpins = 1000;
  int spins = 0;
  while (meeting_->round.load(std::memory_order_acquire) == round) {
    if (spins < kSpins) {
      ++spins;
      pause();
    } else {
      std::this_thread::yield();
    }
  }
}

void run_team_impl(int threads, void* body, void (*call)(void*, const Team&) noexcept) {
  Team::Meeting meeting;
  const int wanted = std::min(threads, get_num_threads());
  if (wanted <= 1) {
    call(body, Team(0, 1, meeting));
    return;
  }
#pragma omp parallel num_threads(wanted)
  call(body, Team(omp_get_thread_num(), omp_get_num_threads(), meeting));
}

}  // namespace quanta::detail
