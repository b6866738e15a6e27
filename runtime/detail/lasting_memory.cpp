#include "quanta/runtime/detail/lasting_memory.h"

#include <sys/mman.h>

#include <mutex>
#include <span>
#include <utility>

#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/detail/large_pages.h"

namespace quanta::detail {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kChunkBytes = 2 * kLargePage;

/// Large pages, from which pieces are cut off in order.
class Chunk {
 public:
  explicit Chunk(std::size_t bytes)
      : mapped_(static_cast<std::byte*>(map_large_pages(bytes)), bytes), free_(mapped_) {
    if (mapped_.data() == nullptr) {
      throw BackendError(fmt::format("lasting_memory: no memory for {} bytes", bytes));
    }
  }
  ~Chunk() { ::munmap(mapped_.data(), mapped_.size()); }
  Chunk(const Chunk&) = delete;
  Chunk& operator=(const Chunk&) = delete;

  std::size_t left() const noexcept { return free_.size(); }
  std::byte* cut(std::size_t bytes) noexcept {
    std::byte* piece = free_.data();
    free_ = free_.subspan(bytes);
    return piece;
  }

 private:
  std::span<std::byte> mapped_, free_;
};

struct Pool {
  std::mutex mutex;
  std::weak_ptr<Chunk> current;  // not kept for its own sake
};

// No piece is given out twice, so that what a pool gives is as the system gave it: zeros.
std::shared_ptr<std::byte> piece_of(Pool& pool, std::size_t bytes) {
  const std::size_t rounded = round_up(bytes, kAlignment);
  const std::lock_guard lock(pool.mutex);
  std::shared_ptr<Chunk> chunk = pool.current.lock();
  if (chunk == nullptr || chunk->left() < rounded) {
    const std::size_t wanted = rounded <= kChunkBytes ? kChunkBytes : round_up(rounded, kLargePage);
    auto fresh = std::make_shared<Chunk>(wanted);
    // What is left of either stays for the next ones: of the chunk that has more.
    if (chunk == nullptr || chunk->left() < wanted - rounded) pool.current = fresh;
    chunk = std::move(fresh);
  }
  return {chunk, chunk->cut(rounded)};
}

}  // namespace

// Pools are never destroyed: weights with static lifetime may be packed after the end of main.

std::shared_ptr<std::byte> lasting_memory(std::size_t bytes) {
  static auto* pool = new Pool;
  return piece_of(*pool, bytes);
}

std::shared_ptr<std::byte> lasting_zeros(std::size_t bytes) {
  // Not between pieces that are in use: their pages would be taken as well.
  static auto* pool = new Pool;
  return piece_of(*pool, bytes);
}

}  // namespace quanta::detail
