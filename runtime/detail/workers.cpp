#include "quanta/runtime/detail/workers.h"

#include <omp.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <system_error>
#include <utility>

#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/openmp.h"
#include "quanta/runtime/parallel.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace quanta::detail {
namespace {

using Clock = Workers::Clock;

// From the end of one op to the beginning of the next one it is less, as a rule.
constexpr std::chrono::microseconds kActiveWait{200};
// Some times of what waking a thread takes.
constexpr std::chrono::microseconds kGathering{100};
// A part takes less, or not much more than the caller's own one, when nobody is interrupted.
constexpr std::chrono::microseconds kLongWait{500};
// So long does a caller leave its own processor to a helper that lost its one.
constexpr std::chrono::microseconds kAsleep{50};
// Schedulers let a process run for some milliseconds at a time.
constexpr std::chrono::milliseconds kLeastAlone{1};
constexpr std::chrono::milliseconds kMostAlone{16};

// Where the system gives no more helpers, those that there are do the work.
constexpr std::chrono::milliseconds kNextTry{100};

thread_local bool inside = false;

// Of this process since its first loop.
std::atomic<unsigned> forks{0};

void pause() noexcept {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

/// Looks for `is_there()` for so long. Gives whether it came.
template <typename IsThere>
bool comes_within(std::chrono::microseconds time, const IsThere& is_there) {
  const Clock::time_point end = Clock::now() + time;
  do {
    constexpr int kLooks = 16;
    for (int i = 0; i < kLooks; ++i) {
      if (is_there()) return true;
      pause();
    }
  } while (Clock::now() < end);
  return false;
}

/// Where OMP_PLACES and OMP_PROC_BIND put OpenMP's thread of that rank, the helper goes as well: it
/// would inherit the one place of its owner.
void bind_as_openmp(std::thread& helper, int rank) {
  // LLVM's OpenMP has a place of all processors where nobody asked for places.
  if (omp_get_proc_bind() == omp_proc_bind_false) return;
  const int places = omp_get_num_places();
  const int own = omp_get_place_num();
  if (places <= 0 || own < 0) return;
  const int place = (own + rank) % places;
  std::vector<int> processors(static_cast<std::size_t>(omp_get_place_num_procs(place)));
  omp_get_place_proc_ids(place, processors.data());
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int processor : processors) CPU_SET(static_cast<std::size_t>(processor), &set);
  // A wish: where it is not granted, the helper runs where its owner does.
  static_cast<void>(pthread_setaffinity_np(helper.native_handle(), sizeof(set), &set));
}

}  // namespace

OneThread::OneThread() noexcept : before_(std::exchange(inside, true)) {}
OneThread::~OneThread() { inside = before_; }

Workers& Workers::mine() {
  static const int handler = pthread_atfork(nullptr, nullptr, [] {
    ++forks;
    forget_openmp();
  });
  static_cast<void>(handler);
  struct Own {
    std::unique_ptr<Workers> workers;
    unsigned made_after = 0;
    void forget_parents() {
      // A child of fork has no helpers, only what is known of them: nothing of it can be used.
      if (made_after != forks) static_cast<void>(workers.release());
    }
    ~Own() { forget_parents(); }
  };
  thread_local Own own;
  own.forget_parents();
  if (own.workers == nullptr) {
    own.workers = std::make_unique<Workers>();
    own.made_after = forks;
  }
  return *own.workers;
}

bool Workers::is_inside() noexcept { return inside; }

Workers::~Workers() {
  if (helpers_.empty()) return;
  stopping_.store(true);
  publish(0, nullptr, nullptr);
  for (std::thread& helper : helpers_) helper.join();
}

void Workers::add_helpers(int count) {
  if (static_cast<int>(helpers_.size()) >= count || Clock::now() < no_more_until_) return;
  helpers_.reserve(static_cast<std::size_t>(count));  // room, or it throws before a thread is there
  while (static_cast<int>(helpers_.size()) < count) {
    try {
      helpers_.emplace_back([this] { help(); });
    } catch (const std::system_error&) {
      no_more_until_ = Clock::now() + kNextTry;
      return;
    }
    bind_as_openmp(helpers_.back(), static_cast<int>(helpers_.size()));
  }
}

void Workers::publish(int parts, void* body, Call call) {
  processor_.store(sched_getcpu(), std::memory_order_relaxed);
  body_ = body;
  call_ = call;
  QUANTA_DCHECK(parts <= kMaxThreads);
  const auto count = static_cast<std::uint32_t>(parts);
  unfinished_.store(count, std::memory_order_relaxed);
  const std::uint32_t job = job_of(ticket_.load(std::memory_order_relaxed)) + 1;
  ticket_.store((Ticket{job} << 32U) | count);
  // Either this thread sees that a helper sleeps, or the helper sees the ticket before it does.
  if (sleeping_.load() == 0) return;
  { const std::lock_guard lock(mutex_); }
  work_.notify_all();
}

std::uint32_t Workers::take_parts(Ticket ticket, bool is_owner) {
  while (left_of(ticket) > 0) {
    // The ticket may be that of a later job by now: its parts are as good.
    const Ticket taken = is_owner ? ticket + kFirst - 1 : ticket - 1;
    if (!ticket_.compare_exchange_weak(ticket, taken, std::memory_order_acq_rel,
                                       std::memory_order_acquire)) {
      continue;
    }
    call_(body_, static_cast<int>(first_of(ticket) + (is_owner ? 0 : left_of(ticket) - 1)));
    unfinished_.fetch_sub(1, std::memory_order_release);
    ticket = ticket_.load(std::memory_order_acquire);
  }
  return job_of(ticket);
}

