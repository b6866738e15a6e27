#pragma once

// Private: what the CUDA backend asks of a device. Behind it stands the CUDA runtime, or the
// emulation; nothing above knows which.

#include <cstddef>
#include <memory>
#include <string>

#include "quanta/runtime/device.h"
#include "quanta/runtime/error.h"

namespace quanta::cuda {

/// A call that cannot be part of captured work: one that waits for the device, or that takes bytes
/// from the host, which are others the next time.
class CaptureError : public BackendError {
 public:
  using BackendError::BackendError;
};

/// A moment in the device's work. Threads may share one.
class Event {
 public:
  Event() = default;
  virtual ~Event() = default;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
};

/// Captured work.
class CapturedWork {
 public:
  CapturedWork() = default;
  virtual ~CapturedWork() = default;
  CapturedWork(const CapturedWork&) = delete;
  CapturedWork& operator=(const CapturedWork&) = delete;

  /// Starts all of it, in its order, behind what the device was asked for before.
  virtual void launch() = 0;
};

/// One device with one stream: what it is asked for happens in that order, and a block that is
/// freed may be handed out again at once. Safe from many threads. What fails throws BackendError
/// with the call, its name for the failure and its text.
class Driver {
 public:
  virtual ~Driver() = default;

  /// Null when memory is out.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void free(void* data, std::size_t bytes) noexcept = 0;
  /// The first `bytes` of a block of `block_bytes` are for a tensor now: where they begin. The
  /// emulation puts them against the block's end, so that what reads beyond it is seen.
  virtual void* hand_out(void* block, std::size_t bytes, std::size_t block_bytes) = 0;
  /// The block of what hand_out gave; checks that nothing wrote beyond it.
  virtual void* take_back(void* data, std::size_t bytes, std::size_t block_bytes) noexcept = 0;

  /// The host's bytes may change as soon as these return.
  virtual void copy_to_device(void* to, const void* from, std::size_t bytes) = 0;
  virtual void copy_to_host(void* to, const void* from, std::size_t bytes) = 0;
  virtual void copy_on_device(void* to, const void* from, std::size_t bytes) = 0;
  virtual void fill(void* to, unsigned char value, std::size_t bytes) = 0;

  virtual void synchronize() = 0;
  virtual std::string name() const = 0;
  /// How many blocks run side by side at least: what choices of tiles depend on.
  virtual int multiprocessors() const noexcept = 0;

  /// The moment at which the device has done what it was asked for so far.
  virtual std::unique_ptr<Event> record_event() = 0;
  /// Whether the device has come so far.
  virtual bool has_passed(const Event& event) = 0;
  /// Milliseconds between two moments; waits for the later one.
  virtual double elapsed(const Event& begin, const Event& end) = 0;

  /// From here on, what the calling thread asks of the device (kernels, copies on the device, fills)
  /// is noted instead of done; other threads are not concerned. Copies from and to the host, waiting
  /// and events throw CaptureError, and the capture goes on. For cuda::Capture (graph.h), which
  /// keeps the memory that the work needs.
  virtual void begin_capture() = 0;
  virtual std::unique_ptr<CapturedWork> end_capture() = 0;
  /// Ends it; what was noted is forgotten.
  virtual void drop_capture() noexcept = 0;
};

/// Throws ArgumentError for the CPU, BackendError for a device that is not there, with the reason.
Driver& driver(Device device);

/// The emulated device, which is always there.
Driver& emulated_driver();
/// The GPU of that number. Throws BackendError: no driver, one that is too old, no such GPU, a GPU
/// that is too old, or a build without CUDA.
Driver& real_driver(int index);
int real_device_count() noexcept;

}  // namespace quanta::cuda
