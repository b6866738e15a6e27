#include "quanta/runtime/cuda/graph.h"

#include <doctest/doctest.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "quanta/runtime/allocator.h"
#include "quanta/runtime/cuda/copy.h"
#include "quanta/runtime/cuda/emulation.h"
#include "quanta/runtime/cuda/memory.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/tensor.h"

// Work that is captured.

namespace quanta {
namespace {

namespace emulation = cuda::emulation;

const Device kDevice = Device::cuda_emulated();

std::size_t bytes_in_use() { return allocator_stats(kDevice).in_use; }

Tensor filled(double value) { return Tensor::full({5, 3}, value).to(kDevice); }

}  // namespace

TEST_CASE("cuda graphs: captured work is done when the graph is launched and as often") {
  const Tensor x = filled(1.0);
  const Tensor y = filled(0.0);
  const Tensor turned = Tensor::full({3, 5}, 0.0).to(kDevice).transpose(0, 1);
  emulation::reset_counters();
  cuda::Capture capture(kDevice);
  cuda::fill(x, 2.0);                // a kernel
  cuda::copy_same_dtype(y, x);       // a copy
  cuda::copy_same_dtype(turned, y);  // a kernel
  cuda::driver(kDevice).fill(x.device_ptr(), 0, x.nbytes());
  const cuda::Graph graph = capture.finish();
  CHECK(emulation::counters().launches == 0);
  CHECK(emulation::counters().copies == 0);
  CHECK(emulation::counters().captures == 1);
  CHECK(x.cpu().equal(filled(1.0).cpu()));
  CHECK(y.cpu().equal(filled(0.0).cpu()));
  for (std::uint64_t run = 1; run <= 2; ++run) {
    y.fill_(7.0);
    graph.launch();
    CHECK(y.cpu().equal(filled(2.0).cpu()));
    CHECK(turned.cpu().equal(filled(2.0).cpu()));
    CHECK(x.cpu().equal(filled(0.0).cpu()));
    CHECK(emulation::counters().graph_launches == run);
    CHECK(emulation::counters().graph_steps == 4 * run);
  }
}

TEST_CASE("cuda graphs: what waits for the host or takes its bytes is refused while captured") {
  const Tensor x = filled(1.0);
  float value = 0.0F;
  cuda::Driver& driver = cuda::driver(kDevice);
  const std::unique_ptr<cuda::Event> event = driver.record_event();
  cuda::Capture capture(kDevice);
  CHECK(cuda::is_capturing());
  const auto text = [](const char* what) {
    return "cuda:emulated: " + std::string(what) + ": cannot be part of captured work";
  };
  CHECK_THROWS_WITH_AS(driver.copy_to_host(&value, x.device_ptr(), 4),
                       text("a copy to the host").c_str(), cuda::CaptureError);
  CHECK_THROWS_WITH_AS(driver.copy_to_device(x.device_ptr(), &value, 4),
                       text("a copy from the host").c_str(), cuda::CaptureError);
  CHECK_THROWS_WITH_AS(synchronize(kDevice), text("waiting for the device").c_str(),
                       cuda::CaptureError);
  CHECK_THROWS_WITH_AS(driver.record_event(), text("an event").c_str(), cuda::CaptureError);
  CHECK_THROWS_WITH_AS(driver.elapsed(*event, *event), text("waiting for an event").c_str(),
                       cuda::CaptureError);
  CHECK_THROWS_WITH_AS(cuda::Capture{kDevice}, text("another capture").c_str(), cuda::CaptureError);
  CHECK_THROWS_AS(x.cpu(), cuda::CaptureError);
  // It goes on, and other threads have nothing to do with it.
  cuda::fill(x, 3.0);
  std::thread([&] { CHECK(filled(4.0).cpu().equal(filled(4.0).cpu())); }).join();
  const cuda::Graph graph = capture.finish();
  CHECK_FALSE(cuda::is_capturing());
  graph.launch();
  CHECK(x.cpu().equal(filled(3.0).cpu()));
}

TEST_CASE("cuda graphs: a capture that is given up leaves nothing behind") {
  const Tensor x = filled(1.0);
  const std::size_t before = bytes_in_use();
  {
    const cuda::Capture capture(kDevice);
    const cuda::Buffer scratch(kDevice, 1000);
    cuda::fill(x, 2.0);
  }
  CHECK_FALSE(cuda::is_capturing());
  CHECK(bytes_in_use() == before);
  CHECK(x.cpu().equal(filled(1.0).cpu()));
  cuda::fill(x, 2.0);
  CHECK(x.cpu().equal(filled(2.0).cpu()));
}

TEST_CASE("cuda graphs: memory that captured work used is the graph's as long as it lives") {
  constexpr std::size_t kBytes = 60;
  const Tensor x = filled(1.0);
  const Tensor y = filled(0.0);
  const std::size_t before = bytes_in_use();
  std::unique_ptr<const cuda::Graph> graph;
  {
    cuda::Capture capture(kDevice);
    for (int i = 0; i < 3; ++i) {  // one block for all of them
      const cuda::Buffer scratch(kDevice, kBytes);
      cuda::driver(kDevice).copy_on_device(scratch.as<std::byte>(), x.device_ptr(), kBytes);
      cuda::driver(kDevice).copy_on_device(y.device_ptr(), scratch.as<std::byte>(), kBytes);
    }
    graph = std::make_unique<const cuda::Graph>(capture.finish());
  }
  CHECK(bytes_in_use() == before + 64);
  std::vector<Tensor> others;
  for (int i = 0; i < 4; ++i) others.push_back(filled(5.0));
  graph->launch();
  CHECK(y.cpu().equal(filled(1.0).cpu()));
  for (const Tensor& other : others) CHECK(other.cpu().equal(filled(5.0).cpu()));
  others.clear();
  graph.reset();
  CHECK(bytes_in_use() == before);
}

TEST_CASE("cuda graphs: memory that stays in use behind a capture is refused") {
  std::optional<cuda::Buffer> stays;
  const std::size_t before = bytes_in_use();
  {
    cuda::Capture capture(kDevice);
    stays.emplace(kDevice, 100);
    CHECK_THROWS_WITH_AS(capture.finish(), doctest::Contains("got 1 blocks in use"),
                         cuda::CaptureError);
  }
  CHECK_FALSE(cuda::is_capturing());
  stays.reset();
  CHECK(bytes_in_use() == before);
}

TEST_CASE("cuda graphs: events measure what the device does") {
  cuda::Driver& driver = cuda::driver(kDevice);
  const auto begin = driver.record_event();
  const Tensor x = filled(1.0);
  const auto end = driver.record_event();
  CHECK(driver.has_passed(*end));
  CHECK(driver.elapsed(*begin, *end) > 0.0);
  CHECK(driver.elapsed(*begin, *begin) == 0.0);
}

}  // namespace quanta
