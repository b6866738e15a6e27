// The products of gemm_codes.h on AMX: a tile holds 16 rows of 64 codes, of 16 channels by 64
// weights, or of 16 by 16 sums.

#include "quanta/ops/cpu/gemm/amx_tiles.h"
#include "quanta/ops/cpu/gemm/gemm_codes.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace quanta::cpu {

#ifdef QUANTA_HAS_TILES

namespace {

constexpr std::int64_t kColumns = 32;
constexpr std::int64_t kBlockRows = 2 * kTileRows;

// Sums in tiles 0 to 3 (two blocks of rows by two panels), codes in 4 and 5, weights in 6 and 7.

/// 16 or 32 rows of codes times a pair of panels.
struct TileBlock {
  const std::uint8_t* src;
  std::int64_t stride;
  const std::int8_t* weight;
  std::int64_t panel_bytes;
  std::int64_t steps;
  const std::int32_t* start;  ///< what each row's sums begin with: the compensation
};

QUANTA_TILES inline void multiply_one(const TileBlock& block, std::int32_t* sums) {
  _tile_loadd(0, block.start, 0);
  _tile_loadd(1, block.start + kTileRows, 0);
  const auto stride = static_cast<std::size_t>(block.stride);
  for (std::int64_t step = 0; step < block.steps; ++step) {
    const std::int8_t* weight = block.weight + step * kTileRows * kTileBytes;
    _tile_loadd(4, block.src + step * kTileBytes, stride);
    _tile_loadd(6, weight, kTileBytes);
    _tile_dpbusd(0, 4, 6);
    _tile_loadd(7, weight + block.panel_bytes, kTileBytes);
    _tile_dpbusd(1, 4, 7);
  }
  constexpr std::size_t kStride = kColumns * sizeof(std::int32_t);
  _tile_stored(0, sums, kStride);
  _tile_stored(1, sums + kTileRows, kStride);
}

QUANTA_TILES inline void multiply_two(const TileBlock& block, std::int32_t* sums) {
  _tile_loadd(0, block.start, 0);
  _tile_loadd(1, block.start + kTileRows, 0);
  _tile_loadd(2, block.start, 0);
  _tile_loadd(3, block.start + kTileRows, 0);
  const auto stride = static_cast<std::size_t>(block.stride);
  for (std::int64_t step = 0; step < block.steps; ++step) {
    const std::int8_t* weight = block.weight + step * kTileRows * kTileBytes;
    const std::uint8_t* src = block.src + step * kTileBytes;
    _tile_loadd(4, src, stride);
    _tile_loadd(6, weight, kTileBytes);
    _tile_dpbusd(0, 4, 6);
    _tile_loadd(7, weight + block.panel_bytes, kTileBytes);
    _tile_dpbusd(1, 4, 7);
    _tile_loadd(5, src + kTileRows * block.stride, stride);
    _tile_dpbusd(2, 5, 6);
    _tile_dpbusd(3, 5, 7);
  }
  constexpr std::size_t kStride = kColumns * sizeof(std::int32_t);
  _tile_stored(0, sums, kStride);
  _tile_stored(1, sums + kTileRows, kStride);
  _tile_stored(2, sums + kTileRows * kColumns, kStride);
  _tile_stored(3, sums + kTileRows * kColumns + kTileRows, kStride);
}

/// The last rows of the codes, when tiles would read beyond them: a row is read up to a multiple of
/// 64 codes, and weights are zeros there.
class LastRows {
 public:
  LastRows(const GemmCodes& call, std::int64_t begin) : begin_(begin) {
    const CodePanels& weight = call.weight;
    if (begin >= call.rows) return;
    copy_.resize(static_cast<std::size_t>((call.rows - begin) * weight.in_features + weight.depth -
                                          weight.in_features));
    std::memcpy(copy_.data(), call.src + begin * weight.in_features,
                static_cast<std::size_t>((call.rows - begin) * weight.in_features));
  }
  /// Where row `row` lies, for `count` rows from there on.
  const std::uint8_t* find(const GemmCodes& call, std::int64_t row, std::int64_t count) const {
    const std::int64_t depth = call.weight.in_features;
    const bool is_last = row + count == call.rows && call.weight.depth != depth;
    return is_last ? copy_.data() + (row - begin_) * depth : call.src + row * depth;
  }

 private:
  std::int64_t begin_;
  AlignedVector<std::uint8_t> copy_;
};

}  // namespace

void gemm_codes_tiles(const GemmCodes& call, std::int64_t row_begin, std::int64_t row_end,
                      std::int64_t panel_begin, std::int64_t panel_end) {
  const CodePanels& weight = call.weight;
  const std::int64_t steps = weight.depth / kTileBytes;
  const bool is_padded = weight.depth != weight.in_features;
  const LastRows last(call, is_padded && row_end == call.rows
                                ? std::max<std::int64_t>(row_end - kBlockRows, 0)
                                : call.rows);
  // Rows of codes that stay in the L1 cache while all panels pass.
  constexpr std::int64_t kCachedBytes = 32768;
  const std::int64_t chunk =
      std::max<std::int64_t>(kCachedBytes / weight.in_features / kBlockRows, 2) * kBlockRows;
  alignas(64) std::array<std::int32_t, kBlockRows * kColumns> sums;
  const TileScope scope;
  for (std::int64_t first = row_begin; first < row_end; first += chunk) {
    const std::int64_t end = std::min(first + chunk, row_end);
    for (std::int64_t panel = panel_begin; panel < panel_end; panel += 2) {
      const std::int8_t* panels = weight.data.data() + panel * weight.panel_bytes();
      for (std::int64_t row = first; row < end;) {
        const std::int64_t left = end - row;
        const std::int64_t count = left >= kBlockRows ? kBlockRows : kTileRows;
        // The last block is moved back to end with the rows; the same sums are calculated twice.
        const std::int64_t from = std::max(row_begin, std::min(row, row_end - count));
        const TileBlock block{last.find(call, from, count),
                              weight.in_features,
                              panels,
                              weight.panel_bytes(),
                              steps,
                              call.requantize.compensation.data() + panel * 16};
        if (count == kBlockRows) {
          multiply_two(block, sums.data());
        } else {
          multiply_one(block, sums.data());
        }
        codes_of_sums(call, sums.data(), from, count, panel);
        row = from + count;
      }
    }
  }
}

#else

void gemm_codes_tiles(const GemmCodes&, std::int64_t, std::int64_t, std::int64_t, std::int64_t) {}

#endif  // QUANTA_HAS_TILES

}  // namespace quanta::cpu
