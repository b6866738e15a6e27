// The CUDA runtime behind the seam of driver.h.

#include <cuda_runtime.h>

#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "quanta/runtime/check.h"
#include "quanta/runtime/cuda/cudart.h"
#include "quanta/runtime/cuda/driver.h"
#include "quanta/runtime/cuda/requirements.h"

namespace quanta::cuda {
namespace {

void check(cudaError_t status, const std::string& call) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // else the next call would report it again
  throw BackendError(
      fmt::format("{}: {}: {}", call, cudaGetErrorName(status), cudaGetErrorString(status)));
}

// Why no GPU can be used; empty when one can.
std::string missing_driver() {
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess) {
    cudaGetLastError();
    version = 0;
  }
  return fault_of_driver(version);
}

// Pinned host memory in two halves: while one is on its way, the other is filled.
class Staging {
 public:
  static constexpr std::size_t kHalf = std::size_t{8} << 20;

  Staging() {
    for (Half& half : halves_) {
      check(cudaMallocHost(&half.memory, kHalf), "cudaMallocHost");
      check(cudaEventCreateWithFlags(&half.done, cudaEventDisableTiming), "cudaEventCreate");
    }
  }

  void to_device(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
    for (std::size_t begin = 0; begin < bytes; begin += kHalf) {
      Half& half = next();
      const std::size_t length = std::min(kHalf, bytes - begin);
      check(cudaEventSynchronize(half.done), "cudaEventSynchronize");
      std::memcpy(half.memory, static_cast<const char*>(from) + begin, length);
      check(cudaMemcpyAsync(static_cast<char*>(to) + begin, half.memory, length,
                            cudaMemcpyHostToDevice, stream),
            fmt::format("cudaMemcpyAsync({} bytes to the device)", length));
      check(cudaEventRecord(half.done, stream), "cudaEventRecord");
    }
  }

  void to_host(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
    // One half ahead of what is copied out.
    std::size_t asked = 0;
    const auto ask = [&](Half& half) {
      const std::size_t length = std::min(kHalf, bytes - asked);
      check(cudaMemcpyAsync(half.memory, static_cast<const char*>(from) + asked, length,
                            cudaMemcpyDeviceToHost, stream),
            fmt::format("cudaMemcpyAsync({} bytes to the host)", length));
      check(cudaEventRecord(half.done, stream), "cudaEventRecord");
      asked += length;
    };
    for (Half& half : halves_) check(cudaEventSynchronize(half.done), "cudaEventSynchronize");
    ask(halves_[0]);
    for (std::size_t begin = 0, i = 0; begin < bytes; begin += kHalf, ++i) {
      if (asked < bytes) ask(halves_[(i + 1) % 2]);
      Half& half = halves_[i % 2];
      check(cudaEventSynchronize(half.done), "cudaEventSynchronize");
      std::memcpy(static_cast<char*>(to) + begin, half.memory, std::min(kHalf, bytes - begin));
    }
  }

 private:
  struct Half {
    void* memory = nullptr;
    cudaEvent_t done = nullptr;
  };
  Half& next() { return halves_[turn_++ % 2]; }