void Workers::wait_for_parts() const {
  const auto done = [&] { return unfinished_.load(std::memory_order_acquire) == 0; };
  if (comes_within(kActiveWait, done)) return;
  // A helper that still is not ready may have lost its processor, perhaps to this very wait. The
  // system looks for threads that wait elsewhere as soon as a processor has nothing to do.
  do std::this_thread::sleep_for(kAsleep);
  while (!done());
}

bool Workers::shares_processor() const noexcept {
  return sched_getcpu() == processor_.load(std::memory_order_relaxed);
}

bool Workers::works_alone(Clock::time_point now) noexcept {
  if (crowded_.load(std::memory_order_relaxed)) {
    crowded_.store(false, std::memory_order_relaxed);
    note_wait(true);
  }
  return now < alone_until_;
}

void Workers::note_wait(bool was_long) noexcept {
  if (!was_long) {
    alone_ = {};
    return;
  }
  alone_ = std::clamp<Clock::duration>(2 * alone_, kLeastAlone, kMostAlone);
  alone_until_ = Clock::now() + alone_;
}

void Workers::run(int parts, void* body, Call call) {
  const OneThread scope;
  const Clock::time_point begin = Clock::now();
  if (works_alone(begin)) {
    for (int part = 0; part < parts; ++part) call(body, part);
    return;
  }
  add_helpers(parts - 1);
  publish(parts, body, call);
  take_parts(ticket_.load(std::memory_order_acquire), true);
  const Clock::time_point ready = Clock::now();
  wait_for_parts();
  note_wait(Clock::now() - ready > std::max<Clock::duration>(kLongWait, 3 * (ready - begin)));
}

void Workers::run_long(int parts, void* body, Call call) {
  const OneThread scope;
  add_helpers(parts - 1);
  publish(parts, body, call);
  take_parts(ticket_.load(std::memory_order_acquire), true);
  wait_for_parts();
}

int Workers::run_together(int threads, void* body, TeamCall call) {
  if (works_alone(Clock::now())) {
    const OneThread scope;
    call(body, 0, 1);
    return 1;
  }
  struct Team {
    void* body;
    TeamCall call;
    std::atomic<int> size{0};  // 0: not known yet
    std::atomic<int> ranks{1};
  } team{body, call};
  const OneThread scope;
  add_helpers(threads - 1);
  publish(threads - 1, &team, [](void* self, int) noexcept {
    auto& joined = *static_cast<Team*>(self);
    const int rank = joined.ranks.fetch_add(1, std::memory_order_relaxed);
    const auto known = [&] { return joined.size.load(std::memory_order_acquire) > 0; };
    while (!comes_within(kActiveWait, known)) std::this_thread::yield();
    joined.call(joined.body, rank, joined.size.load(std::memory_order_relaxed));
  });
  static_cast<void>(comes_within(
      kGathering, [&] { return left_of(ticket_.load(std::memory_order_relaxed)) == 0; }));
  // Who has not come by now is not waited for.
  Ticket ticket = ticket_.load(std::memory_order_relaxed);
  while (!ticket_.compare_exchange_weak(ticket, ticket - left_of(ticket), std::memory_order_acq_rel,
                                        std::memory_order_relaxed)) {
  }
  const std::uint32_t absent = left_of(ticket);
  unfinished_.fetch_sub(absent, std::memory_order_relaxed);
  const int size = threads - static_cast<int>(absent);
  team.size.store(size, std::memory_order_release);
  call(body, 0, size);
  wait_for_parts();
  return size;
}

Workers::Ticket Workers::wait_for_job_after(std::uint32_t job) {
  Ticket ticket = 0;
  const auto is_there = [&] {
    ticket = ticket_.load(std::memory_order_acquire);
    return job_of(ticket) != job || shares_processor();
  };
  if (comes_within(kActiveWait, is_there) && job_of(ticket) != job) return ticket;
  std::unique_lock lock(mutex_);
  sleeping_.fetch_add(1);
  work_.wait(lock, [&] {
    ticket = ticket_.load();
    return job_of(ticket) != job;
  });
  sleeping_.fetch_sub(1);
  return ticket;
}

/// Has the helper run beside its owner, which the system would do in time; false where it may not.
bool Workers::move_away(const cpu_set_t& allowed) const noexcept {
  const int owner = processor_.load(std::memory_order_relaxed);
  if (owner < 0 || omp_get_num_places() > 0) return false;
  cpu_set_t others = allowed;
  CPU_CLR(static_cast<std::size_t>(owner), &others);
  if (CPU_COUNT(&others) == 0 ||
      pthread_setaffinity_np(pthread_self(), sizeof(others), &others) != 0) {
    return false;
  }
  static_cast<void>(pthread_setaffinity_np(pthread_self(), sizeof(allowed), &allowed));
  return true;
}

void Workers::help() {
  inside = true;
  omp_set_num_threads(1);  // what runs here has one thread, loops of oneDNN's too
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  static_cast<void>(pthread_getaffinity_np(pthread_self(), sizeof(allowed), &allowed));
  std::uint32_t job = 0;
  // Looked at behind each job, as the last one that is seen may be the one that says so.
  while (!stopping_.load()) {
    const Ticket ticket = wait_for_job_after(job);
    if (stopping_.load()) return;
    if (shares_processor() && !move_away(allowed)) {
      // Every moment here is one that the caller lacks.
      crowded_.store(true, std::memory_order_relaxed);
      job = job_of(ticket);
      continue;
    }
    job = take_parts(ticket, false);
  }
}

}  // namespace quanta::detail
