#include "quanta/ops/indexing/cuda_kernels.h"

#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {
namespace {

SIMT_DEVICE std::int64_t at(const Positions& positions, std::int64_t i) {
  return positions.is_long ? static_cast<const std::int64_t*>(positions.data)[i]
                           : static_cast<const std::int32_t*>(positions.data)[i];
}

template <typename Item>
struct FillMaskedItems {
  static constexpr const char* kName = "fill_masked_items";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = FillMaskedParams;

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    std::int64_t rest = simt::global_thread();
    if (rest >= p.count) return;
    std::int64_t to = 0;
    std::int64_t mask = 0;
    std::int64_t x = 0;
    for (int d = p.rank - 1; d >= 0; --d) {
      const std::int64_t place = rest % p.sizes[d];
      rest /= p.sizes[d];
      to += place * p.strides[0][d];
      mask += place * p.strides[1][d];
      x += place * p.strides[2][d];
    }
    static_cast<Item*>(p.to)[to] =
        p.mask[mask] ? static_cast<Item>(p.item) : static_cast<const Item*>(p.x)[x];
  }
};

template <typename Item>
struct OneHotItems {
  static constexpr const char* kName = "one_hot_items";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = OneHotParams;

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.positions.count * p.depth) return;
    const std::int64_t line = i / p.inner;
    std::int64_t position = at(p.positions, line / p.depth * p.inner + i % p.inner);
    if (position < 0) position += p.depth;
    const int which = position == line % p.depth ? 1 : 0;
    static_cast<Item*>(p.to)[i] = static_cast<const Item*>(p.values)[which];
  }
};

struct WrapPositions {
  static constexpr const char* kName = "wrap_positions";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = WrapParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.positions.count) return;
    const std::int64_t position = at(p.positions, i);
    p.to[i] = position < 0 ? position + p.length : position;
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
    default:
      return simt::launch<Kernel<std::uint64_t>>(device, grid, params);
  }
}

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void fill_masked_items(Device device, const FillMaskedParams& params) {
  launch_for<FillMaskedItems>(device, params.count, params);
}
void one_hot_items(Device device, const OneHotParams& params) {
  launch_for<OneHotItems>(device, params.positions.count * params.depth, params);
}
void wrap_positions(Device device, const WrapParams& params) {
  simt::launch<WrapPositions>(device, simt::grid_for(params.positions.count), params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
