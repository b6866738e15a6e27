#pragma once

// Private: the products of a step of cpu_int8.h on AMX: a tile holds up to 16 rows of 64 codes, 64
// weights of 16 units of a gate, or their sums.

#include "quanta/ops/cpu/gemm/amx_tiles.h"
#include "quanta/ops/rnn/cpu_int8.h"

#ifdef QUANTA_HAS_TILES

#include <array>
#include <cstddef>
#include <cstdint>

namespace quanta::cpu {

/// For each number of sequences: sums of the gates in tiles 0 to 3, codes in 4, weights in 5 to 7.
inline constexpr auto kGateTileShapes = [] {
  std::array<TileShapes, kMaxStepRows + 1> shapes;
  for (std::size_t rows = 1; rows < shapes.size(); ++rows) {
    for (std::size_t tile = 0; tile < 5; ++tile) {
      shapes[rows].rows[tile] = static_cast<std::uint8_t>(rows);
    }
  }
  return shapes;
}();

class GateTiles {
 public:
  explicit GateTiles(std::int64_t rows) : scope_(kGateTileShapes[static_cast<std::size_t>(rows)]) {}

  /// The first products of a block, whose sums start from those of `start` [gates][16]. Writes the sums
  /// that are in the tiles before it takes them, to `before` [rows][gates][16]: at the end of a block
  /// the tiles would wait for that.
  template <int kGates>
  QUANTA_TILES static void first(const std::uint8_t* codes, std::int64_t stride,
                                 const std::int8_t* weight, const std::int32_t* start,
                                 std::int32_t* before) {
    constexpr std::size_t kStride = kGates * kPanelGroup;
    constexpr std::size_t kSumStride = kGates * kUnitBlock * sizeof(std::int32_t);
    // From a stride of 0 all rows are the same one.
    _tile_loadd(4, codes, static_cast<std::size_t>(stride));
    _tile_loadd(5, weight, kStride);
    _tile_stored(0, before, kSumStride);
    _tile_loadd(0, start, 0);
    _tile_dpbusd(0, 4, 5);
    _tile_loadd(6, weight + kPanelGroup, kStride);
    _tile_stored(1, before + kUnitBlock, kSumStride);
    _tile_loadd(1, start + kUnitBlock, 0);
    _tile_dpbusd(1, 4, 6);
    _tile_loadd(7, weight + 2 * kPanelGroup, kStride);
    _tile_stored(2, before + 2 * kUnitBlock, kSumStride);
    _tile_loadd(2, start + 2 * kUnitBlock, 0);
    _tile_dpbusd(2, 4, 7);
    if constexpr (kGates == 4) {
      _tile_loadd(5, weight + 3 * kPanelGroup, kStride);
      _tile_stored(3, before + 3 * kUnitBlock, kSumStride);
      _tile_loadd(3, start + 3 * kUnitBlock, 0);
      _tile_dpbusd(3, 4, 5);
    }
  }
  /// Adds the products of 64 codes of each row, whose weights begin at `weight`.
  template <int kGates>
  QUANTA_TILES static void add(const std::uint8_t* codes, std::int64_t stride,
                               const std::int8_t* weight) {
    constexpr std::size_t kStride = kGates * kPanelGroup;
    _tile_loadd(4, codes, static_cast<std::size_t>(stride));
    _tile_loadd(5, weight, kStride);
    _tile_dpbusd(0, 4, 5);
    _tile_loadd(6, weight + kPanelGroup, kStride);
    _tile_dpbusd(1, 4, 6);
    _tile_loadd(7, weight + 2 * kPanelGroup, kStride);
    _tile_dpbusd(2, 4, 7);
    if constexpr (kGates == 4) {
      _tile_loadd(5, weight + 3 * kPanelGroup, kStride);
      _tile_dpbusd(3, 4, 5);
    }
  }
  /// Writes the last sums [rows][gates][16].
  template <int kGates>
  QUANTA_TILES static void store(std::int32_t* sums) {
    constexpr std::size_t kStride = kGates * kUnitBlock * sizeof(std::int32_t);
    _tile_stored(0, sums, kStride);
    _tile_stored(1, sums + kUnitBlock, kStride);
    _tile_stored(2, sums + 2 * kUnitBlock, kStride);
    if constexpr (kGates == 4) _tile_stored(3, sums + 3 * kUnitBlock, kStride);
  }

 private:
  TileScope scope_;
};

}  // namespace quanta::cpu

#endif  // QUANTA_HAS_TILES
