#include "quanta/runtime/allocator.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <vector>

#include "quanta/runtime/detail/block_cache.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/tensor.h"

namespace quanta {
namespace {

// Blocks that exist only as numbers, counted by their bytes.
class CountedBlocks final : public detail::BlockSource {
 public:
  void* take(std::size_t bytes, detail::BlockContents) override {
    if (held + bytes > most) return nullptr;
    held += bytes;
    ++taken;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): never read
    return reinterpret_cast<void*>(++last_ * 4096);
  }
  void give_back(void*, std::size_t bytes) noexcept override { held -= bytes; }
  bool wants_idle_blocks() const noexcept override { return wants_idle; }
  std::string_view memory_name() const noexcept override { return " of numbers"; }

  bool wants_idle = true;
  std::size_t held = 0, most = std::size_t{1} << 40;
  int taken = 0;

 private:
  std::uintptr_t last_ = 0;
};

constexpr std::size_t kMegabyte = std::size_t{1} << 20;

}  // namespace

TEST_CASE("block cache: sizes that come only once leave nothing behind") {
  CountedBlocks blocks;
  detail::BlockCache cache(blocks, 1024 * kMegabyte);
  for (std::size_t call = 0; call < 200'000; ++call) {
    void* steady = cache.allocate(5000, detail::BlockContents::Undefined).data;
    const std::size_t once = 1000 * (1 + call / 8);
    void* varying = cache.allocate(once, detail::BlockContents::Undefined).data;
    cache.deallocate(varying, once);
    cache.deallocate(steady, 5000);
  }
  // The sizes of the last two periods: up to 25 MB, in steps of an eighth.
  CHECK(cache.stats().cached < 120 * kMegabyte);
  CHECK(cache.stats().cached == blocks.held);
  cache.give_back_cached();
  CHECK(blocks.held == 0);
}

TEST_CASE("block cache: many blocks that are not needed any more leave over some calls") {
  for (const bool wants : {true, false}) {
    CountedBlocks blocks;
    blocks.wants_idle = wants;
    detail::BlockCache cache(blocks, 1024 * kMegabyte);
    std::vector<void*> many;
    for (int i = 0; i < 1000; ++i) {
      many.push_back(cache.allocate(1000, detail::BlockContents::Undefined).data);
    }
    for (void* data : many) cache.deallocate(data, 1000);
    for (int call = 0; call < 40'000; ++call) {
      cache.deallocate(cache.allocate(5000, detail::BlockContents::Undefined).data, 5000);
    }
    CHECK(cache.stats().cached == blocks.held);
    if (wants) {
      CHECK(blocks.held < 10'000);
    } else {
      CHECK(blocks.held > 1'000'000);
    }
  }
}

TEST_CASE("block cache: what every round needs is asked for once") {
  CountedBlocks blocks;
  detail::BlockCache cache(blocks, 1024 * kMegabyte);
  for (int round = 0; round < 50'000; ++round) {
    void* a = cache.allocate(kMegabyte, detail::BlockContents::Undefined).data;
    void* b = cache.allocate(kMegabyte, detail::BlockContents::Undefined).data;
    CHECK(a != b);
    cache.deallocate(a, kMegabyte);
    cache.deallocate(b, kMegabyte);
  }
  CHECK(blocks.taken == 2);
}

TEST_CASE("block cache: a new limit gives back what is above it") {
  CountedBlocks blocks;
  detail::BlockCache cache(blocks, 1024 * kMegabyte);
  std::map<void*, std::size_t> used;
  for (std::size_t size = 1; size <= 64; size *= 2) {
    for (int i = 0; i < 3; ++i) {
      used[cache.allocate(size * kMegabyte, detail::BlockContents::Undefined).data] =
          size * kMegabyte;
    }
  }
  for (const auto& [data, bytes] : used) cache.deallocate(data, bytes);
  const std::size_t all = cache.stats().cached;
  CHECK(all == 3 * 127 * kMegabyte);
  CHECK(cache.set_most_cached_bytes(100 * kMegabyte) == 1024 * kMegabyte);
  CHECK(cache.stats().cached <= 100 * kMegabyte);
  CHECK(cache.stats().cached > 36 * kMegabyte);
  CHECK(blocks.held == cache.stats().cached);
  CHECK(cache.set_most_cached_bytes(0) == 100 * kMegabyte);
  CHECK(blocks.held == 0);
  void* data = cache.allocate(10, detail::BlockContents::Undefined).data;
  cache.deallocate(data, 10);
  CHECK(blocks.held == 0);
}

TEST_CASE("block cache: kept blocks go back when the source has no more") {
  CountedBlocks blocks;
  blocks.most = 10 * kMegabyte;
  detail::BlockCache cache(blocks, 1024 * kMegabyte);
  void* first = cache.allocate(8 * kMegabyte, detail::BlockContents::Undefined).data;
  cache.deallocate(first, 8 * kMegabyte);
  void* second = cache.allocate(4 * kMegabyte, detail::BlockContents::Undefined).data;
  CHECK(blocks.held == 4 * kMegabyte);
  CHECK_THROWS_WITH_AS(cache.allocate(8 * kMegabyte, detail::BlockContents::Undefined),
                       "allocate: no memory for 8388608 bytes of numbers: 4194304 are in use",
                       BackendError);
  CHECK(cache.stats().in_use == 4 * kMegabyte);
  cache.deallocate(second, 4 * kMegabyte);
}

TEST_CASE("set_cache_limit: a tensor's memory goes back when nothing is to be kept") {
  const std::size_t before = set_cache_limit(0);
  CHECK(cache_limit() == 0);
  CHECK(allocator_stats().cached == 0);
  { const Tensor large = Tensor::empty({64, 1024, 1024}); }
  CHECK(allocator_stats().cached == 0);
  CHECK(set_cache_limit(before) == 0);
  CHECK(cache_limit() == before);
}

}  // namespace quanta
