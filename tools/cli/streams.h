#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace quanta::cli {

/// What streams did in one turn.
struct StreamTurn {
  std::vector<std::int64_t> ns;  ///< of each request, in no particular order
  double seconds = 0.0;          ///< from the common start to the end of the last request

  double requests_per_second() const { return static_cast<double>(ns.size()) / seconds; }
};

/// The value below which `share` (0 to 1) of the values lie, one of them: the nearest rank.
std::int64_t percentile(std::vector<std::int64_t> values, double share);

/// Threads that each answer requests one after the other, as those of a server that is never idle.
/// They live from turn to turn. One caller at a time.
class Streams {
 public:
  /// `make_request(stream)` prepares a stream and gives what answers one request; it is called in
  /// the stream's own thread, whose ops use `threads` threads. Throws what it throws.
  Streams(int count, int threads,
          const std::function<std::function<void()>(int stream)>& make_request);
  ~Streams();
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  int count() const { return static_cast<int>(threads_.size()); }
  /// Every stream answers requests for so many seconds, `kLeast` at least. Throws what a request
  /// threw; then there is nothing more to run.
  StreamTurn run(double seconds);

  /// So that the end, where some streams wait for the last one, does not count for too much.
  static constexpr std::size_t kLeast = 3;

 private:
  void work(int stream, int op_threads,
            const std::function<std::function<void()>(int stream)>& make_request);
  void end_turn(const std::vector<std::int64_t>& ns, std::exception_ptr error);
  void stop();
  /// Waits until all streams have ended the turn; throws what one of them threw.
  void wait_for_all(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable begin_, end_;
  std::uint64_t turn_ = 0;  // 0: getting ready
  int busy_ = 0;            // streams that have not ended the turn
  bool stopping_ = false;
  double seconds_ = 0.0;
  std::vector<std::int64_t> ns_;
  std::exception_ptr error_;
  std::vector<std::thread> threads_;
};

}  // namespace quanta::cli
