#include "distributed/rank_warnings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace quanta::cli {
namespace {

constexpr std::size_t kRemembered = 1000;

thread_local int rank_of_thread = -1;

}  // namespace

struct RankWarnings::State {
  std::mutex mutex;
  std::set<int> ranks;  // of this process
  bool is_alone = true;
  std::set<std::string> printed;

  // As default warnings are where there is nobody to tell apart.
  std::string origin() const {
    if (is_alone) return "quanta";
    if (rank_of_thread >= 0) return fmt::format("rank {}", rank_of_thread);
    return fmt::format("rank {}", fmt::join(ranks, ", "));
  }

  void print(std::string_view text) {
    const std::lock_guard lock(mutex);
    if (printed.size() >= kRemembered || !printed.emplace(text).second) return;
    fmt::print(stderr, "{}: warning: {}\n", origin(), text);
  }
};

RankWarnings::RankWarnings()
    : state_(std::make_shared<State>()),
      before_(
          set_warning_handler([state = state_](std::string_view text) { state->print(text); })) {}

RankWarnings::~RankWarnings() { set_warning_handler(std::move(before_)); }

void RankWarnings::join(const distributed::Communicator& comm) {
  const std::lock_guard lock(state_->mutex);
  rank_of_thread = comm.rank();
  state_->ranks.insert(comm.rank());
  state_->is_alone = comm.size() == 1;
}

}  // namespace quanta::cli
