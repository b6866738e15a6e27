#pragma once

// Private: work of a CUDA device that is captured once and started again with one call.
//
//   Capture capture(device);
//   first(...);            // noted, not done
//   second(...);
//   const Graph graph = capture.finish();
//   graph.launch();        // first, second

#include <cstddef>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "quanta/runtime/cuda/driver.h"
#include "quanta/runtime/device.h"

namespace quanta::cuda {

/// What captured work needs as long as it may be started: the memory that was taken and let go of
/// while it was captured, and what operations asked to keep.
class GraphMemory {
 public:
  explicit GraphMemory(Device device) : device_(device) {}
  ~GraphMemory();
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;

  Device device() const noexcept { return device_; }
  /// A block that was let go of before, or a new one.
  void* take(std::size_t bytes);
  /// Keeps the block, whoever took it.
  void give_back(void* data, std::size_t bytes) noexcept;
  /// Blocks that were taken and are still in use.
  std::size_t blocks_in_use() const noexcept { return in_use_.size(); }
  void keep(std::shared_ptr<const void> what) { kept_.push_back(std::move(what)); }

 private:
  struct Block {
    void* data;
    std::size_t bytes;
  };
  Device device_;
  std::unordered_map<void*, std::size_t> in_use_;
  std::vector<Block> free_;
  std::vector<std::shared_ptr<const void>> kept_;
};

/// Captured work with its memory; movable. One thread at a time.
class Graph {
 public:
  /// Starts it on the device's stream.
  void launch() const { work_->launch(); }

 private:
  friend class Capture;
  Graph(std::unique_ptr<GraphMemory> memory, std::unique_ptr<CapturedWork> work)
      : memory_(std::move(memory)), work_(std::move(work)) {}
  // The work goes first.
  std::unique_ptr<GraphMemory> memory_;
  std::unique_ptr<CapturedWork> work_;
};

/// While it lives, what the calling thread asks of the device is noted. What cannot be (copies from
/// and to the host, waiting) throws CaptureError; so does whatever else goes wrong with another
/// BackendError. Without finish() what was noted is forgotten.
class Capture {
 public:
  explicit Capture(Device device);
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  /// Throws CaptureError if memory that was taken meanwhile is still in use: what it holds would be
  /// there only once the graph has run.
  void require_no_memory_left() const;
  Graph finish();

 private:
  Driver* driver_;
  std::unique_ptr<GraphMemory> memory_;
  bool is_open_ = true;
};

/// Whether the calling thread captures.
bool is_capturing() noexcept;
/// For operations that keep device memory in a cache with a bound: what the calling thread captures
/// keeps it too. Nothing to do outside of a capture.
void keep_for_graph(std::shared_ptr<const void> what);

/// Where the calling thread's memory comes from while it captures; else null.
extern thread_local constinit GraphMemory* graph_memory;

}  // namespace quanta::cuda
