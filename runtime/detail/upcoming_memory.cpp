#include "quanta/runtime/detail/upcoming_memory.h"

namespace quanta::detail {
namespace {
thread_local std::span<const std::byte> upcoming;
}  // namespace

std::span<const std::byte> upcoming_memory() noexcept { return upcoming; }

UpcomingMemory::UpcomingMemory(std::span<const std::byte> memory) noexcept : before_(upcoming) {
  upcoming = memory;
}
UpcomingMemory::~UpcomingMemory() { upcoming = before_; }

}  // namespace quanta::detail
