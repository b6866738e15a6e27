#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "quanta/fusion/distributed/communicator.h"
#include "quanta/fusion/distributed/detail/processes.h"
#include "quanta/fusion/distributed/detail/rank_group.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/parallel.h"

namespace quanta::distributed {
namespace {

constexpr int kMostRanks = 1 << 20;
// How long the other ranks of a process may take to notice that one has failed.
constexpr auto kGrace = std::chrono::seconds(5);

// The threads of a rank's operations; 0: as they are.
int threads_of_rank(const RunOptions& options, const detail::RankGroup& group) {
  if (options.threads > 0) return options.threads;
  if (std::getenv("OMP_NUM_THREADS") != nullptr) return 0;
  // A third of three is one.
  return std::max(1, static_cast<int>(get_num_threads() * group.share_of_processors() + 1e-6));
}

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "an unknown exception";
  }
}

class Ranks {
 public:
  Ranks(const std::function<int(const Communicator&)>& body, detail::Processes& processes,
        std::shared_ptr<detail::RankGroup> group, int threads)
      : body_(body), processes_(processes), group_(std::move(group)), threads_(threads) {}

  int run() {
    std::vector<std::thread> others;
    bool all_started = true;
    try {
      for (int i = 1; i < group_->count(); ++i) {
        others.emplace_back([this, i] { run_one(i); });
      }
    } catch (const std::exception&) {
      // Too many threads for the system, or for memory.
      all_started = false;
      const int started = static_cast<int>(others.size());
      end_all(
          started + 1,
          std::make_exception_ptr(CommunicationError(fmt::format(
              "distributed: run: ranks: expected room for {} threads, got {}: start fewer ranks "
              "in each process",
              group_->count(), started + 1))));
    }
    if (all_started) run_one(0);
    for (std::thread& other : others) other.join();
    {
      const std::lock_guard lock(over_->mutex);
      over_->is_over = true;
    }
    over_->changed.notify_all();
    return status_;
  }

 private:
  void run_one(int local) {
    try {
      if (threads_ > 0) set_num_threads(threads_);
      const int status = body_(group_->communicator(local));
      int largest = status_;
      while (status > largest && !status_.compare_exchange_weak(largest, status)) {
      }
    } catch (...) {
      end_all(local, std::current_exception());
    }
  }

  void end_all(int local, const std::exception_ptr& error) {
    status_ = 1;
    if (!group_->fail(local)) return;  // another one's fault
    fmt::print(stderr, "rank {}: {}\n", group_->first() + local, text_of(error));
    std::fflush(nullptr);
    if (processes_.size() > 1) processes_.abort();
    if (group_->count() == 1) return;
    // Threads notice in their next call. One that makes none is ended with the process.
    try {
      std::thread([over = over_] {
        std::unique_lock lock(over->mutex);
        if (!over->changed.wait_for(lock, kGrace, [&] { return over->is_over; })) std::_Exit(1);
      }).detach();
    } catch (const std::exception&) {
      std::_Exit(1);  // no room for a thread that looks
    }
  }

  // Whether all ranks of this process have ended.
  struct Over {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_over = false;
  };

  const std::function<int(const Communicator&)>& body_;
  detail::Processes& processes_;
  std::shared_ptr<detail::RankGroup> group_;
  int threads_;
  std::atomic<int> status_{0};
  std::shared_ptr<Over> over_ = std::make_shared<Over>();
};

}  // namespace

int run(const std::function<int(const Communicator&)>& body, const RunOptions& options) {
  QUANTA_CHECK(options.ranks >= 0 && options.ranks <= kMostRanks,
               "distributed: run: ranks: expected 0..{}, got {}", kMostRanks, options.ranks);
  QUANTA_CHECK(options.threads >= 0 && options.threads <= kMaxThreads,
               "distributed: run: threads: expected 0..{}, got {}", kMaxThreads, options.threads);
  QUANTA_CHECK(options.time_limit.count() > 0 && options.time_limit <= kLongestTimeLimit,
               "distributed: run: time_limit: expected 1..{} ms, got {}", kLongestTimeLimit.count(),
               options.time_limit.count());
  detail::Processes processes;
  const int total = options.ranks == 0 ? processes.size() : options.ranks;
  QUANTA_CHECK(
      total >= processes.size(),
      "distributed: run: ranks: expected at least one for each of the {} processes, got {}",
      processes.size(), total);
  processes.set_time_limit(options.time_limit);
  auto group = std::make_shared<detail::RankGroup>(processes, total);
  const int threads = threads_of_rank(options, *group);
  return Ranks(body, processes, std::move(group), threads).run();
}

}  // namespace quanta::distributed
