#include "quanta/runtime/detail/team.h"

#include <thread>

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
      // Some hundred microseconds, or more where others run meanwhile.
      constexpr int kManyYields = 200;
      if (++spins == kSpins + kManyYields) meeting_->waited.store(true, std::memory_order_relaxed);
      std::this_thread::yield();
    }
  }
}

}  // namespace quanta::detail
