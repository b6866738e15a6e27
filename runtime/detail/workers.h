#pragma once

// Private: the threads that help one thread with loops and teams.
//
// Helpers take parts as they come to them. A helper that the system does not run takes none, and its
// caller does not wait for it: it takes the parts itself. Helpers wait actively for the next work
// for a short time only, and then sleep. A caller that waits long for a part sleeps as well, so that
// a helper that has lost its processor may get the caller's. Where the wait was long all the same, or
// where there is no processor for a helper but its caller's, the caller works alone for a while.

#include <sched.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace quanta::detail {

/// While it lives get_num_threads() is 1 on the calling thread.
class OneThread {
 public:
  OneThread() noexcept;
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  bool before_;
};

class Workers {
 public:
  /// The calling thread's. They end with it.
  static Workers& mine();
  /// Whether the calling thread runs a part at the moment, or has a OneThread: what it calls has one
  /// thread.
  static bool is_inside() noexcept;

  Workers() = default;
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  using Clock = std::chrono::steady_clock;
  using Call = void (*)(void* body, int part) noexcept;
  /// Runs call(body, 0) .. call(body, parts - 1), on this thread and on helpers; parts >= 1.
  void run(int parts, void* body, Call call);
  /// The same for parts that take long and end sooner where others do more: helpers are asked though
  /// they were not there the last time, as one that comes late still finds something to do.
  void run_long(int parts, void* body, Call call);

  using TeamCall = void (*)(void* body, int rank, int size) noexcept;
  /// Runs call(body, rank, size) on all threads of a team at once: this one, and as many of
  /// `threads - 1` helpers as come within some ten microseconds. Gives the number of threads.
  int run_together(int threads, void* body, TeamCall call);
  /// Says that the last team had to wait for one of its helpers, or that it had not.
  void note_team(bool waited) noexcept { note_wait(waited); }

 private:
  // A number that grows with each job; the first of its parts that nobody has taken, and how many there
  // are. The owner takes the first and helpers the last one: what it wrote in one job, and has in its
  // cache, is what it reads in the next one, where jobs divide what they share in the same way. So it is
  // with a single helper.
  using Ticket = std::uint64_t;
  static std::uint32_t job_of(Ticket ticket) { return static_cast<std::uint32_t>(ticket >> 32U); }
  static std::uint32_t first_of(Ticket ticket) {
    return static_cast<std::uint32_t>(ticket >> 16U) & 0xFFFFU;
  }
  static std::uint32_t left_of(Ticket ticket) {
    return static_cast<std::uint32_t>(ticket) & 0xFFFFU;
  }
  static constexpr Ticket kFirst = Ticket{1} << 16U;

  /// As many as the system lets it have.
  void add_helpers(int count);
  void help();
  void publish(int parts, void* body, Call call);
  /// Takes parts until there are none, the owner from the first on, a helper from the last one. Gives the
  /// job that it saw last.
  std::uint32_t take_parts(Ticket ticket, bool is_owner);
  Ticket wait_for_job_after(std::uint32_t job);
  bool shares_processor() const noexcept;
  bool move_away(const cpu_set_t& allowed) const noexcept;
  bool works_alone(Clock::time_point now) noexcept;
  void note_wait(bool was_long) noexcept;
  void wait_for_parts() const;

  // Written by the owner before the ticket, while no part is taken; read by who has taken a part.
  void* body_ = nullptr;
  Call call_ = nullptr;

  alignas(64) std::atomic<Ticket> ticket_{0};
  alignas(64) std::atomic<std::uint32_t> unfinished_{0};
  alignas(64) std::atomic<int> sleeping_{0};
  std::atomic<int> processor_{-1};    // the owner's
  std::atomic<bool> crowded_{false};  // a helper found itself there
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::condition_variable work_;
  std::vector<std::thread> helpers_;
  Clock::time_point no_more_until_{};  // the system refused one
  Clock::time_point alone_until_{};
  Clock::duration alone_{};  // the last time without helpers; 0: they were there
};

}  // namespace quanta::detail
