// The products of gemm_codes.h on AMX.

#include "quanta/ops/cpu/gemm/amx_tiles.h"
#include "quanta/ops/cpu/gemm/gemm_codes.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace quanta::cpu {

#ifdef QUANTA_HAS_TILES

namespace {

template <bool kTwo>
QUANTA_TILES inline void block_sums(const TileBlock& block, std::int64_t steps,
                                    const std::int32_t* start, std::int32_t* sums) {
  const auto nothing = [] {};
  start_block<kTwo>(start);
  multiply_block<kTwo>(block, 0, steps, nothing);
  store_block<kTwo>(sums);
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
  alignas(64) std::array<std::int32_t, kBlockRows * kBlockColumns> sums;
  const TileScope scope;
  for (std::int64_t first = row_begin; first < row_end; first += chunk) {
    const std::int64_t end = std::min(first + chunk, row_end);
    for (std::int64_t panel = panel_begin; panel < panel_end; panel += 2) {
      const std::int8_t* panels = weight.panel(panel);
      for (std::int64_t row = first; row < end;) {
        const std::int64_t left = end - row;
        const std::int64_t count = left >= kBlockRows ? kBlockRows : kTileRows;
        // The last block is moved back to end with the rows; the same sums are calculated twice.
        const std::int64_t from = std::max(row_begin, std::min(row, row_end - count));
        const TileBlock block{last.find(call, from, count), weight.in_features, panels,
                              panels + weight.panel_bytes()};
        const std::int32_t* start = call.requantize.compensation.data() + panel * 16;
        if (count == kBlockRows) {
          block_sums<true>(block, steps, start, sums.data());
        } else {
          block_sums<false>(block, steps, start, sums.data());
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
