#pragma once

// Private: the processes of MPI, which one thread speaks to.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace quanta::distributed::detail {

class Messages;

/// Processes of which nothing came in time.
struct Absent {
  std::vector<int> processes;
};

/// A process that makes another call than this one, or has ended without failing.
struct Astray {
  int process = 0;
  bool has_ended = false;
};

/// One of the processes of a machine: its rank, and the processors that it may run on, by number.
struct Neighbour {
  int process = 0;
  std::vector<int> processors;
};

/// The share that each of a process's `ranks` has of the process's processors, 0 .. 1, where those of
/// its neighbours run on some of them too: every processor is divided among the ranks that may use it.
/// `neighbours` has the process itself at `me`, and `ranks` gives how many a process has.
double share_of_processors(const std::vector<Neighbour>& neighbours, std::size_t me,
                           const std::function<int(int process)>& ranks);

/// What one process gives another in an exchange; those of length 0 are not sent.
using Outgoing = std::vector<std::span<const std::byte>>;
using Incoming = std::vector<std::span<std::byte>>;

/// The process's place among all. MPI is started, called and ended by a thread of its own, so that
/// messages travel while the others calculate. It sleeps between two looks at what has come: ranks
/// that share a core do not take it from each other by waiting.
class Processes {
 public:
  /// Joins the others. Throws CommunicationError.
  Processes();
  /// Waits for the others to end too.
  ~Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  /// The processes of this machine, in the order of their ranks, and this one's number among them.
  const std::vector<Neighbour>& neighbours() const noexcept { return neighbours_; }
  std::size_t number_here() const noexcept { return number_here_; }

  void set_time_limit(std::chrono::milliseconds limit) noexcept { limit_ = limit; }
  std::chrono::milliseconds time_limit() const noexcept { return limit_; }

  /// Queues work that may call exchange(); it must not throw. All processes queue the same.
  void submit(std::function<void()> work);

  /// Within submitted work: gives `to[p]` to each process p and takes `from[p]`, whose lengths both
  /// know. Nothing goes to this process itself. `call` tells one call of all processes from another
  /// one: throws Astray when a process sends something of another call, or another number of bytes;
  /// Absent, or CommunicationError. Nothing reads `to` or writes to `from` afterwards, unless
  /// is_memory_lost().
  void exchange(const Outgoing& to, const Incoming& from, std::uint64_t call);

  /// Whether messages of an exchange that has failed are still on their way: the memory that they go
  /// to, or come from, is not to be given back.
  bool is_memory_lost() const noexcept { return is_memory_lost_; }

  /// Ends all processes with status 1, whatever they do.
  [[noreturn]] void abort() noexcept;

  std::int64_t bytes_sent() const noexcept { return bytes_sent_; }
  std::int64_t messages_sent() const noexcept { return messages_sent_; }

 private:
  struct World;

  void exchange_tagged(const Outgoing& to, const Incoming& from, int tag);
  void begin(Messages& messages, const Outgoing& to, const Incoming& from);
  void wait_for(Messages& messages, bool look_for_strays);
  void serve();
  void start();
  void end();
  void abort_if_asked() noexcept;

  std::unique_ptr<World> world_;  // the serving thread's
  int rank_ = 0;
  int size_ = 1;
  std::vector<Neighbour> neighbours_;
  std::size_t number_here_ = 0;
  std::atomic<std::chrono::milliseconds> limit_{std::chrono::minutes(10)};
  std::atomic<std::int64_t> bytes_sent_{0};
  std::atomic<std::int64_t> messages_sent_{0};
  std::atomic<bool> abort_{false};
  std::atomic<bool> is_memory_lost_{false};

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;  // guarded by mutex_
  bool ready_ = false;                       // guarded by mutex_
  bool stop_ = false;                        // guarded by mutex_
  std::string failure_;                      // guarded by mutex_: why MPI did not start
  std::thread thread_;
};

}  // namespace quanta::distributed::detail
