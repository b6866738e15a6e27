#include <atomic>
#include <cstring>
#include <string>

#include "quanta/runtime/check.h"
#include "quanta/runtime/cuda/driver.h"
#include "quanta/runtime/cuda/emulated_memory.h"
#include "quanta/runtime/cuda/emulation.h"
#include "quanta/runtime/cuda/emulation_state.h"

namespace quanta::cuda {
namespace emulation {

namespace {
State state;
}  // namespace

State& shared_state() { return state; }

bool State::fails(Call call) noexcept {
  std::atomic<std::uint64_t>& left = until_failure[static_cast<std::size_t>(call)];
  std::uint64_t n = left.load(std::memory_order_relaxed);
  while (n != 0) {
    if (left.compare_exchange_weak(n, n - 1)) return n == 1;
  }
  return false;
}

Counters counters() {
  return {state.launches.load(),        state.allocations.load(),   state.copies.load(),
          state.bytes_to_device.load(), state.bytes_to_host.load(), state.bytes_to_shared.load(),
          state.matrix_loads.load(),    state.matrix_passes.load()};
}

void reset_counters() {
  for (auto* counter :
       {&state.launches, &state.allocations, &state.copies, &state.bytes_to_device,
        &state.bytes_to_host, &state.bytes_to_shared, &state.matrix_loads, &state.matrix_passes}) {
    counter->store(0);
  }
}

void fail_later(Call call, std::uint64_t n) {
  state.until_failure[static_cast<std::size_t>(call)].store(n);
}

}  // namespace emulation

namespace {

class EmulatedDriver final : public Driver {
 public:
  void* allocate(std::size_t bytes) override {
    ++state().allocations;
    return state().fails(emulation::Call::Allocation) ? nullptr : memory_.allocate(bytes);
  }
  void free(void* data, std::size_t bytes) noexcept override { memory_.free(data, bytes); }
  void* hand_out(void* block, std::size_t bytes, std::size_t block_bytes) override {
    return memory_.hand_out(block, bytes, block_bytes);
  }
  void* take_back(void* data, std::size_t bytes, std::size_t block_bytes) noexcept override {
    return memory_.take_back(data, bytes, block_bytes);
  }

  void copy_to_device(void* to, const void* from, std::size_t bytes) override {
    copy(to, from, bytes);
    state().bytes_to_device += bytes;
  }
  void copy_to_host(void* to, const void* from, std::size_t bytes) override {
    copy(to, from, bytes);
    state().bytes_to_host += bytes;
  }
  void copy_on_device(void* to, const void* from, std::size_t bytes) override {
    copy(to, from, bytes);
  }
  void fill(void* to, unsigned char value, std::size_t bytes) override {
    const emulation::Memory::Access access(memory_);
    std::memset(to, value, bytes);
  }

  void synchronize() override {}
  std::string name() const override { return "emulated CUDA device"; }

 private:
  static emulation::State& state() { return emulation::shared_state(); }

  void copy(void* to, const void* from, std::size_t bytes) {
    ++state().copies;
    if (state().fails(emulation::Call::Copy)) {
      throw BackendError(
          fmt::format("cuda:emulated: copy({} bytes): failed as it was asked to", bytes));
    }
    const emulation::Memory::Access access(memory_);
    std::memcpy(to, from, bytes);
  }

  emulation::Memory& memory_ = emulation::Memory::instance();
};

}  // namespace

Driver& emulated_driver() {
  static auto* driver = new EmulatedDriver;
  return *driver;
}

}  // namespace quanta::cuda
