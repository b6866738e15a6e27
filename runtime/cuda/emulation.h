#pragma once

// Private: the emulated CUDA device. Kernels run on the CPU, one at a time, each thread of a block a
// fiber of its own. What a GPU may do differently from run to run is done here in the order that
// finds mistakes: copies to shared memory are made as late as they may be, and threads run in
// several orders. Device memory cannot be touched outside of kernels and copies.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace quanta::cuda::emulation {

// For kernels, by way of simt_emulated.h -------------------------------------------------------

struct Position {
  int thread = 0;
  int threads = 0;
  int block_x = 0;
  int block_y = 0;
  int block_z = 0;
};
/// Of the thread that runs.
extern thread_local constinit Position position;

/// Ends the launch with BackendError, which names kernel, block and thread.
[[noreturn]] void fail(const std::string& text);
inline void require_aligned(const char* what, const void* address, std::size_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(address) % bytes != 0) [[unlikely]]
    fail(std::string(what) + ": expected an address aligned to " + std::to_string(bytes));
}

/// All threads of the block wait for each other.
void barrier();
/// The 32 threads of a warp wait for each other; the last one calls work(lanes) with what each gave.
/// Fails when they stand at different instructions.
using Work = void (*)(void* const* lanes);
void meet(const char* instruction, void* lane, Work work);

void copy_later(void* shared, const void* global, int bytes);
void commit_copies();
void finish_copies(int pending);

/// A matrix of 8 rows was loaded from shared memory in so many passes (1 is best).
void count_matrix_load(int passes) noexcept;

struct Launch {
  const char* kernel;
  std::int64_t blocks[3];
  int threads;
  int shared;
  bool together;
};
using Body = void (*)(const void* params, unsigned char* shared);
/// Captured launches have a copy of the params, which are plain bytes.
void launch(const Launch& launch, const void* params, std::size_t params_bytes, Body body);

// For tests ------------------------------------------------------------------------------------

/// What the device has done since reset_counters().
struct Counters {
  std::uint64_t launches = 0;     ///< of kernels, one by one
  std::uint64_t allocations = 0;  ///< that were asked of the driver, not of the cache above it
  std::uint64_t copies = 0;
  std::uint64_t bytes_to_device = 0;
  std::uint64_t bytes_to_host = 0;
  std::uint64_t bytes_to_shared = 0;  ///< by copy_async
  std::uint64_t matrix_loads = 0;
  std::uint64_t matrix_passes = 0;  ///< as many as matrix_loads when no banks collide
  std::uint64_t waits = 0;          ///< of the host for the device, copies not counted
  std::uint64_t captures = 0;       ///< that have ended with a graph
  std::uint64_t graph_launches = 0;
  std::uint64_t graph_steps = 0;  ///< kernels, copies and fills that graphs have run
  std::string_view last_kernel;   ///< that was started, not by a graph
};
Counters counters();
void reset_counters();

/// Launch: of a kernel, captured or not, and of a graph. Capture: its begin and its end.
enum class Call : std::uint8_t { Allocation, Copy, Launch, Capture };
/// The n-th call from now (1: the next) fails, as if memory were out or the device lost, and so do
/// those behind it, `times` in all. 0: none does. Memory that is out is asked for twice.
void fail_later(Call call, std::uint64_t n, std::uint64_t times = 1);

/// The order in which threads run between the places where they meet.
enum class Schedule : std::uint8_t {
  Lockstep,  ///< all threads of the block, one step each
  Greedy,    ///< each warp as far as it gets
};
/// `seed` other than 0 shuffles the order in each block. QUANTA_EMULATION_SCHEDULE in the
/// environment ("lockstep", "greedy:7") says what it is at first; lockstep:0 without it.
void set_schedule(Schedule schedule, std::uint64_t seed);

}  // namespace quanta::cuda::emulation
