#include "quanta/runtime/cuda/emulation.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <utility>
#include <vector>

#include "quanta/runtime/check.h"
#include "quanta/runtime/cuda/emulated_memory.h"
#include "quanta/runtime/cuda/emulation_state.h"
#include "quanta/runtime/detail/sanitizers.h"
#include "quanta/runtime/random.h"

#if QUANTA_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

// Functions that are left on one stack and gone on with on another: ThreadSanitizer would count what
// they call and never come back from.
#if QUANTA_THREAD_SANITIZER
#include <sanitizer/tsan_interface.h>
#define QUANTA_LEAVES_STACK __attribute__((disable_sanitizer_instrumentation))
#else
#define QUANTA_LEAVES_STACK
#endif

// Saves what a call must keep on the stack it leaves, and goes on where the other one was left.
extern "C" void quanta_switch_fiber(void** save, void* load);
asm(R"(
.text
.hidden quanta_switch_fiber
.globl quanta_switch_fiber
.type quanta_switch_fiber,@function
quanta_switch_fiber:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size quanta_switch_fiber,.-quanta_switch_fiber
)");

namespace quanta::cuda::emulation {

thread_local constinit Position position;

namespace {

constexpr int kWarp = 32;
constexpr int kMostThreads = 1024;
constexpr std::size_t kStackBytes = 256 * 1024;
constexpr std::align_val_t kParamsAlignment{64};

// Pages with one behind (or, for a stack, before) them that nobody can touch.
class GuardedPages {
 public:
  explicit GuardedPages(std::size_t bytes) : bytes_(bytes) {
    memory_ = ::mmap(nullptr, bytes + 2 * kPage, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, /*fd=*/-1, 0);
    if (memory_ == MAP_FAILED || ::mprotect(begin(), bytes, PROT_READ | PROT_WRITE) != 0) {
      throw BackendError(fmt::format("cuda:emulated: no memory for {} bytes", bytes));
    }
  }
  ~GuardedPages() { ::munmap(memory_, bytes_ + 2 * kPage); }
  GuardedPages(const GuardedPages&) = delete;
  GuardedPages& operator=(const GuardedPages&) = delete;

  unsigned char* begin() const { return static_cast<unsigned char*>(memory_) + kPage; }
  unsigned char* end() const { return begin() + bytes_; }
  std::size_t bytes() const { return bytes_; }

 private:
  static constexpr std::size_t kPage = 4096;
  void* memory_ = nullptr;
  std::size_t bytes_;
};

struct Fault {};  // leaves a kernel's thread

struct LateCopy {
  void* to;
  const void* from;
  int bytes;
};

struct Fiber {
  void* context = nullptr;
  std::unique_ptr<GuardedPages> stack;
  bool done = false;
  std::vector<std::vector<LateCopy>> groups;  // oldest first
  std::vector<LateCopy> open;
#if QUANTA_ADDRESS_SANITIZER
  void* fake_stack = nullptr;
#endif
#if QUANTA_THREAD_SANITIZER
  void* known_as = __tsan_create_fiber(0);
#endif
};

struct Warp {
  int arrived = 0;
  std::uint64_t generation = 0;
  const char* instruction = nullptr;
  void* lanes[kWarp] = {};
};

// The order, and the number that it is shuffled with.
struct Order {
  Schedule schedule = Schedule::Lockstep;
  std::uint64_t seed = 0;
};

Order order_from_environment() {
  const char* text = std::getenv("QUANTA_EMULATION_SCHEDULE");
  if (text == nullptr) return {};
  Order order;
  if (std::strncmp(text, "greedy", 6) == 0) order.schedule = Schedule::Greedy;
  const char* colon = std::strchr(text, ':');
  if (colon != nullptr) order.seed = std::strtoull(colon + 1, nullptr, 10);
  return order;
}

std::mutex order_mutex;
Order& order() {
  static Order current = order_from_environment();
  return current;
}

// One launch of threads that meet. There is one at a time: Memory::Access sees to that.
class Machine {
 public:
  static Machine& instance() {
    static auto* machine = new Machine;
    return *machine;
  }

  void run(const Launch& launch, const void* params, Body body);

  void barrier() {
    const std::uint64_t at = barriers_;
    if (++waiting_ == threads_) {
      waiting_ = 0;
      ++barriers_;
      ++progress_;
      return;
    }
    while (barriers_ == at) leave_fiber();
  }

