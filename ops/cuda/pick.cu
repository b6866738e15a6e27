#include "quanta/ops/cuda/pick.h"

#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {
namespace {

struct alignas(16) Item16 {
  std::uint64_t words[2];
};

template <typename Item>
struct PickItems {
  static constexpr const char* kName = "pick_items";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = PickParams;

  // The offset of element `flat` in an index tensor.
  static SIMT_DEVICE std::int64_t offset(const Params& p, const PickParams::Index& index,
                                         std::int64_t flat) {
    std::int64_t at = 0;
    for (int d = p.walk.rank - 1; d >= 0; --d) {
      at += flat % p.walk.sizes[d] * index.strides[d];
      flat /= p.walk.sizes[d];
    }
    return at;
  }

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t flat = simt::global_thread();
    if (flat >= p.walk.count) return;
    std::int64_t to = 0;
    std::int64_t from = 0;
    // Most have one index tensor, which needs no divisions of its own.
    std::int64_t first = 0;
    std::int64_t rest = flat;
    for (int d = p.walk.rank - 1; d >= 0; --d) {
      const std::int64_t place = rest % p.walk.sizes[d];
      rest /= p.walk.sizes[d];
      to += place * p.walk.first[d];
      from += place * p.walk.second[d];
      first += place * p.index[0].strides[d];
    }
    for (int i = 0; i < p.count; ++i) {
      const PickParams::Index& index = p.index[i];
      const std::int64_t at = i == 0 ? first : offset(p, index, flat);
      std::int64_t position = index.is_long ? static_cast<const std::int64_t*>(index.positions)[at]
                                            : static_cast<const std::int32_t*>(index.positions)[at];
      if (position < index.low || position >= index.length) return simt::atomic_max(p.fault, 1);
      if (position < 0) position += index.length;
      from += position * index.step;
    }
    static_cast<Item*>(p.to)[to] = static_cast<const Item*>(p.from)[from];
  }
};

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void pick_items(Device device, const PickParams& params) {
  const simt::Grid grid = simt::grid_for(params.walk.count);
  switch (params.item_bytes) {
    case 1:
      return simt::launch<PickItems<std::uint8_t>>(device, grid, params);
    case 2:
      return simt::launch<PickItems<std::uint16_t>>(device, grid, params);
    case 4:
      return simt::launch<PickItems<std::uint32_t>>(device, grid, params);
    case 8:
      return simt::launch<PickItems<std::uint64_t>>(device, grid, params);
    default:
      return simt::launch<PickItems<Item16>>(device, grid, params);
  }
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
