#pragma once

// Private: the ranks that are threads of one process, and what they do together with those of others.

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/fusion/distributed/communicator.h"
#include "quanta/fusion/distributed/detail/processes.h"

namespace quanta::distributed::detail {

enum class JobKind : std::uint8_t {
  Barrier,
  SumFloat,
  SumDouble,
  SumInt64,
  MinFloat,
  MaxFloat,
  Broadcast,
  AllGather,
  Gather,
};

/// One call of all ranks.
struct Job {
  JobKind kind = JobKind::Barrier;
  std::string place;
  int root = 0;            // where there is one
  std::uint64_t call = 0;  // a hash of these three
  /// By the number of the rank within the process.
  struct Part {
    bool joined = false;
    std::span<std::byte> in_out;              // sums, minima, broadcasts
    std::span<const std::byte> in;            // gathers
    std::vector<std::vector<std::byte>> out;  // gathers: by rank
  };
  std::vector<Part> parts;
  int joined = 0;
  bool abandoned = false;  // a rank that had joined waits no more
  bool done = false;       // with `error`, guarded by the group's mutex
  std::exception_ptr error;
};

/// The ranks of this process. A call is begun by each of its threads; with the last of them it goes
/// to the thread of MPI.
class RankGroup : public std::enable_shared_from_this<RankGroup> {
 public:
  /// `total` ranks in all processes, at least one each.
  RankGroup(Processes& processes, int total);

  int first() const noexcept { return begin_of(processes_.rank()); }
  int count() const noexcept { return count_of(processes_.rank()); }
  int total() const noexcept { return total_; }
  int local_rank(int local) const noexcept;
  int local_size() const noexcept;
  /// Of the processors that this process may run on: that of each of its ranks, 0 .. 1.
  double share_of_processors() const;
  Processes& processes() noexcept { return processes_; }
  Communicator communicator(int local) { return {shared_from_this(), local}; }

  /// Begins the next call of rank `local`. Throws ArgumentError when another rank of this process
  /// began another call in its place, CommunicationError when one has failed.
  std::shared_ptr<Job> join(int local, JobKind kind, std::string_view place, int root,
                            Job::Part part);
  /// Until it is done. Throws what went wrong.
  void wait(Job& job, int local);
  double seconds_waited(int local) const;

  /// Rank `local` ended by an exception: the others' calls throw from now on. False if another one
  /// did before it.
  bool fail(int local) noexcept;

 private:
  /// Ranks of process p are begin_of(p) .. begin_of(p + 1) - 1.
  int begin_of(int process) const noexcept;
  int count_of(int process) const noexcept { return begin_of(process + 1) - begin_of(process); }
  int process_of(int rank) const noexcept;

  void run(Job& job) noexcept;
  std::exception_ptr try_to_calculate(Job& job) noexcept;
  [[noreturn]] void end_all(const std::exception_ptr& error) noexcept;
  void calculate(Job& job);
  template <typename T, typename Combine>
  void combine(Job& job, const Combine& combine);
  void broadcast(Job& job);
  void gather(Job& job);
  void share_pieces(const Job& job, std::span<std::byte> bytes, std::size_t unit);
  CommunicationError waited_in_vain(std::string_view place, const std::vector<int>& ranks) const;
  std::vector<int> ranks_of(const std::vector<int>& processes) const;

  Processes& processes_;
  int total_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::uint64_t> calls_;                    // of each rank; guarded by mutex_
  std::vector<double> seconds_waited_;                  // guarded by mutex_
  std::map<std::uint64_t, std::shared_ptr<Job>> open_;  // not joined by all; guarded by mutex_
  std::exception_ptr lost_;  // of MPI's thread: why an exchange ended without an answer
  int failed_ = -1;          // a rank, guarded by mutex_
};

}  // namespace quanta::distributed::detail
