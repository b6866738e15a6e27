#include "quanta/ops/cuda/pack_codes.h"

#include "quanta/ops/cuda/product_ends.h"
#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {
namespace {

// A tile of 64 columns and 64 bytes of the depth goes through shared memory: bytes are read by
// neighbours in the order in which they lie, and written 16 at a time along the depth.
struct PackCodes {
  static constexpr const char* kName = "pack_codes";
  static constexpr int kThreads = 256;
  static constexpr int kTile = 64;
  static constexpr int kPitch = kTile + 4;
  static constexpr int kShared = kTile * kPitch;
  static constexpr bool kTogether = true;
  using Params = PackCodesParams;

  struct alignas(16) Words {
    std::uint32_t at[4];
  };

  static SIMT_DEVICE void run(const Params& p, unsigned char* shared) {
    const std::int64_t group = simt::block_x();
    const int first_column = simt::block_y() * kTile;
    const int first = simt::block_z() * kTile;
    const int t = simt::thread();
    if (p.pad != nullptr && group == 0 && first_column == 0 && first == 0 && t < 16) {
      p.pad[t] = static_cast<std::uint8_t>(zero_of(p.pad_zero, 0));
    }
    const bool columns_first = p.column_stride < p.channel_stride;
    for (int i = t; i < kTile * kTile; i += kThreads) {
      const int column = columns_first ? i % kTile : i / kTile;
      const int along = columns_first ? i / kTile : i % kTile;
      const int k = first + along;
      std::uint8_t byte = 0;
      if (first_column + column < p.columns && k < p.channels * p.taps) {
        byte = static_cast<std::uint8_t>(
            p.from[group * p.group_stride + (first_column + column) * p.column_stride +
                   k % p.channels * p.channel_stride + k / p.channels * p.tap_stride] ^
            p.mask);
      }
      shared[column * kPitch + along] = byte;
    }
    simt::sync();
    const int column = t / 4;
    const int chunk = t % 4 * 16;
    Words words{};
    std::int32_t sum = 0;
    for (int i = 0; i < 4; ++i) {
      words.at[i] = simt::load<std::uint32_t>(shared + column * kPitch + chunk + i * 4);
      sum = simt::dot_u8s8(0x01010101U, words.at[i], sum);
    }
    const std::int64_t row = group * p.padded_columns + first_column + column;
    simt::store(p.w + row * p.depth + first + chunk, words);
    sum += simt::shuffle_xor(sum, 1);
    sum += simt::shuffle_xor(sum, 2);
    if (chunk == 0 && first_column + column < p.columns) {
      simt::atomic_add(p.sums + group * p.columns + first_column + column, sum);
    }
  }
};

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void pack_codes(Device device, const PackCodesParams& params) {
  simt::launch<PackCodes>(device,
                          simt::Grid{params.groups, params.padded_columns / PackCodes::kTile,
                                     params.depth / PackCodes::kTile},
                          params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
