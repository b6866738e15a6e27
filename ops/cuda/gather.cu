#include "quanta/ops/cuda/gather.h"

#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {
namespace {

struct alignas(16) TwoWords {
  std::uint64_t low;
  std::uint64_t high;
};

template <typename T>
SIMT_DEVICE T item_of(std::uint64_t bits) {
  if constexpr (sizeof(T) == 16) {
    return {bits, bits};
  } else {
    return static_cast<T>(bits);
  }
}

struct GatherItems {
  static constexpr const char* kName = "gather_items";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = GatherParams;

  // The number of the source of result i; -1: it has none.
  static SIMT_DEVICE std::int64_t place_of(const Params& p, std::int64_t i) {
    std::int64_t place = 0;
    for (int d = p.rank - 1; d >= 0; --d) {
      const GatherAxis& axis = p.axes[d];
      const std::int64_t o = i % axis.source.output;
      i /= axis.source.output;
      const std::int64_t source =
          axis.table != nullptr ? axis.table[o] : math::source_of(axis.source, o);
      if (source < 0) return -1;
      place += source * axis.stride;
    }
    return place;
  }

  template <typename T>
  static SIMT_DEVICE void move(const Params& p, std::int64_t i) {
    const std::int64_t place = place_of(p, i);
    simt::store<T>(
        static_cast<T*>(p.to) + i,
        place < 0 ? item_of<T>(p.other) : simt::load<T>(static_cast<const T*>(p.from) + place));
  }

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.count) return;
    switch (p.item_bytes) {
      case 1:
        return move<std::uint8_t>(p, i);
      case 2:
        return move<std::uint16_t>(p, i);
      case 4:
        return move<std::uint32_t>(p, i);
      case 8:
        return move<std::uint64_t>(p, i);
      default:
        return move<TwoWords>(p, i);
    }
  }
};

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void gather_items(Device device, const GatherParams& params) {
  simt::launch<GatherItems>(device, simt::grid_for(params.count), params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
