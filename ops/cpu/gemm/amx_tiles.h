#pragma once

// Private: what kernels with AMX's tiles share. Where they are: QUANTA_HAS_TILES is defined.

#if defined(__x86_64__) && defined(__linux__)
#define QUANTA_HAS_TILES 1
#define QUANTA_TILES __attribute__((target("amx-tile,amx-int8")))

#include <immintrin.h>

#include <array>
#include <cstdint>

namespace quanta::cpu {

/// A tile holds 16 rows of 64 bytes: 16 rows of codes, 16 channels by 64 weights, 16 by 16 sums.
inline constexpr std::int64_t kTileRows = 16;
inline constexpr std::int64_t kTileBytes = 64;

struct alignas(64) TileShapes {
  std::uint8_t palette = 1;
  std::array<std::uint8_t, 15> reserved{};
  std::array<std::uint16_t, 16> row_bytes{64, 64, 64, 64, 64, 64, 64, 64};
  std::array<std::uint8_t, 16> rows{16, 16, 16, 16, 16, 16, 16, 16};
};
// Not a local variable: GCC 12 takes its first eight bytes only to be read.
inline constexpr TileShapes kTileShapes;

/// All eight tiles in their full size while it lives.
class TileScope {
 public:
  QUANTA_TILES TileScope() { _tile_loadconfig(&kTileShapes); }
  QUANTA_TILES ~TileScope() { _tile_release(); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};

}  // namespace quanta::cpu
#endif
