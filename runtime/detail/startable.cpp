#include "quanta/runtime/detail/startable.h"

#include <atomic>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace quanta::detail {
namespace {

/// Threads that wait for their end.
class Waiting {
 public:
  Waiting() = default;
  ~Waiting() {
    over_.store(true);
    over_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  bool start_one() {
    try {
      threads_.emplace_back([this] { over_.wait(false); });
      return true;
    } catch (const std::system_error&) {
      return false;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }

 private:
  std::atomic<bool> over_{false};
  std::vector<std::thread> threads_;
};

}  // namespace

int startable_threads(int count) noexcept {
  Waiting waiting;
  int started = 0;
  while (started < count && waiting.start_one()) ++started;
  return started;
}

}  // namespace quanta::detail
