#pragma once

#include <memory>

#include "quanta/fusion/distributed/communicator.h"
#include "quanta/runtime/warning.h"

namespace quanta::cli {

/// While it lives, warnings begin with the rank that warns, "rank 2: warning: ...", where there are
/// several; each text once in a process, a thousand at most.
class RankWarnings {
 public:
  RankWarnings();
  ~RankWarnings();
  RankWarnings(const RankWarnings&) = delete;
  RankWarnings& operator=(const RankWarnings&) = delete;

  /// The calling thread is a rank from now on. What threads that it starts warn of is said to be of all
  /// ranks of this process. Safe from many threads.
  void join(const distributed::Communicator& comm);

 private:
  struct State;
  std::shared_ptr<State> state_;
  WarningHandler before_;
};

}  // namespace quanta::cli
