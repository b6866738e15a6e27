#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/runtime/error.h"
#include "quanta/runtime/state_dict.h"
#include "quanta/runtime/tensor.h"

/// Calibration, evaluation and training on several processes, on one machine or on many, over MPI. A
/// library of its own, quanta::distributed, that is there where MPI was found.
namespace quanta::distributed {

namespace detail {
class RankGroup;
struct Job;
}  // namespace detail

/// Ranks did not come to where the others wait, or are in another call, or MPI reported a failure. The
/// text says which rank waited where, for whom and how long. Where messages still go to the memory of
/// the call that failed, it is printed and all ranks are ended instead.
class CommunicationError : public Error {
 public:
  using Error::Error;
};

/// A year: longer than any job.
inline constexpr std::chrono::milliseconds kLongestTimeLimit = std::chrono::hours(24 * 365);

/// A sum that was begun and goes on while the caller does something else. Waits in its destructor.
class PendingSum {
 public:
  PendingSum() = default;
  PendingSum(PendingSum&&) noexcept = default;
  PendingSum& operator=(PendingSum&& other) noexcept;
  ~PendingSum();
  /// Until the values hold the sum. Throws CommunicationError. Does nothing the second time.
  void wait();

 private:
  friend class Communicator;
  PendingSum(std::shared_ptr<detail::RankGroup> group, std::shared_ptr<detail::Job> job, int local);
  std::shared_ptr<detail::RankGroup> group_;
  std::shared_ptr<detail::Job> job_;
  int local_ = 0;
};

/// The ranks 0 .. size() - 1 that work together, each a process or (RunOptions) a thread of one; run()
/// hands it out. A handle: copies are the same rank.
///
/// Every function but the queries is called by all ranks in the same order with the same `place`, a
/// word or two that say in messages where that is ("epoch 3: gradients"). A rank that waits longer
/// than the time limit throws CommunicationError, which names the ranks that did not come. A
/// rank's communicator is for one thread at a time.
///
/// What is summed is summed in the order of the ranks: runs with as many ranks give the same bits.
class Communicator {
 public:
  int rank() const noexcept;
  int size() const noexcept;
  bool is_first() const noexcept { return rank() == 0; }
  /// How many processes the ranks are in.
  int processes() const noexcept;
  /// The ranks of this machine, and this one's number among them.
  int local_rank() const noexcept;
  int local_size() const noexcept;

  /// How long a rank waits for the others. Throws ArgumentError unless it is > 0 and
  /// at most kLongestTimeLimit.
  void set_time_limit(std::chrono::milliseconds limit) const;
  std::chrono::milliseconds time_limit() const noexcept;

  /// Until all ranks have come here.
  void barrier(std::string_view place) const;

  /// In place. Float32 sums are those of Float32 numbers, rank 0's first. Spans have the same size on
  /// all ranks.
  void sum(std::span<float> values, std::string_view place) const;
  void sum(std::span<double> values, std::string_view place) const;
  void sum(std::span<std::int64_t> values, std::string_view place) const;
  void min(std::span<float> values, std::string_view place) const;
  void max(std::span<float> values, std::string_view place) const;
  /// Float32 or Float64, contiguous, on any device: what is not on the CPU goes through the host's
  /// memory. Throws ArgumentError for others.
  void sum(const Tensor& values, std::string_view place) const;
  /// Begins the sum; the values belong to it until wait() is through.
  [[nodiscard]] PendingSum start_sum(std::span<float> values, std::string_view place) const;

  /// The root's bytes into those of all ranks, which are as many.
  void broadcast(std::span<std::byte> bytes, int root, std::string_view place) const;
  /// Tensors of any dtype and device, dense, in place.
  void broadcast(const Tensor& values, int root, std::string_view place) const;
  /// The root's text.
  std::string broadcast(const std::string& text, int root, std::string_view place) const;

  /// What every rank gave, by rank; sizes may differ.
  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine,
                                                 std::string_view place) const;
  /// The same for the root alone; the other ranks get nothing.
  std::vector<std::vector<std::byte>> gather(std::span<const std::byte> mine, int root,
                                             std::string_view place) const;

  /// What this rank's process has sent, and how long this rank waited for others.
  struct Traffic {
    std::int64_t bytes_sent = 0;
    std::int64_t messages_sent = 0;
    double seconds_waited = 0.0;
  };
  Traffic traffic() const;

 private:
  friend class detail::RankGroup;
  Communicator(std::shared_ptr<detail::RankGroup> group, int local);
  std::shared_ptr<detail::RankGroup> group_;
  int local_;  // number of this rank among those of its process
};

struct RunOptions {
  /// How many ranks there are in all; 0: one for each process. More ranks than processes: some are
  /// threads of one process, each of which calls the body. The numbers depend on the ranks alone, so
  /// that 4 ranks give the same bits in one, two or four processes.
  int ranks = 0;
  /// Threads of each rank's operations; 0: OMP_NUM_THREADS, or else its share of the cores that the
  /// machine's ranks have together.
  int threads = 0;
  /// See Communicator::set_time_limit.
  std::chrono::milliseconds time_limit = std::chrono::minutes(10);
};

/// Joins the processes that mpirun or srun started (without them: one), calls `body` for each rank
/// of this process and gives the program's exit status, the largest that a rank gave:
///
///   int main() {
///     return quanta::distributed::run([](const quanta::distributed::Communicator& comm) {
///       ...
///       return 0;
///     });
///   }
///
/// An exception of `body` is printed with the rank before it, and all ranks are ended: the status is
/// 1. For one call in a program, by its first thread. Throws ArgumentError for fewer ranks than
/// processes, for numbers < 0 and for a time limit beyond kLongestTimeLimit, CommunicationError when MPI does not start.
int run(const std::function<int(const Communicator&)>& body, const RunOptions& options = {});

/// A state as bytes (those of a .safetensors file) and back, for messages. Throws FileError for bytes
/// that are none.
std::vector<std::byte> to_bytes(const StateDict& state);
StateDict from_bytes(std::span<const std::byte> bytes);

}  // namespace quanta::distributed
