#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

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

thread_local constinit Notes* capturing = nullptr;

bool State::fails(Call call) noexcept {
  const auto at = static_cast<std::size_t>(call);
  std::uint64_t n = until_failure[at].load(std::memory_order_relaxed);
  while (n > 1) {
    if (until_failure[at].compare_exchange_weak(n, n - 1)) return false;
  }
  if (n == 0) return false;
  if (failures[at].fetch_sub(1) == 1) until_failure[at].store(0);
  return true;
}

Counters counters() {
  return {state.launches.load(),        state.allocations.load(),    state.copies.load(),
          state.bytes_to_device.load(), state.bytes_to_host.load(),  state.bytes_to_shared.load(),
          state.matrix_loads.load(),    state.matrix_passes.load(),  state.waits.load(),
          state.captures.load(),        state.graph_launches.load(), state.graph_steps.load(),
          state.last_kernel.load()};
}

void reset_counters() {
  for (auto* counter :
       {&state.launches, &state.allocations, &state.copies, &state.bytes_to_device,
        &state.bytes_to_host, &state.bytes_to_shared, &state.matrix_loads, &state.matrix_passes,
        &state.waits, &state.captures, &state.graph_launches, &state.graph_steps}) {
    counter->store(0);
  }
}

void fail_later(Call call, std::uint64_t n, std::uint64_t times) {
  state.failures[static_cast<std::size_t>(call)].store(times);
  state.until_failure[static_cast<std::size_t>(call)].store(n);
}

}  // namespace emulation

namespace {

void fail_if_asked(emulation::Call call, const std::string& what) {
  if (!emulation::shared_state().fails(call)) return;
  throw BackendError(fmt::format("cuda:emulated: {}: failed as it was asked to", what));
}

// What a GPU's driver refuses while the thread captures, or does too early without a word.
void refuse_capture(const char* what) {
  if (emulation::capturing == nullptr) return;
  throw CaptureError(fmt::format("cuda:emulated: {}: cannot be part of captured work", what));
}

// Work is done as soon as it is asked for.
struct EmulatedEvent final : Event {
  std::chrono::steady_clock::time_point at = std::chrono::steady_clock::now();
};

class EmulatedWork final : public CapturedWork {
 public:
  explicit EmulatedWork(emulation::Notes steps) : steps_(std::move(steps)) {}
  void launch() override {
    refuse_capture("a graph's launch");
    fail_if_asked(emulation::Call::Launch, "graph launch");
    ++emulation::shared_state().graph_launches;
    for (const auto& step : steps_) {
      ++emulation::shared_state().graph_steps;
      step();
    }
  }

 private:
  emulation::Notes steps_;
};

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
    refuse_capture("a copy from the host");
    copy(to, from, bytes);
    state().bytes_to_device += bytes;
  }
  void copy_to_host(void* to, const void* from, std::size_t bytes) override {
    refuse_capture("a copy to the host");
    copy(to, from, bytes);
    state().bytes_to_host += bytes;
  }
  void copy_on_device(void* to, const void* from, std::size_t bytes) override {
    if (emulation::capturing == nullptr) return copy(to, from, bytes);
    fail_copy(bytes);
    emulation::capturing->emplace_back([this, to, from, bytes] { move_bytes(to, from, bytes); });
  }
  void fill(void* to, unsigned char value, std::size_t bytes) override {
    if (emulation::capturing == nullptr) return set_bytes(to, value, bytes);
    emulation::capturing->emplace_back([this, to, value, bytes] { set_bytes(to, value, bytes); });
  }

  void synchronize() override {
    refuse_capture("waiting for the device");
    ++state().waits;
  }
  std::string name() const override { return "emulated CUDA device"; }
  int multiprocessors() const noexcept override { return 2; }

  std::unique_ptr<Event> record_event() override {
    refuse_capture("an event");
    return std::make_unique<EmulatedEvent>();
  }
  bool has_passed(const Event&) override { return true; }
  double elapsed(const Event& begin, const Event& end) override {
    refuse_capture("waiting for an event");
    ++state().waits;
    const auto& first = dynamic_cast<const EmulatedEvent&>(begin);
    const auto& last = dynamic_cast<const EmulatedEvent&>(end);
    return std::chrono::duration<double, std::milli>(last.at - first.at).count();
  }

  void begin_capture() override {
    refuse_capture("another capture");
    fail_if_asked(emulation::Call::Capture, "capture");
    emulation::capturing = new emulation::Notes;
  }
  std::unique_ptr<CapturedWork> end_capture() override {
    const std::unique_ptr<emulation::Notes> notes(std::exchange(emulation::capturing, nullptr));
    fail_if_asked(emulation::Call::Capture, "end of a capture");
    ++state().captures;
    return std::make_unique<EmulatedWork>(std::move(*notes));
  }
  void drop_capture() noexcept override { delete std::exchange(emulation::capturing, nullptr); }

 private:
  static emulation::State& state() { return emulation::shared_state(); }

  static void fail_copy(std::size_t bytes) {
    fail_if_asked(emulation::Call::Copy, fmt::format("copy({} bytes)", bytes));
  }
  void copy(void* to, const void* from, std::size_t bytes) {
    ++state().copies;
    fail_copy(bytes);
    move_bytes(to, from, bytes);
  }
  void move_bytes(void* to, const void* from, std::size_t bytes) {
    const emulation::Memory::Access access(memory_);
    std::memcpy(to, from, bytes);
  }
  void set_bytes(void* to, unsigned char value, std::size_t bytes) {
    const emulation::Memory::Access access(memory_);
    std::memset(to, value, bytes);
  }

  emulation::Memory& memory_ = emulation::Memory::instance();
};

}  // namespace

Driver& emulated_driver() {
  static auto* driver = new EmulatedDriver;
  return *driver;
}

}  // namespace quanta::cuda