  std::array<Half, 2> halves_;
  std::size_t turn_ = 0;
};

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(cudaStream_t stream) {
    check(cudaEventCreate(&event_), "cudaEventCreate");
    const cudaError_t status = cudaEventRecord(event_, stream);
    if (status != cudaSuccess) cudaEventDestroy(event_);
    check(status, "cudaEventRecord");
  }
  ~CudaEvent() override { cudaEventDestroy(event_); }
  cudaEvent_t get() const noexcept { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

cudaEvent_t get(const Event& event) { return dynamic_cast<const CudaEvent&>(event).get(); }

class CudaWork final : public CapturedWork {
 public:
  // Takes the graph.
  CudaWork(cudaGraph_t graph, int index, cudaStream_t stream) : index_(index), stream_(stream) {
    const cudaError_t status = cudaGraphInstantiate(&work_, graph, 0);
    cudaGraphDestroy(graph);
    check(status, "cudaGraphInstantiate");
  }
  ~CudaWork() override {
    // It may still run.
    if (cudaSetDevice(index_) == cudaSuccess) cudaStreamSynchronize(stream_);
    cudaGraphExecDestroy(work_);
  }
  void launch() override {
    check(cudaSetDevice(index_), "cudaSetDevice");
    check(cudaGraphLaunch(work_, stream_), "cudaGraphLaunch");
  }

 private:
  int index_;
  cudaStream_t stream_;
  cudaGraphExec_t work_ = nullptr;
};

// What the calling thread captures: a stream of its own, so that others' work is not caught.
struct OpenCapture {
  int index = -1;  // of the device; -1: none
  cudaStream_t stream = nullptr;
};
thread_local OpenCapture open_capture;

void refuse_capture(const char* what) {
  if (open_capture.index < 0) return;
  throw CaptureError(
      fmt::format("cuda:{}: {}: cannot be part of captured work", open_capture.index, what));
}

class CudaDriver final : public Driver {
 public:
  explicit CudaDriver(int index) : index_(index) {
    use();
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
    name_ = properties.name;
    multiprocessors_ = properties.multiProcessorCount;
    const std::string fault = fault_of_gpu(name_, properties.major, properties.minor);
    if (!fault.empty()) throw BackendError(fmt::format("cuda:{}: {}", index, fault));
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    // Memory that was once got stays with the process.
    cudaMemPool_t pool = nullptr;
    check(cudaDeviceGetDefaultMemPool(&pool, index), "cudaDeviceGetDefaultMemPool");
    std::uint64_t never = ~std::uint64_t{0};
    check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &never),
          "cudaMemPoolSetAttribute");
  }

  void* allocate(std::size_t bytes) override {
    use();
    void* data = nullptr;
    const cudaError_t status = cudaMallocAsync(&data, bytes, stream_);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return nullptr;
    }
    check(status, fmt::format("cudaMallocAsync({} bytes)", bytes));
    return data;
  }
  void free(void* data, std::size_t) noexcept override {
    if (cudaSetDevice(index_) == cudaSuccess) cudaFreeAsync(data, stream_);
  }
  void* hand_out(void* block, std::size_t, std::size_t) override { return block; }
  void* take_back(void* data, std::size_t, std::size_t) noexcept override { return data; }

  void copy_to_device(void* to, const void* from, std::size_t bytes) override {
    refuse_capture("a copy from the host");
    use();
    const std::lock_guard lock(staging_mutex_);
    staging().to_device(to, from, bytes, stream_);
  }
  void copy_to_host(void* to, const void* from, std::size_t bytes) override {
    refuse_capture("a copy to the host");
    use();
    const std::lock_guard lock(staging_mutex_);
    staging().to_host(to, from, bytes, stream_);
  }
  void copy_on_device(void* to, const void* from, std::size_t bytes) override {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream()),
          fmt::format("cudaMemcpyAsync({} bytes on the device)", bytes));
  }
  void fill(void* to, unsigned char value, std::size_t bytes) override {
    check(cudaMemsetAsync(to, value, bytes, stream()),
          fmt::format("cudaMemsetAsync({} bytes)", bytes));
  }

  void synchronize() override {
    refuse_capture("waiting for the device");
    use();
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }
  std::string name() const override { return name_; }
  int multiprocessors() const noexcept override { return multiprocessors_; }

  std::unique_ptr<Event> record_event() override {
    refuse_capture("an event");
    use();
    return std::make_unique<CudaEvent>(stream_);
  }
  bool has_passed(const Event& event) override {
    use();
    const cudaError_t status = cudaEventQuery(get(event));
    if (status == cudaErrorNotReady) {
      cudaGetLastError();
      return false;
    }
    check(status, "cudaEventQuery");
    return true;
  }
  double elapsed(const Event& begin, const Event& end) override {
    refuse_capture("waiting for an event");
    use();
    check(cudaEventSynchronize(get(end)), "cudaEventSynchronize");
    float milliseconds = 0.0F;
    check(cudaEventElapsedTime(&milliseconds, get(begin), get(end)), "cudaEventElapsedTime");
    return static_cast<double>(milliseconds);
  }

  // Memory is asked for on the device's own stream while another one captures, which only the
  // relaxed mode surely allows; what may not happen meanwhile is refused here.
  void begin_capture() override {
    refuse_capture("another capture");
    use();
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    const cudaError_t status = cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed);
    if (status != cudaSuccess) cudaStreamDestroy(stream);
    check(status, "cudaStreamBeginCapture");
    open_capture = {index_, stream};
  }
  std::unique_ptr<CapturedWork> end_capture() override {
    cudaGraph_t graph = nullptr;
    const cudaError_t status = cudaStreamEndCapture(open_capture.stream, &graph);
    cudaStreamDestroy(std::exchange(open_capture, OpenCapture{}).stream);
    check(status, "cudaStreamEndCapture");
    return std::make_unique<CudaWork>(graph, index_, stream_);
  }
  void drop_capture() noexcept override {
    if (open_capture.index < 0) return;
    cudaGraph_t graph = nullptr;
    cudaStreamEndCapture(open_capture.stream, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaStreamDestroy(std::exchange(open_capture, OpenCapture{}).stream);
    cudaGetLastError();  // of a capture that had failed
  }

  // Where the calling thread's work goes.
  cudaStream_t stream() {
    use();
    return open_capture.index == index_ ? open_capture.stream : stream_;
  }

 private:
  // The calling thread's device.
  void use() const { check(cudaSetDevice(index_), fmt::format("cudaSetDevice({})", index_)); }
  Staging& staging() {
    if (staging_ == nullptr) staging_ = std::make_unique<Staging>();
    return *staging_;
  }

  int index_;
  std::string name_;
  int multiprocessors_ = 1;
  cudaStream_t stream_ = nullptr;
  std::mutex staging_mutex_;
  std::unique_ptr<Staging> staging_;
};

// Never destroyed: the CUDA runtime may be gone before what has static lifetime is.
CudaDriver& cuda_driver(int index) {
  static auto* drivers = new std::array<std::unique_ptr<CudaDriver>, 128>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  std::unique_ptr<CudaDriver>& driver = (*drivers)[static_cast<std::size_t>(index)];
  if (driver != nullptr) return *driver;
  const std::string missing = missing_driver();
  if (!missing.empty()) throw BackendError(fmt::format("cuda:{}: {}", index, missing));
  const int count = real_device_count();
  if (index >= count) {
    throw BackendError(fmt::format("cuda:{}: expected one of {} GPUs", index, count));
  }
  driver = std::make_unique<CudaDriver>(index);
  return *driver;
}

}  // namespace

int real_device_count() noexcept {
  try {
    if (!missing_driver().empty()) return 0;
    int count = 0;
    if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
    cudaGetLastError();
  } catch (...) {  // no memory for the text
  }
  return 0;
}

Driver& real_driver(int index) { return cuda_driver(index); }

cudaStream_t stream_of(Device device) { return cuda_driver(device.index).stream(); }

void check_launch(Device device, const char* kernel) {
  check(cudaGetLastError(), fmt::format("{}: {}", to_string(device), kernel));
}

}  // namespace quanta::cuda
