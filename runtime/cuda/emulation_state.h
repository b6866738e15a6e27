#pragma once

// Private: what the emulation counts and which of its calls are to fail.

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "quanta/runtime/cuda/emulation.h"

namespace quanta::cuda::emulation {

struct State {
  std::atomic<std::uint64_t> launches{0};
  std::atomic<std::uint64_t> allocations{0};
  std::atomic<std::uint64_t> copies{0};
  std::atomic<std::uint64_t> bytes_to_device{0};
  std::atomic<std::uint64_t> bytes_to_host{0};
  std::atomic<std::uint64_t> bytes_to_shared{0};
  std::atomic<std::uint64_t> matrix_loads{0};
  std::atomic<std::uint64_t> matrix_passes{0};
  std::atomic<std::uint64_t> waits{0};
  std::atomic<std::uint64_t> captures{0};
  std::atomic<std::uint64_t> graph_launches{0};
  std::atomic<std::uint64_t> graph_steps{0};
  std::atomic<const char*> last_kernel{""};
  std::array<std::atomic<std::uint64_t>, 4> until_failure{};  // by Call
  std::array<std::atomic<std::uint64_t>, 4> failures{};       // that follow

  /// Whether this call is the one that fails.
  bool fails(Call call) noexcept;
};

State& shared_state();

/// What a thread captures, each step as a call that does it.
using Notes = std::vector<std::function<void()>>;
/// The calling thread's, or null.
extern thread_local constinit Notes* capturing;

}  // namespace quanta::cuda::emulation
