#pragma once

// Private: the products of a step of rnn_int8.h on AMX: a tile holds up to 16 rows of 64 codes, of
// 16 units by 64 weights of a gate, or of their sums.

#include "quanta/ops/rnn/cpu_int8.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <array>
#include <cstddef>
#include <cstdint>

namespace quanta::cpu {

#if defined(__x86_64__)

#define QUANTA_GATE_TILES __attribute__((target("amx-tile,amx-int8")))

/// Codes that a tile holds of a row.
inline constexpr std::int64_t kTileCodes = 64;

/// Sums of the gates in tiles 0 to 3, codes in 4, weights in 5 to 7.
struct alignas(64) GateTileShapes {
  std::uint8_t palette = 1;
  std::array<std::uint8_t, 15> reserved{};
  std::array<std::uint16_t, 16> row_bytes{64, 64, 64, 64, 64, 64, 64, 64};
  std::array<std::uint8_t, 16> rows{16, 16, 16, 16, 16, 16, 16, 16};
};
/// For each number of sequences. Constants, since GCC takes only the first eight bytes of a local
/// variable to be read.
inline constexpr auto kGateTileShapes = [] {
  std::array<GateTileShapes, kMaxStepRows + 1> shapes;
  for (std::size_t rows = 1; rows < shapes.size(); ++rows) {
    for (std::size_t tile = 0; tile < 5; ++tile) {
      shapes[rows].rows[tile] = static_cast<std::uint8_t>(rows);
    }
  }
  return shapes;
}();

class GateTiles {
 public:
  QUANTA_GATE_TILES explicit GateTiles(std::int64_t rows) {
    _tile_loadconfig(&kGateTileShapes[static_cast<std::size_t>(rows)]);
  }
  QUANTA_GATE_TILES ~GateTiles() { _tile_release(); }
  GateTiles(const GateTiles&) = delete;
  GateTiles& operator=(const GateTiles&) = delete;

  /// All sums start from those of `first` [gates][16].
  template <int kGates>
  QUANTA_GATE_TILES static void start(const std::int32_t* first) {
    // A stride of 0: all rows are the same one.
    _tile_loadd(0, first, 0);
    _tile_loadd(1, first + kUnitBlock, 0);
    _tile_loadd(2, first + 2 * kUnitBlock, 0);
    if constexpr (kGates == 4) _tile_loadd(3, first + 3 * kUnitBlock, 0);
  }
  /// Adds the products of 64 codes of each row, whose weights begin at `weight`.
  template <int kGates>
  QUANTA_GATE_TILES static void add(const std::uint8_t* codes, std::int64_t stride,
                                    const std::int8_t* weight) {
    constexpr std::int64_t kGateBytes = kUnitBlock * kPanelDepth;
    constexpr std::size_t kStride = kGates * kGateBytes;
    _tile_loadd(4, codes, static_cast<std::size_t>(stride));
    _tile_loadd(5, weight, kStride);
    _tile_dpbusd(0, 4, 5);
    _tile_loadd(6, weight + kGateBytes, kStride);
    _tile_dpbusd(1, 4, 6);
    _tile_loadd(7, weight + 2 * kGateBytes, kStride);
    _tile_dpbusd(2, 4, 7);
    if constexpr (kGates == 4) {
      _tile_loadd(5, weight + 3 * kGateBytes, kStride);
      _tile_dpbusd(3, 4, 5);
    }
  }
  /// To sums [rows][gates][16].
  template <int kGates>
  QUANTA_GATE_TILES static void store(std::int32_t* sums) {
    constexpr std::size_t kStride = kGates * kUnitBlock * sizeof(std::int32_t);
    _tile_stored(0, sums, kStride);
    _tile_stored(1, sums + kUnitBlock, kStride);
    _tile_stored(2, sums + 2 * kUnitBlock, kStride);
    if constexpr (kGates == 4) _tile_stored(3, sums + 3 * kUnitBlock, kStride);
  }
};

#endif  // defined(__x86_64__)

}  // namespace quanta::cpu
