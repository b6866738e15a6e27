#pragma once

// Private: what a plan's next step will read beside its arguments. A kernel that has a moment can
// ask for it, so that it lies in a cache when the step begins.

#include <cstddef>
#include <span>

namespace quanta::detail {

/// Of the step that the calling thread runs at the moment; empty outside of plans.
std::span<const std::byte> upcoming_memory() noexcept;

/// Sets it while it lives.
class UpcomingMemory {
 public:
  explicit UpcomingMemory(std::span<const std::byte> memory) noexcept;
  ~UpcomingMemory();
  UpcomingMemory(const UpcomingMemory&) = delete;
  UpcomingMemory& operator=(const UpcomingMemory&) = delete;

 private:
  std::span<const std::byte> before_;
};

}  // namespace quanta::detail