  void meet(const char* instruction, void* lane, Work work) {
    Warp& warp = warps_[static_cast<std::size_t>(current_ / kWarp)];
    if (warp.arrived != 0 && warp.instruction != instruction) {
      fail(std::string(instruction) + ": other threads of the warp are at " + warp.instruction);
    }
    warp.instruction = instruction;
    warp.lanes[current_ % kWarp] = lane;
    const std::uint64_t at = warp.generation;
    if (++warp.arrived == kWarp) {
      work(warp.lanes);
      warp.arrived = 0;
      ++warp.generation;
      ++progress_;
      return;
    }
    while (warp.generation == at) leave_fiber();
  }

  Fiber& fiber() { return fibers_[static_cast<std::size_t>(current_)]; }
  void set_error(const std::string& text) {
    if (error_.empty()) error_ = text;
  }

 private:
  void prepare(int threads, int shared);
  void run_block();
  void start_fibers();
  // Runs the fiber until it waits, ends or fails.
  void enter_fiber(int thread);
  void leave_fiber() { switch_fiber(&fiber().context, main_, false); }
  void switch_fiber(void** save, void* load, bool ends);
  static void entry();

  std::vector<Fiber> fibers_;
  std::vector<Warp> warps_;
  std::vector<int> threads_in_order_;
  std::unique_ptr<GuardedPages> shared_pages_;
  unsigned char* shared_ = nullptr;
  int shared_bytes_ = 0;
  void* main_ = nullptr;
  int current_ = 0;
  int threads_ = 0;
  int waiting_ = 0;
  std::uint64_t barriers_ = 0;
  std::uint64_t progress_ = 0;  // grows when threads have met or ended
  std::string error_;
  const void* params_ = nullptr;
  Body body_ = nullptr;
#if QUANTA_ADDRESS_SANITIZER
  const void* main_bottom_ = nullptr;
  std::size_t main_bytes_ = 0;
  void* main_fake_stack_ = nullptr;
#endif
#if QUANTA_THREAD_SANITIZER
  void* main_known_as_ = nullptr;
#endif
};

QUANTA_LEAVES_STACK void Machine::switch_fiber(void** save, void* load,
                                               [[maybe_unused]] bool ends) {
#if QUANTA_ADDRESS_SANITIZER
  // From a fiber to the main stack.
  Fiber& from = fiber();
  __sanitizer_start_switch_fiber(ends ? nullptr : &from.fake_stack, main_bottom_, main_bytes_);
#endif
#if QUANTA_THREAD_SANITIZER
  __tsan_switch_to_fiber(main_known_as_, 0);
#endif
  quanta_switch_fiber(save, load);
#if QUANTA_ADDRESS_SANITIZER
  __sanitizer_finish_switch_fiber(fiber().fake_stack, &main_bottom_, &main_bytes_);
#endif
}

void Machine::enter_fiber(int thread) {
  current_ = thread;
  position.thread = thread;
  Fiber& to = fiber();
#if QUANTA_ADDRESS_SANITIZER
  __sanitizer_start_switch_fiber(&main_fake_stack_, to.stack->begin(), to.stack->bytes());
#endif
#if QUANTA_THREAD_SANITIZER
  main_known_as_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(to.known_as, 0);
#endif
  quanta_switch_fiber(&main_, to.context);
#if QUANTA_ADDRESS_SANITIZER
  __sanitizer_finish_switch_fiber(main_fake_stack_, nullptr, nullptr);
#endif
}

QUANTA_LEAVES_STACK void Machine::entry() {
  Machine& machine = instance();
#if QUANTA_ADDRESS_SANITIZER
  __sanitizer_finish_switch_fiber(nullptr, &machine.main_bottom_, &machine.main_bytes_);
#endif
  try {
    machine.body_(machine.params_, machine.shared_);
  } catch (const Fault&) {  // the error is noted
  }
  machine.fiber().done = true;
  ++machine.progress_;
  machine.switch_fiber(&machine.fiber().context, machine.main_, true);
}

void Machine::prepare(int threads, int shared) {
  threads_ = threads;
  while (fibers_.size() < static_cast<std::size_t>(threads)) {
    fibers_.emplace_back().stack = std::make_unique<GuardedPages>(kStackBytes);
  }
  warps_.assign(static_cast<std::size_t>(threads / kWarp), Warp{});
  threads_in_order_.resize(static_cast<std::size_t>(threads));
  std::iota(threads_in_order_.begin(), threads_in_order_.end(), 0);
  if (shared_pages_ == nullptr) shared_pages_ = std::make_unique<GuardedPages>(256 * 1024);
  QUANTA_CHECK(shared >= 0 && shared <= 227 * 1024,
               "cuda:emulated: shared: expected 0..232448 bytes, got {}", shared);
  // What is read beyond its end is seen.
  shared_bytes_ = (shared + 15) / 16 * 16;
  shared_ = shared_pages_->end() - shared_bytes_;
}

void Machine::start_fibers() {
  waiting_ = 0;
  for (Warp& warp : warps_) warp.arrived = 0;
  std::memset(shared_, 0xA5, static_cast<std::size_t>(shared_bytes_));
  for (int i = 0; i < threads_; ++i) {
    Fiber& fiber = fibers_[static_cast<std::size_t>(i)];
#if QUANTA_ADDRESS_SANITIZER
    // Calls that never returned have left their marks: entry(), and those that a fault ended.
    __asan_unpoison_memory_region(fiber.stack->begin(), fiber.stack->bytes());
#endif
    auto* top = reinterpret_cast<void**>(fiber.stack->end());
    *--top = nullptr;  // where entry() would return to: the stack is as behind a call
    *--top = reinterpret_cast<void*>(&entry);
    for (int k = 0; k < 6; ++k) *--top = nullptr;
    fiber.context = top;
    fiber.done = false;
    fiber.groups.clear();
    fiber.open.clear();
  }
}

void Machine::run_block() {
  start_fibers();
  const bool is_greedy = order().schedule == Schedule::Greedy;
  for (;;) {
    const std::uint64_t before = progress_;
    bool any = false;
    for (const int thread : threads_in_order_) {
      // Greedy: the whole warp, as far as it gets, at its first thread's turn.
      if (is_greedy && thread % kWarp != 0) continue;
      const int count = is_greedy ? kWarp : 1;
      for (;;) {
        const std::uint64_t was = progress_;
        for (int i = thread; i < thread + count; ++i) {
          if (fibers_[static_cast<std::size_t>(i)].done) continue;
          any = true;
          enter_fiber(i);
          if (!error_.empty()) return;
        }
        if (!is_greedy || progress_ == was) break;
      }
    }
    if (!any) return;
    if (progress_ == before) {
      // One more round may still fill the last warp or barrier; none that changes nothing will.
      set_error("threads wait for others that have gone another way or ended");
      return;
    }
  }
}

void Machine::run(const Launch& launch, const void* params, Body body) {
  prepare(launch.threads, launch.shared);
  params_ = params;
  body_ = body;
  error_.clear();
  Generator generator(order().seed);
  const bool shuffles = order().seed != 0;
  for (std::int64_t z = 0; z < launch.blocks[2] && error_.empty(); ++z) {
    for (std::int64_t y = 0; y < launch.blocks[1] && error_.empty(); ++y) {
      for (std::int64_t x = 0; x < launch.blocks[0] && error_.empty(); ++x) {
        position = {0, launch.threads, static_cast<int>(x), static_cast<int>(y),
                    static_cast<int>(z)};
        for (std::size_t i = threads_in_order_.size(); shuffles && i > 1; --i) {
          std::swap(threads_in_order_[i - 1], threads_in_order_[generator.next() % i]);
        }
        run_block();
      }
    }
  }
  if (!error_.empty()) {
    throw BackendError(fmt::format("cuda:emulated: {}: {} (thread {} of block {}, {}, {})",
                                   launch.kernel, error_, position.thread, position.block_x,
                                   position.block_y, position.block_z));
  }
}

// Threads that do not meet, one after the other.
void run_apart(const Launch& launch, const void* params, Body body) {
  std::string error;
  for (std::int64_t z = 0; z < launch.blocks[2]; ++z) {
    for (std::int64_t y = 0; y < launch.blocks[1]; ++y) {
      for (std::int64_t x = 0; x < launch.blocks[0]; ++x) {
        position = {0, launch.threads, static_cast<int>(x), static_cast<int>(y),
                    static_cast<int>(z)};
        for (int i = 0; i < launch.threads; ++i) {
          position.thread = i;
          body(params, nullptr);
        }
      }
    }
  }
}

// Set by fail() where no machine runs.
thread_local std::string apart_error;
thread_local bool runs_together = false;

}  // namespace

void fail(const std::string& text) {
  if (runs_together) {
    Machine::instance().set_error(text);
  } else {
    apart_error = text;
  }
  throw Fault{};
}

namespace {

// A kernel that meets others though its kTogether says that it does not.
void require_together(const char* instruction) {
  if (!runs_together) fail(std::string(instruction) + ": expected a kernel with kTogether");
}

}  // namespace

void barrier() {
  require_together("sync");
  Machine::instance().barrier();
}

void meet(const char* instruction, void* lane, Work work) {
  require_together(instruction);
  Machine::instance().meet(instruction, lane, work);
}

void copy_later(void* shared, const void* global, int bytes) {
  require_together("copy_async");
  Machine::instance().fiber().open.push_back({shared, global, bytes});
  shared_state().bytes_to_shared += static_cast<std::uint64_t>(bytes);
}

void commit_copies() {
  require_together("commit");
  Fiber& fiber = Machine::instance().fiber();
  fiber.groups.push_back(std::move(fiber.open));
  fiber.open.clear();
}

void finish_copies(int pending) {
  require_together("wait");
  Fiber& fiber = Machine::instance().fiber();
  while (fiber.groups.size() > static_cast<std::size_t>(pending)) {
    for (const LateCopy& copy : fiber.groups.front()) {
      std::memcpy(copy.to, copy.from, static_cast<std::size_t>(copy.bytes));
    }
    fiber.groups.erase(fiber.groups.begin());
  }
}

void count_matrix_load(int passes) noexcept {
  shared_state().matrix_loads += 1;
  shared_state().matrix_passes += static_cast<std::uint64_t>(passes);
}

namespace {

void run_kernel(const Launch& launch, const void* params, Body body) {
  const Memory::Access access(Memory::instance());
  if (launch.together) {
    const std::lock_guard lock(order_mutex);
    runs_together = true;
    try {
      Machine::instance().run(launch, params, body);
    } catch (...) {
      runs_together = false;
      throw;
    }
    runs_together = false;
    return;
  }
  try {
    run_apart(launch, params, body);
  } catch (const Fault&) {
    throw BackendError(fmt::format("cuda:emulated: {}: {} (thread {} of block {}, {}, {})",
                                   launch.kernel, apart_error, position.thread, position.block_x,
                                   position.block_y, position.block_z));
  }
}

}  // namespace

void launch(const Launch& launch, const void* params, std::size_t params_bytes, Body body) {
  const bool fits = launch.threads >= 1 && launch.threads <= kMostThreads &&
                    (!launch.together || launch.threads % kWarp == 0) && launch.blocks[0] >= 0 &&
                    launch.blocks[0] < (std::int64_t{1} << 31) && launch.blocks[1] >= 0 &&
                    launch.blocks[1] < 65536 && launch.blocks[2] >= 0 && launch.blocks[2] < 65536;
  if (!fits) {
    throw BackendError(fmt::format(
        "cuda:emulated: {}: expected 1 to 1024 threads (whole warps where they meet) and a grid "
        "within 2^31 - 1, 65535, 65535, got {} threads and {} x {} x {} blocks",
        launch.kernel, launch.threads, launch.blocks[0], launch.blocks[1], launch.blocks[2]));
  }
  if (shared_state().fails(Call::Launch)) {
    throw BackendError(
        fmt::format("cuda:emulated: {}: launch failed as it was asked to", launch.kernel));
  }
  if (capturing != nullptr) {
    // The caller's params are gone when the graph runs.
    std::shared_ptr<std::byte[]> copy(
        static_cast<std::byte*>(::operator new[](params_bytes, kParamsAlignment)),
        [](std::byte* bytes) { ::operator delete[](bytes, kParamsAlignment); });
    std::memcpy(copy.get(), params, params_bytes);
    capturing->emplace_back(
        [launch, copy = std::move(copy), body] { run_kernel(launch, copy.get(), body); });
    return;
  }
  ++shared_state().launches;
  shared_state().last_kernel = launch.kernel;
  run_kernel(launch, params, body);
}

void set_schedule(Schedule schedule, std::uint64_t seed) {
  const std::lock_guard lock(order_mutex);
  order() = {schedule, seed};
}

}  // namespace quanta::cuda::emulation
