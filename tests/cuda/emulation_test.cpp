#include "quanta/runtime/cuda/emulation.h"

#include <doctest/doctest.h>

#include <numeric>
#include <string>
#include <vector>

#include "quanta/runtime/cuda/driver.h"
#include "quanta/runtime/cuda/memory.h"
#include "quanta/runtime/cuda/simt.h"
#include "quanta/runtime/error.h"
#include "schedule_scope.h"

// What the emulated device finds in kernels that are wrong: each mistake that it is for, once.

namespace quanta {
namespace {

using cuda::Buffer;
using cuda::emulation::Schedule;
using test::ScheduleScope;

const Device kDevice = Device::cuda_emulated();

struct NumbersParams {
  std::int32_t* numbers = nullptr;
  int wrong = 0;  // which mistake is made; 0: none
};

template <typename Derived>
struct Together {
  static constexpr const char* kName = "test_kernel";
  static constexpr int kThreads = 64;
  static constexpr int kShared = 1024;
  static constexpr bool kTogether = true;
  using Params = NumbersParams;
};

// Each thread writes its number into shared memory and reads its neighbour's.
struct Neighbour : Together<Neighbour> {
  static SIMT_DEVICE void run(const Params& p, unsigned char* shared) {
    auto* numbers = reinterpret_cast<std::int32_t*>(shared);
    const int t = simt::thread();
    numbers[t] = t;
    if (p.wrong != 1) simt::sync();
    const std::int32_t other = numbers[(t + 33) % kThreads];
    p.numbers[t] = other;
  }
};

struct Divergent : Together<Divergent> {
  static SIMT_DEVICE void run(const Params&, unsigned char*) {
    if (simt::thread() < 40) simt::sync();
  }
};

struct DivergentWarp : Together<DivergentWarp> {
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const int t = simt::thread();
    if (t % 2 == 0) {
      p.numbers[t] = simt::shuffle_xor(t, 1);
    } else {
      std::uint32_t r[4];
      alignas(16) const unsigned char row[16] = {};
      simt::load_matrix_x4(r, row);
      p.numbers[t] = static_cast<std::int32_t>(r[0]);
    }
  }
};

// Copies a line to shared memory and reads it: wrong 1 does not wait, 2 reads what is not aligned.
struct Copier : Together<Copier> {
  static SIMT_DEVICE void run(const Params& p, unsigned char* shared) {
    const int t = simt::thread();
    const std::int32_t* from = p.numbers + t * 4 + (p.wrong == 2 ? 1 : 0);
    simt::copy_async<16>(shared + t * 16, from);
    simt::commit();
    if (p.wrong != 1) simt::wait<0>();
    simt::sync();
    const auto* line = reinterpret_cast<const std::int32_t*>(shared);
    p.numbers[t] = line[t];
  }
};

struct Summer : Together<Summer> {
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    p.numbers[simt::thread()] = simt::warp_sum(simt::thread());
    simt::atomic_add(p.numbers + 64, 1);
  }
};

// Every row of eight is in the same bank when the pitch is 128 bytes.
struct Collider : Together<Collider> {
  static constexpr int kShared = 32 * 128;
  static SIMT_DEVICE void run(const Params& p, unsigned char* shared) {
    std::uint32_t r[4];
    simt::load_matrix_x4(r, shared + simt::thread() % 32 * (p.wrong == 0 ? 16 : 128));
  }
};

struct Apart {
  static constexpr const char* kName = "apart";
  static constexpr int kThreads = 32;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = NumbersParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    if (p.wrong != 0) simt::sync();
    p.numbers[simt::thread()] = 1;
  }
};

Buffer numbers(std::size_t count) {
  std::vector<std::int32_t> values(count);
  std::iota(values.begin(), values.end(), 0);
  return {kDevice, values.data(), count * sizeof(std::int32_t)};
}

std::vector<std::int32_t> read(const Buffer& buffer) {
  std::vector<std::int32_t> values(buffer.bytes() / sizeof(std::int32_t));
  cuda::driver(kDevice).copy_to_host(values.data(), buffer.as<void>(), buffer.bytes());
  return values;
}

