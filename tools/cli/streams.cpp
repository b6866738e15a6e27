#include "streams.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <utility>

#include "quanta/runtime/parallel.h"

namespace quanta::cli {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

std::int64_t percentile(std::vector<std::int64_t> values, double share) {
  const double rank = std::ceil(share * static_cast<double>(values.size()));
  const auto last = static_cast<double>(values.size() - 1);
  const auto at = static_cast<std::ptrdiff_t>(std::clamp(rank - 1.0, 0.0, last));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<std::size_t>(at)];
}

Streams::Streams(int count, int threads,
                 const std::function<std::function<void()>(int stream)>& make_request) {
  std::unique_lock lock(mutex_);
  busy_ = count;
  for (int stream = 0; stream < count; ++stream) {
    threads_.emplace_back(
        [this, stream, threads, make_request] { work(stream, threads, make_request); });
  }
  try {
    wait_for_all(lock);
  } catch (...) {
    lock.unlock();
    stop();
    throw;
  }
}

Streams::~Streams() { stop(); }

void Streams::stop() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  begin_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void Streams::wait_for_all(std::unique_lock<std::mutex>& lock) {
  end_.wait(lock, [&] { return busy_ == 0; });
  if (error_) std::rethrow_exception(error_);
}

void Streams::end_turn(const std::vector<std::int64_t>& ns, std::exception_ptr error) {
  const std::scoped_lock lock(mutex_);
  ns_.insert(ns_.end(), ns.begin(), ns.end());
  if (error && !error_) error_ = std::move(error);
  if (--busy_ == 0) end_.notify_all();
}

void Streams::work(int stream, int op_threads,
                   const std::function<std::function<void()>(int stream)>& make_request) {
  std::function<void()> request;
  try {
    set_num_threads(op_threads);
    request = make_request(stream);
    request();  // not timed: caches and memory of its own
    end_turn({}, nullptr);
  } catch (...) {
    end_turn({}, std::current_exception());
    return;
  }
  for (std::uint64_t turn = 1;; ++turn) {
    double seconds = 0.0;
    {
      std::unique_lock lock(mutex_);
      begin_.wait(lock, [&] { return stopping_ || turn_ >= turn; });
      if (stopping_) return;
      seconds = seconds_;
    }
    std::vector<std::int64_t> ns;
    std::exception_ptr error;
    try {
      const Clock::time_point stop = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                        std::chrono::duration<double>(seconds));
      for (Clock::time_point begin = Clock::now(); ns.size() < kLeast || begin < stop;) {
        request();
        const Clock::time_point end = Clock::now();
        ns.push_back(std::chrono::duration_cast<std::chrono::nanoseconds>(end - begin).count());
        begin = end;
      }
    } catch (...) {
      error = std::current_exception();
    }
    end_turn(ns, error);
    if (error) return;
  }
}

StreamTurn Streams::run(double seconds) {
  std::unique_lock lock(mutex_);
  if (error_) std::rethrow_exception(error_);
  ns_.clear();
  seconds_ = seconds;
  busy_ = count();
  ++turn_;
  const Clock::time_point begin = Clock::now();
  begin_.notify_all();
  wait_for_all(lock);
  return {std::move(ns_), std::chrono::duration<double>(Clock::now() - begin).count()};
}

}  // namespace quanta::cli
