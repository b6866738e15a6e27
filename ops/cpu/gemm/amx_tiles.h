#pragma once

// Private: what kernels with AMX's tiles share. Where they are: QUANTA_HAS_TILES is defined.

#if defined(__x86_64__) && defined(__linux__)
#define QUANTA_HAS_TILES 1
#define QUANTA_TILE_SETS "amx-tile,amx-int8,prfchw"
#define QUANTA_TILES __attribute__((target(QUANTA_TILE_SETS)))
/// Of a function that has vectors too: clang takes a function's own sets alone.
#define QUANTA_VECTORS_AND_TILES \
  __attribute__((target(HWY_TARGET_STR ",no-avxvnni," QUANTA_TILE_SETS)))

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

/// Where 64 codes of each row and their weights are. Of a block, sums are in tiles 0 to 3, codes in 4
/// and 5, weights in 6 and 7.
struct TileStep {
  const std::uint8_t* first;   ///< 16 rows
  const std::uint8_t* second;  ///< 16 more, if there are
  std::size_t stride;
  const std::int8_t* left;   ///< 64 codes of 16 columns
  const std::int8_t* right;  ///< of 16 more
};

/// 16 or 32 rows of codes times two panels.
struct TileBlock {
  const std::uint8_t* src;
  std::int64_t stride;
  const std::int8_t* first;   ///< panels of 1024 bytes for each step of 64 codes
  const std::int8_t* second;  ///< may be the first

  template <bool kTwo>
  TileStep at(std::int64_t step) const {
    constexpr std::int64_t kStepBytes = kTileRows * kTileBytes;
    const std::uint8_t* codes = src + step * kTileBytes;
    return {codes, codes + (kTwo ? kTileRows * stride : 0), static_cast<std::size_t>(stride),
            first + step * kStepBytes, second + step * kStepBytes};
  }
};

/// The last block's sums, which are in the tiles still, and where they go. The next block writes each
/// before it takes the tile (first_step); all four at the end of a block would let the tiles wait, 63
/// cycles on Sapphire Rapids.
struct WaitingSums {
  std::int32_t* dst = nullptr;
  std::size_t stride = kBlockColumns * sizeof(std::int32_t);  ///< bytes
  bool two = false;                                           ///< 32 rows

  std::int32_t* lower() const {
    return dst + kTileRows * static_cast<std::int64_t>(stride / sizeof(std::int32_t));
  }
};

QUANTA_TILES inline void store_lower(const WaitingSums& sums) {
  _tile_stored(2, sums.lower(), sums.stride);
  _tile_stored(3, sums.lower() + kTileRows, sums.stride);
}
QUANTA_TILES inline void store_sums(const WaitingSums& sums) {
  _tile_stored(0, sums.dst, sums.stride);
  _tile_stored(1, sums.dst + kTileRows, sums.stride);
  if (sums.two) store_lower(sums);
}

/// The products of a block's first step. `Start` says what its sums start from. Writes those of the
/// block before, which may be unset tiles, but not nowhere.
template <bool kTwo, class Start>
QUANTA_TILES inline void first_step(const TileStep& step, const Start& start,
                                    const WaitingSums& before) {
  if (!kTwo && before.two) store_lower(before);
  _tile_loadd(6, step.left, kTileBytes);
  _tile_loadd(4, step.first, step.stride);
  _tile_stored(0, before.dst, before.stride);
  start.upper_left();
  _tile_dpbusd(0, 4, 6);
  _tile_loadd(7, step.right, kTileBytes);
  _tile_stored(1, before.dst + kTileRows, before.stride);
  start.upper_right();
  _tile_dpbusd(1, 4, 7);
  if constexpr (kTwo) {
    _tile_loadd(5, step.second, step.stride);
    if (before.two) _tile_stored(2, before.lower(), before.stride);
    start.lower_left();
    _tile_dpbusd(2, 5, 6);
    if (before.two) _tile_stored(3, before.lower() + kTileRows, before.stride);
    start.lower_right();
    _tile_dpbusd(3, 5, 7);
  }
}

struct StartFromZero {
  QUANTA_TILES void upper_left() const { _tile_zero(0); }
  QUANTA_TILES void upper_right() const { _tile_zero(1); }
  QUANTA_TILES void lower_left() const { _tile_zero(2); }
  QUANTA_TILES void lower_right() const { _tile_zero(3); }
};
/// The sums of all rows start from those at `row` [32]: a stride of 0 makes all rows the same one.
struct StartFromRow {
  const std::int32_t* row;

  QUANTA_TILES void upper_left() const { _tile_loadd(0, row, 0); }
  QUANTA_TILES void upper_right() const { _tile_loadd(1, row + kTileRows, 0); }
  QUANTA_TILES void lower_left() const { _tile_loadd(2, row, 0); }
  QUANTA_TILES void lower_right() const { _tile_loadd(3, row + kTileRows, 0); }
};

/// Adds the products of another step.
template <bool kTwo>
QUANTA_TILES inline void next_step(const TileStep& step) {
  _tile_loadd(6, step.left, kTileBytes);
  _tile_loadd(4, step.first, step.stride);
  _tile_dpbusd(0, 4, 6);
  _tile_loadd(7, step.right, kTileBytes);
  _tile_dpbusd(1, 4, 7);
  if constexpr (kTwo) {
    _tile_loadd(5, step.second, step.stride);
    _tile_dpbusd(2, 5, 6);
    _tile_dpbusd(3, 5, 7);
  }
}

}  // namespace quanta::cpu
#endif
