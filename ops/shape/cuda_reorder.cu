#include "quanta/ops/shape/cuda_reorder.h"

#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {
namespace {

// Calls move(T{}) with the unsigned integer that is as wide as an item.
template <typename Move>
SIMT_DEVICE void visit_items(int item_bytes, const Move& move) {
  switch (item_bytes) {
    case 1:
      return move(std::uint8_t{});
    case 2:
      return move(std::uint16_t{});
    case 4:
      return move(std::uint32_t{});
    default:
      return move(std::uint64_t{});
  }
}

struct KeepTriangle {
  static constexpr const char* kName = "keep_triangle";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = TriangleParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.count) return;
    const std::int64_t edge = i / p.columns % p.rows + p.diagonal;
    const std::int64_t column = i % p.columns;
    const bool stays = p.upper ? column >= edge : column <= edge;
    visit_items(p.item_bytes, [&](auto bits) {
      using T = decltype(bits);
      static_cast<T*>(p.y)[i] = stays ? static_cast<const T*>(p.x)[i] : static_cast<T>(p.zero);
    });
  }
};

struct ReverseSequences {
  static constexpr const char* kName = "reverse_sequences";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = ReverseParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.count) return;
    std::int64_t rest = i;
    std::int64_t place = 0;
    std::int64_t time = 0;
    std::int64_t length = 0;
    for (int d = p.rank - 1; d >= 0; --d) {
      const std::int64_t index = rest % p.sizes[d];
      rest /= p.sizes[d];
      if (d == p.batch) length = p.lengths[index];
      if (d == p.time) {
        time = index;
      } else {
        place += index * p.strides[d];
      }
    }
    place += (time < length ? length - 1 - time : time) * p.strides[p.time];
    visit_items(p.item_bytes, [&](auto bits) {
      using T = decltype(bits);
      static_cast<T*>(p.y)[i] = static_cast<const T*>(p.x)[place];
    });
  }
};

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void keep_triangle(Device device, const TriangleParams& params) {
  simt::launch<KeepTriangle>(device, simt::grid_for(params.count), params);
}
void reverse_sequences(Device device, const ReverseParams& params) {
  simt::launch<ReverseSequences>(device, simt::grid_for(params.count), params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
