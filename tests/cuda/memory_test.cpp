#include "quanta/runtime/cuda/memory.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "quanta/runtime/cuda/driver.h"
#include "quanta/runtime/cuda/emulation.h"
#include "quanta/runtime/cuda/requirements.h"
#include "quanta/runtime/detail/sanitizers.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/tensor.h"

namespace quanta {
namespace {

const Device kDevice = Device::cuda_emulated();

// The signal that ends a child process that runs `work`; 0 when it ends by itself.
template <typename Work>
int signal_of(Work&& work) {
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGSEGV, SIG_DFL);
    std::signal(SIGABRT, SIG_DFL);
    std::fclose(stderr);
    work();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

TEST_CASE("cuda memory: blocks are handed out again and counted") {
  empty_cache(kDevice);
  const std::size_t in_use = allocator_stats(kDevice).in_use;
  const std::uint64_t asked = allocator_stats(kDevice).system_allocations;
  void* first = cuda::allocate(kDevice, 1000);
  CHECK(allocator_stats(kDevice).in_use == in_use + 1024);
  cuda::deallocate(kDevice, first, 1000);
  CHECK(allocator_stats(kDevice).cached >= 1024);
  void* second = cuda::allocate(kDevice, 1000);
  CHECK(second == first);
  CHECK(allocator_stats(kDevice).system_allocations == asked + 1);
  cuda::deallocate(kDevice, second, 1000);
  empty_cache(kDevice);
  CHECK(allocator_stats(kDevice).cached == 0);
}

TEST_CASE("cuda memory: bytes come back as they went") {
  for (const std::size_t bytes : {1U, 15U, 16U, 4095U, 4096U, 100000U}) {
    std::vector<unsigned char> values(bytes);
    for (std::size_t i = 0; i < bytes; ++i) values[i] = static_cast<unsigned char>(i * 7);
    const cuda::Buffer there(kDevice, values.data(), bytes);
    std::vector<unsigned char> back(bytes);
    cuda::driver(kDevice).copy_to_host(back.data(), there.as<void>(), bytes);
    CHECK(back == values);
  }
}

#if !QUANTA_ADDRESS_SANITIZER
TEST_CASE("cuda memory: host code cannot touch it, nor anybody what lies behind it") {
  const cuda::Buffer buffer(kDevice, 64);
  volatile unsigned char* const bytes = buffer.as<unsigned char>();
  CHECK(signal_of([&] { static_cast<void>(bytes[0]); }) == SIGSEGV);
  CHECK(signal_of([&] { bytes[63] = 1; }) == SIGSEGV);
  unsigned char here[65] = {};
  CHECK(signal_of([&] { cuda::driver(kDevice).copy_to_host(here, buffer.as<void>(), 65); }) ==
        SIGSEGV);
  CHECK(signal_of([&] { cuda::driver(kDevice).copy_to_host(here, buffer.as<void>(), 64); }) == 0);
}

TEST_CASE("cuda memory: a write into the last bytes that alignment leaves is found") {
  CHECK(signal_of([] {
          const cuda::Buffer buffer(kDevice, 61);
          const unsigned char bytes[62] = {};
          cuda::driver(kDevice).copy_to_device(buffer.as<void>(), bytes, 62);
        }) == SIGABRT);
}
#endif

TEST_CASE("cuda memory: out of memory is told, and what was there stays usable") {
  const Tensor kept = Tensor::arange(100).to(kDevice);
  empty_cache(kDevice);
  // Once is not enough: the cache is given back, and the device asked again.
  cuda::emulation::fail_later(cuda::emulation::Call::Allocation, 1);
  CHECK_NOTHROW(Tensor::empty({5000}, DType::Float32, MemoryFormat::Contiguous, kDevice));
  std::string text;
  for (int attempt = 0; attempt < 2 && text.empty(); ++attempt) {
    // The first try and the one after it.
    class TwoFailures {
     public:
      TwoFailures() { cuda::emulation::fail_later(cuda::emulation::Call::Allocation, 1); }
      ~TwoFailures() { cuda::emulation::fail_later(cuda::emulation::Call::Allocation, 0); }
    } failures;
    try {
      Tensor::empty({std::int64_t{1} << 45}, DType::Float32, MemoryFormat::Contiguous, kDevice);
    } catch (const BackendError& error) {
      text = error.what();
    }
  }
  CHECK(text.find("no memory for 140737488355328 bytes on cuda:emulated") != std::string::npos);
  CHECK(kept.cpu().equal(Tensor::arange(100)));
}

TEST_CASE("cuda memory: a copy that fails is told") {
  const Tensor x = Tensor::arange(10);
  cuda::emulation::fail_later(cuda::emulation::Call::Copy, 1);
  CHECK_THROWS_AS(x.to(kDevice), BackendError);
  CHECK(x.to(kDevice).cpu().equal(x));
}

TEST_CASE("cuda memory: many threads") {
  std::vector<std::thread> threads;
  std::vector<int> right(8, 0);
  for (std::size_t t = 0; t < right.size(); ++t) {
    threads.emplace_back([&right, t] {
      for (int i = 0; i < 20; ++i) {
        const Tensor x = Tensor::full({100 + static_cast<std::int64_t>(t)}, static_cast<double>(i));
        right[t] += x.to(kDevice).clone().cpu().equal(x) ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int count : right) CHECK(count == 20);
}

TEST_CASE("device: names, and what there is not") {
  CHECK(Device::parse("cpu") == Device::cpu());
  CHECK(Device::parse("cuda") == Device::cuda(0));
  CHECK(Device::parse("cuda:3") == Device::cuda(3));
  CHECK(Device::parse("cuda:emulated") == Device::cuda_emulated());
  for (const Device device : {Device::cpu(), Device::cuda(5), Device::cuda_emulated()}) {
    CHECK(Device::parse(to_string(device)) == device);
  }
  for (const char* text : {"", "gpu", "cuda:", "cuda:-1", "cuda:128", "cuda:1x", "cuda:300"}) {
    CHECK_THROWS_AS(Device::parse(text), ArgumentError);
  }
  CHECK(device_name(kDevice) == "emulated CUDA device");
  CHECK_NOTHROW(synchronize(kDevice));
  const auto missing = Device::cuda(static_cast<std::int8_t>(cuda_device_count()));
  CHECK_THROWS_AS(device_name(missing), BackendError);
  CHECK_THROWS_AS(Tensor::ones({2}).to(missing), BackendError);
}

TEST_CASE("device: drivers and GPUs that are too old are told with what is expected") {
  CHECK(cuda::fault_of_driver(0) == "expected an NVIDIA driver (580 or later), got none");
  CHECK(cuda::fault_of_driver(12090) ==
        "expected an NVIDIA driver for CUDA 13.0 (580 or later), got one for 12.9");
  CHECK(cuda::fault_of_driver(13000).empty());
  CHECK(cuda::fault_of_driver(13010).empty());
  CHECK(cuda::fault_of_gpu("Tesla V100", 7, 0) ==
        "expected compute capability 8.0 or later (A100, RTX 30 and what came after), got Tesla "
        "V100 with 7.0");
  CHECK(cuda::fault_of_gpu("NVIDIA A100", 8, 0).empty());
  CHECK(cuda::fault_of_gpu("NVIDIA B200", 10, 0).empty());
}

}  // namespace quanta
