#pragma once

// Private: one progress for all ranks.

#include <algorithm>
#include <cstdint>
#include <functional>

#include "quanta/fusion/distributed/communicator.h"

namespace quanta::distributed::detail {

/// Tells the first rank's function how far all are: its own share, scaled.
class Progress {
 public:
  using Function = std::function<void(std::int64_t done, std::int64_t total)>;

  Progress(const Function& function, std::int64_t total, const Communicator& comm)
      : function_(comm.is_first() ? function : nullptr), total_(total), ranks_(comm.size()) {}
  void advance(std::int64_t amount) {
    if (!function_) return;
    done_ = std::min(done_ + amount * ranks_, total_);
    function_(done_, total_);
  }
  void finish() {
    if (function_ && done_ != total_) function_(total_, total_);
  }

 private:
  Function function_;
  std::int64_t done_ = 0;
  std::int64_t total_;
  std::int64_t ranks_;
};

}  // namespace quanta::distributed::detail