template <typename Kernel>
std::string error_of(const NumbersParams& params) {
  try {
    simt::launch<Kernel>(kDevice, {}, params);
  } catch (const BackendError& error) {
    return error.what();
  }
  return "no error";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("emulation: threads meet, whatever the order") {
  for (const Schedule schedule : {Schedule::Lockstep, Schedule::Greedy}) {
    for (const std::uint64_t seed : {0U, 1U, 2U}) {
      const ScheduleScope scope(schedule, seed);
      const Buffer buffer = numbers(65);
      simt::launch<Neighbour>(kDevice, {}, {buffer.as<std::int32_t>(), 0});
      std::vector<std::int32_t> got = read(buffer);
      for (int t = 0; t < 64; ++t) CHECK(got[static_cast<std::size_t>(t)] == (t + 33) % 64);
      simt::launch<Summer>(kDevice, {}, {buffer.as<std::int32_t>(), 0});
      got = read(buffer);
      CHECK(got[5] == 496);
      CHECK(got[40] == 496 + 32 * 32);
      CHECK(got[64] == 64 + 64);
    }
  }
}

TEST_CASE("emulation: a missing barrier is seen in one order at least") {
  bool found = false;
  for (const Schedule schedule : {Schedule::Lockstep, Schedule::Greedy}) {
    const ScheduleScope scope(schedule, 0);
    const Buffer buffer = numbers(64);
    simt::launch<Neighbour>(kDevice, {}, {buffer.as<std::int32_t>(), 1});
    const std::vector<std::int32_t> got = read(buffer);
    for (int t = 0; t < 64; ++t) {
      found = found || got[static_cast<std::size_t>(t)] != (t + 33) % 64;
    }
  }
  CHECK(found);
}

TEST_CASE("emulation: threads that wait for others that do not come") {
  const Buffer buffer = numbers(64);
  const std::string barrier = error_of<Divergent>({buffer.as<std::int32_t>(), 0});
  CHECK(contains(barrier, "threads wait for others"));
  CHECK(contains(barrier, "test_kernel"));
  const std::string warp = error_of<DivergentWarp>({buffer.as<std::int32_t>(), 0});
  CHECK(contains(warp, "other threads of the warp are at"));
  // The device works on.
  simt::launch<Neighbour>(kDevice, {}, {buffer.as<std::int32_t>(), 0});
  CHECK(read(buffer)[0] == 33);
}

TEST_CASE("emulation: copies arrive as late as they may, and are aligned") {
  const Buffer right = numbers(260);
  simt::launch<Copier>(kDevice, {}, {right.as<std::int32_t>(), 0});
  CHECK(read(right)[63] == 63);
  const Buffer late = numbers(260);
  simt::launch<Copier>(kDevice, {}, {late.as<std::int32_t>(), 1});
  CHECK(read(late)[63] != 63);
  const Buffer skewed = numbers(260);
  CHECK(contains(error_of<Copier>({skewed.as<std::int32_t>(), 2}), "aligned to 16"));
}

TEST_CASE("emulation: a kernel that does not say that its threads meet") {
  const Buffer buffer = numbers(32);
  CHECK(error_of<Apart>({buffer.as<std::int32_t>(), 0}) == "no error");
  CHECK(read(buffer)[31] == 1);
  CHECK(contains(error_of<Apart>({buffer.as<std::int32_t>(), 1}), "kTogether"));
}

TEST_CASE("emulation: banks that collide are counted") {
  const Buffer buffer = numbers(64);
  cuda::emulation::reset_counters();
  simt::launch<Collider>(kDevice, {}, {buffer.as<std::int32_t>(), 0});
  CHECK(cuda::emulation::counters().matrix_loads == 8);
  CHECK(cuda::emulation::counters().matrix_passes == 8);
  simt::launch<Collider>(kDevice, {}, {buffer.as<std::int32_t>(), 1});
  CHECK(cuda::emulation::counters().matrix_passes == 8 + 64);
  CHECK(cuda::emulation::counters().launches == 2);
}

TEST_CASE("emulation: the n-th launch fails, and the device works on") {
  const Buffer buffer = numbers(64);
  cuda::emulation::fail_later(cuda::emulation::Call::Launch, 2);
  CHECK(error_of<Neighbour>({buffer.as<std::int32_t>(), 0}) == "no error");
  CHECK(contains(error_of<Neighbour>({buffer.as<std::int32_t>(), 0}), "launch failed"));
  CHECK(error_of<Neighbour>({buffer.as<std::int32_t>(), 0}) == "no error");
}

TEST_CASE("emulation: a grid that no device takes is refused") {
  const Buffer buffer = numbers(64);
  CHECK_THROWS_AS(simt::launch<Apart>(kDevice, {1, 70000, 1}, {buffer.as<std::int32_t>(), 0}),
                  BackendError);
}

}  // namespace quanta
