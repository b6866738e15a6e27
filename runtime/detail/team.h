#pragma once

// Private: threads that run one function together and meet within it, for loops whose steps are too
// short to start threads for each.

#include <atomic>
#include <cstdint>
#include <type_traits>

namespace quanta::detail {

/// One thread's view of its team.
class Team {
 public:
  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  /// Waits until all threads of the team have come here; what they wrote before is seen after.
  /// Spins for some microseconds, then gives its processor to others in between.
  void barrier() const noexcept;

  /// What the threads share.
  struct Meeting {
    alignas(64) std::atomic<int> arrived{0};
    alignas(64) std::atomic<std::uint32_t> round{0};
    std::atomic<bool> waited{false};  ///< long, for a thread that did not come
  };
  Team(int rank, int size, Meeting& meeting) noexcept
      : rank_(rank), size_(size), meeting_(&meeting) {}

 private:
  int rank_, size_;
  Meeting* meeting_;
};

void run_team_impl(int threads, void* body, void (*call)(void*, const Team&) noexcept);

/// Runs `body(team)` on as many threads as there are, at most `threads` and get_num_threads(): only
/// team.size() says how many. `body` must not throw, since the others would wait for ever.
template <typename Body>
void run_team(int threads, Body&& body) {
  run_team_impl(threads, &body, [](void* self, const Team& team) noexcept {
    (*static_cast<std::remove_reference_t<Body>*>(self))(team);
  });
}

}  // namespace quanta::detail
