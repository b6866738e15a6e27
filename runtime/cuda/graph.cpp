#include "quanta/runtime/cuda/graph.h"

#include <algorithm>
#include <utility>

#include "quanta/runtime/check.h"
#include "quanta/runtime/cuda/memory.h"

namespace quanta::cuda {

thread_local constinit GraphMemory* graph_memory = nullptr;

GraphMemory::~GraphMemory() {
  for (const Block& block : free_) deallocate(device_, block.data, block.bytes);
}

void* GraphMemory::take(std::size_t bytes) {
  // The work is done in its order, so a block may serve again as soon as it is let go of.
  const auto same = std::ranges::find(free_, bytes, &Block::bytes);
  if (same != free_.end()) {
    void* const data = same->data;
    in_use_.emplace(data, bytes);
    free_.erase(same);
    return data;
  }
  free_.reserve(free_.size() + in_use_.size() + 1);  // so that giving it back needs no memory
  void* const data = allocate_block(device_, bytes);
  try {
    in_use_.emplace(data, bytes);
  } catch (...) {
    deallocate_block(device_, data, bytes);
    throw;
  }
  return data;
}

void GraphMemory::give_back(void* data, std::size_t bytes) noexcept {
  in_use_.erase(data);
  try {
    free_.push_back({data, bytes});
  } catch (...) {  // somebody else's block, and no memory to remember it: it stays out of use
  }
}

Capture::Capture(Device device)
    : driver_(&driver(device)), memory_(std::make_unique<GraphMemory>(device)) {
  driver_->begin_capture();
  graph_memory = memory_.get();
}

Capture::~Capture() {
  if (!is_open_) return;
  graph_memory = nullptr;
  driver_->drop_capture();
}

void Capture::require_no_memory_left() const {
  if (memory_->blocks_in_use() == 0) return;
  throw CaptureError(
      fmt::format("{}: capture: expected all memory that was taken meanwhile to be let go of, got "
                  "{} blocks in use",
                  to_string(memory_->device()), memory_->blocks_in_use()));
}

Graph Capture::finish() {
  require_no_memory_left();
  graph_memory = nullptr;
  is_open_ = false;
  std::unique_ptr<CapturedWork> work = driver_->end_capture();
  return {std::move(memory_), std::move(work)};
}

bool is_capturing() noexcept { return graph_memory != nullptr; }

void keep_for_graph(std::shared_ptr<const void> what) {
  if (graph_memory != nullptr) graph_memory->keep(std::move(what));
}

}  // namespace quanta::cuda
