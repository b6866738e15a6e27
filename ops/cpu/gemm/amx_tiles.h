#pragma once

// Private: what kernels with AMX's tiles share. Where they are: QUANTA_HAS_TILES is defined.

#if defined(__x86_64__) && defined(__linux__)
#define QUANTA_HAS_TILES 1
#define QUANTA_TILES __attribute__((target("amx-tile,amx-int8,prfchw")))

#include <immintrin.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "quanta/ops/cpu/features.h"

namespace quanta::cpu {

struct alignas(64) TileShapes {
  std::uint8_t palette = 1;
  std::array<std::uint8_t, 15> reserved{};
  std::array<std::uint16_t, 16> row_bytes{64, 64, 64, 64, 64, 64, 64, 64};
  std::array<std::uint8_t, 16> rows{16, 16, 16, 16, 16, 16, 16, 16};
};
/// All eight tiles in their full size.
inline constexpr TileShapes kTileShapes;

/// The same, but for tiles 0 to 5, of codes and sums, which have fewer rows.
template <std::size_t... kIndex>
constexpr std::array<TileShapes, sizeof...(kIndex)> make_tile_shapes(
    std::index_sequence<kIndex...>) {
  const auto of_rows = [](std::uint8_t rows) {
    TileShapes shapes;
    for (std::size_t tile = 0; tile < 6; ++tile) shapes.rows[tile] = rows;
    return shapes;
  };
  return {of_rows(static_cast<std::uint8_t>(kIndex + 1))...};
}
/// [rows - 1]
inline constexpr std::array<TileShapes, 16> kTileShapesOfRows =
    make_tile_shapes(std::make_index_sequence<16>());

/// The tiles are set up while it lives. `shapes` is a constant: GCC 12 takes the first eight bytes
/// of a local variable only to be read.
class TileScope {
 public:
  QUANTA_TILES explicit TileScope(const TileShapes& shapes = kTileShapes) {
    _tile_loadconfig(&shapes);
  }
  QUANTA_TILES ~TileScope() { _tile_release(); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};

/// Sums of a block, [rows][32].
inline constexpr std::int64_t kBlockColumns = 2 * kTileRows;
inline constexpr std::int64_t kBlockRows = 2 * kTileRows;

/// 16 or 32 rows of codes times two panels: sums in tiles 0 to 3, codes in 4 and 5, weights in 6
/// and 7.
struct TileBlock {
  const std::uint8_t* src;
  std::int64_t stride;
  const std::int8_t* first;   ///< panels of 1024 bytes for each step of 64 codes
  const std::int8_t* second;  ///< may be the first
};

/// The sums of all rows start from those at `start` [32].
template <bool kTwo>
QUANTA_TILES inline void start_block(const std::int32_t* start) {
  // A stride of 0: all rows are the same one.
  _tile_loadd(0, start, 0);
  _tile_loadd(1, start + kTileRows, 0);
  if constexpr (kTwo) {
    _tile_loadd(2, start, 0);
    _tile_loadd(3, start + kTileRows, 0);
  }
}
QUANTA_TILES inline void start_block_from_zero() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

/// Adds the products of the steps [begin, end). `each_step()` is called before each.
template <bool kTwo, class EachStep>
QUANTA_TILES inline void multiply_block(const TileBlock& block, std::int64_t begin,
                                        std::int64_t end, EachStep& each_step) {
  constexpr std::int64_t kStepBytes = kTileRows * kTileBytes;
  const auto stride = static_cast<std::size_t>(block.stride);
  for (std::int64_t step = begin; step < end; ++step) {
    const std::uint8_t* src = block.src + step * kTileBytes;
    each_step();
    _tile_loadd(6, block.first + step * kStepBytes, kTileBytes);
    _tile_loadd(4, src, stride);
    _tile_dpbusd(0, 4, 6);
    _tile_loadd(7, block.second + step * kStepBytes, kTileBytes);
    _tile_dpbusd(1, 4, 7);
    if constexpr (kTwo) {
      _tile_loadd(5, src + kTileRows * block.stride, stride);
      _tile_dpbusd(2, 5, 6);
      _tile_dpbusd(3, 5, 7);
    }
  }
}

template <bool kTwo>
QUANTA_TILES inline void store_block(std::int32_t* sums) {
  constexpr std::size_t kStride = kBlockColumns * sizeof(std::int32_t);
  _tile_stored(0, sums, kStride);
  _tile_stored(1, sums + kTileRows, kStride);
  if constexpr (kTwo) {
    sums += kTileRows * kBlockColumns;
    _tile_stored(2, sums, kStride);
    _tile_stored(3, sums + kTileRows, kStride);
  }
}

}  // namespace quanta::cpu
#endif
