#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "quanta/nn/container.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/runtime/cuda/emulation.h"
#include "quanta/runtime/device_span.h"
#include "quanta/runtime/profiler.h"
#include "quanta/runtime/random.h"
#include "quanta/runtime/verbose.h"

// Times of a device that is still at work when an operation has ended.

namespace quanta {
namespace {

namespace emulation = cuda::emulation;

const Device kDevice = Device::cuda_emulated();

Tensor floats(std::int64_t count = 1000) {
  Generator generator(5);
  return randn({count}, generator).to(kDevice);
}

struct Twice : nn::Module {
  Tensor forward(const Tensor& x) const override { return relu(add(x, x)); }
};
struct Network : nn::Module {
  nn::Child<Twice> first, second;
  Network() {
    register_module("first", first);
    register_module("second", second);
    eval();
  }
  Tensor forward(const Tensor& x) const override { return second(first(x)); }
};

// What the program writes to stderr while `work` runs.
template <typename Work>
std::string stderr_of(Work&& work) {
  std::fflush(stderr);
  const int before = dup(STDERR_FILENO);
  std::FILE* const file = std::tmpfile();
  dup2(fileno(file), STDERR_FILENO);
  work();
  std::fflush(stderr);
  dup2(before, STDERR_FILENO);
  close(before);
  std::rewind(file);
  std::string text;
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += static_cast<char>(c);
  std::fclose(file);
  return text;
}

}  // namespace

TEST_CASE("profiler on a device: nothing waits before the events are asked for") {
  const Network network;
  const Tensor x = floats();
  Profiler profiler;
  emulation::reset_counters();
  network.first(x);
  static_cast<const nn::Module&>(network)(x);
  profiler.stop();
  CHECK(emulation::counters().waits == 0);
  const std::vector<ProfileEvent> events = profiler.events();
  CHECK(emulation::counters().waits > 0);
  CHECK(events.size() == 10);  // two ops in each of three calls, those, and the network
}

TEST_CASE("profiler on a device: times are the device's and modules lie around their ops") {
  const Network network;
  const Tensor x = floats();
  Profiler profiler;
  static_cast<const nn::Module&>(network)(x);
  const std::vector<ProfileEvent> events = profiler.events();
  REQUIRE(events.size() == 7);
  const auto end = [](const ProfileEvent& event) { return event.start_us + event.duration_us; };
  const ProfileEvent& whole = events.back();
  CHECK(whole.kind == ProfileEvent::Kind::Module);
  double last = 0.0;
  for (const ProfileEvent& event : events) {
    CHECK(event.duration_us > 0.0);
    CHECK(event.start_us >= whole.start_us - 1e-6);
    CHECK(end(event) <= end(whole) + 1e-6);
    if (event.kind == ProfileEvent::Kind::Module) continue;
    CHECK(event.start_us >= last);  // one after the other
    last = end(event);
  }
  CHECK(events[2].start_us == doctest::Approx(events[0].start_us));
  CHECK(end(events[2]) == doctest::Approx(end(events[1])));
  double ops = 0.0;
  double modules = 0.0;
  for (const ModuleProfile& module : profiler.modules()) {
    ops += module.op_us;
    modules += module.inclusive_us;
  }
  CHECK(ops > 0.0);
  CHECK(modules >= ops);
}

TEST_CASE("profiler on a device: a profiler that was cleared has no time of before") {
  const Tensor x = floats();
  Profiler profiler;
  relu(x);
  profiler.clear();
  CHECK(profiler.events().empty());
  relu(x);
  REQUIRE(profiler.events().size() == 1);
  CHECK(profiler.events()[0].name == "relu");
}

TEST_CASE("listeners on a device: an op has a span there and none on the CPU") {
  struct Listener final : OpListener {
    void op_ended(const OpEvent& event) override {
      if (event.on_device == nullptr) {
        ++on_cpu;
      } else {
        spans.push_back(*event.on_device);
      }
    }
    int on_cpu = 0;
    std::vector<DeviceSpan> spans;
  } listener;
  const Tensor x = floats();
  const Tensor host = x.cpu();
  {
    const ListenScope scope(listener);
    relu(x);
    relu(host);
    relu(x);
  }
  CHECK(listener.on_cpu == 1);
  REQUIRE(listener.spans.size() == 2);
  DeviceSpan both = listener.spans[0];
  both.extend(listener.spans[1]);
  CHECK(both.has_passed());
  CHECK(both.microseconds() >= listener.spans[0].microseconds() + listener.spans[1].microseconds());
  CHECK(both.microseconds() == doctest::Approx(both.microseconds_until(listener.spans[1]) +
                                               listener.spans[1].microseconds()));
  CHECK(DeviceSpan().is_empty());
  CHECK(DeviceSpan().microseconds() == 0.0);
}

TEST_CASE("verbose on a device: a line for each op and in their order") {
  const Tensor x = floats();
  const Tensor host = x.cpu();
  const std::string text = stderr_of([&] {
    set_verbose(true);
    relu(x);
    relu(host);
    add(x, x);
    synchronize(kDevice);
    set_verbose(false);
    relu(x);
  });
  const std::size_t first = text.find("quanta: relu");
  const std::size_t second = text.find("quanta: relu", first + 1);
  const std::size_t third = text.find("quanta: add", second + 1);
  CHECK(third != std::string::npos);
  CHECK(std::count(text.begin(), text.end(), '\n') == 3);
  CHECK(text.find(" us\n") != std::string::npos);
}

}  // namespace quanta
