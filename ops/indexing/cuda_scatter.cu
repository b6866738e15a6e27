#include "quanta/ops/indexing/cuda_scatter.h"

#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {
namespace {

struct alignas(16) Item16 {
  std::uint64_t words[2];
};

SIMT_DEVICE std::int64_t place_of(const StridedWalk& walk, std::int64_t flat) {
  std::int64_t place = 0;
  for (int d = walk.rank - 1; d > 0; --d) {
    place += flat % walk.sizes[d] * walk.first[d];
    flat /= walk.sizes[d];
  }
  return walk.rank > 0 ? place + flat * walk.first[0] : place;
}

struct ChooseWinners {
  static constexpr const char* kName = "choose_winners";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = ChooseParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i < p.updates) simt::atomic_max(p.winners + p.targets[i], static_cast<std::int32_t>(i));
  }
};

template <typename Item>
struct PutItems {
  static constexpr const char* kName = "put_items";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = PutParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    const std::int64_t k = i / p.length;
    if (k >= p.updates) return;
    const std::int64_t item = i - k * p.length;
    const std::int64_t target = p.targets[k];
    std::int64_t update = k;
    if (p.order != nullptr) {
      if (k + 1 < p.updates && p.targets[k + 1] == target) return;
      update = p.order[k];
    } else if (p.winners[target] != k) {
      return;
    }
    const std::int64_t to = place_of(p.slices, target) + place_of(p.items, item);
    simt::store(static_cast<Item*>(p.to) + to,
                simt::load<Item>(static_cast<const Item*>(p.from) + update * p.length + item));
  }
};

template <typename Item>
struct PutCache {
  static constexpr const char* kName = "put_cache";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = PutCacheParams;

  static SIMT_DEVICE std::int64_t start_of(const Params& p, std::int64_t batch) {
    if (p.start == nullptr) return 0;
    const std::int64_t at = batch * p.start_stride;
    return p.is_long ? static_cast<const std::int64_t*>(p.start)[at]
                     : static_cast<const std::int32_t*>(p.start)[at];
  }

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.items) return;
    const std::int64_t row = i / p.inner;
    const std::int64_t line = row / p.length;
    const std::int64_t start = start_of(p, line / p.lines);
    if (start < 0 || start > (p.circular ? p.length - 1 : p.length - p.count)) {
      return simt::atomic_max(p.fault, 1);
    }
    std::int64_t k = row - line * p.length - start;
    if (p.circular && k < 0) k += p.length;
    const bool is_written = k >= 0 && k < p.count;
    const Item* const from = is_written ? static_cast<const Item*>(p.update) +
                                              (line * p.count + k) * p.inner + (i - row * p.inner)
                                        : static_cast<const Item*>(p.x) + i;
    simt::store(static_cast<Item*>(p.to) + i, simt::load<Item>(from));
  }
};

/// Starts Kernel<Item> for items of so many bytes.
template <template <typename> typename Kernel, typename Params>
void launch_for(Device device, std::int64_t count, const Params& params) {
  const simt::Grid grid = simt::grid_for(count);
  switch (params.item_bytes) {
    case 1:
      return simt::launch<Kernel<std::uint8_t>>(device, grid, params);
    case 2:
      return simt::launch<Kernel<std::uint16_t>>(device, grid, params);
    case 4:
      return simt::launch<Kernel<std::uint32_t>>(device, grid, params);
    case 8:
      return simt::launch<Kernel<std::uint64_t>>(device, grid, params);
    default:
      return simt::launch<Kernel<Item16>>(device, grid, params);
  }
}

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void choose_winners(Device device, const ChooseParams& params) {
  simt::launch<ChooseWinners>(device, simt::grid_for(params.updates), params);
}
void put_items(Device device, const PutParams& params) {
  launch_for<PutItems>(device, params.updates * params.length, params);
}
void put_cache(Device device, const PutCacheParams& params) {
  launch_for<PutCache>(device, params.items, params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
