// The products of gemm_codes.h on AMX.

#include "quanta/ops/cpu/gemm/amx_tiles.h"
#include "quanta/ops/cpu/gemm/gemm_codes.h"
#include "quanta/runtime/detail/ceil_div.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace quanta::cpu {

#ifdef QUANTA_HAS_TILES

namespace {

/// Rows in tiles of 16. Fewer take as long: where lines are short, tiles go on over what lies between
/// them, whose sums nobody wants.
class RowTiles {
 public:
  explicit RowTiles(const CodeRows& rows) : rows_(rows) {
    const std::int64_t by_lines = rows.lines * ceil_div(rows.count, kTileRows);
    if (rows.line_stride % rows.stride == 0 && rows.line_stride >= rows.count * rows.stride) {
      const std::int64_t pitch = rows.line_stride / rows.stride;
      const std::int64_t flat = (rows.lines - 1) * pitch + rows.count;
      if (rows.lines > 1 && ceil_div(flat, kTileRows) < by_lines) {
        pitch_ = pitch;
        of_line_ = ceil_div(flat, kTileRows);
        last_ = flat;
        count_ = of_line_;
        return;
      }
    }
    pitch_ = rows.count;
    of_line_ = ceil_div(rows.count, kTileRows);
    last_ = rows.count;
    count_ = by_lines;
  }

  std::int64_t count() const { return count_; }
  std::int64_t height() const { return std::min(kTileRows, last_); }

  struct Tile {
    const std::uint8_t* src;
    std::int64_t line, row;  ///< of its first row; rows go on from line to line
    std::int64_t skip;       ///< rows that the tile before has had
  };
  /// The last tile is moved back to end with the rows.
  Tile at(std::int64_t index) const {
    if (rows_.lines == 1) {  // without the divisions, which short rows would notice
      const std::int64_t first = index * kTileRows;
      const std::int64_t row = std::min(first, last_ - height());
      return {rows_.src + row * rows_.stride, 0, row, first - row};
    }
    const std::int64_t line = index / of_line_;
    const std::int64_t begin = index % of_line_ * kTileRows;
    const std::int64_t moved = std::min(begin, last_ - height());
    return {rows_.src + line * rows_.line_stride + moved * rows_.stride, line + moved / pitch_,
            moved % pitch_, begin - moved};
  }
  /// Whether the rows of `second` go on where those of `first` end.
  bool follows(const Tile& first, const Tile& second) const {
    return (second.line - first.line) * pitch_ + second.row - first.row == kTileRows;
  }
  /// Makes the codes of the sums of `rows` rows from a tile's first on.
  void end(const GemmCodes& call, CodesOfSums* end_sums, const Tile& tile, std::int64_t rows,
           const std::int32_t* sums, std::int64_t panel) const {
    std::int64_t line = tile.line;
    std::int64_t row = tile.row + tile.skip;
    for (std::int64_t i = tile.skip; i < rows;) {
      for (; row >= pitch_; row -= pitch_) ++line;
      const std::int64_t there = std::min(rows_.count - row, rows - i);
      if (there > 0) {
        end_sums(call, sums + i * kBlockColumns, line * rows_.count + row, there, panel);
      }
      const std::int64_t step = there > 0 ? there : pitch_ - row;
      i += step;
      row += step;
    }
  }

 private:
  const CodeRows& rows_;
  std::int64_t pitch_, of_line_, last_, count_;
};

/// A copy of the last rows, when tiles would read beyond the memory: a row is read up to a multiple
/// of 64 codes, and weights are zeros there.
class LastRows {
 public:
  LastRows(const GemmCodes& call, const RowTiles& tiles) {
    const CodeRows& rows = call.rows;
    const std::int64_t filling = call.weight.depth - rows.run;
    if (rows.lines != 1 || !rows.offsets.empty() || filling <= rows.beyond) return;
    const std::int64_t tile_bytes = (tiles.height() - 1) * rows.stride + call.weight.depth;
    const std::uint8_t* end = rows.src + (rows.count - 1) * rows.stride + rows.run;
    std::int64_t tile = tiles.count();
    while (tile > 0 && tiles.at(tile - 1).src + tile_bytes > end + rows.beyond) {
      first_ = tiles.at(--tile).src;
    }
    const auto bytes = static_cast<std::size_t>(end - first_);
    copy_.resize(bytes + static_cast<std::size_t>(filling));
    std::memcpy(copy_.data(), first_, bytes);
  }
  const std::uint8_t* find(const std::uint8_t* src) const {
    return first_ != nullptr && src >= first_ ? copy_.data() + (src - first_) : src;
  }

 private:
  const std::uint8_t* first_ = nullptr;
  AlignedVector<std::uint8_t> copy_;
};

/// Where the steps of 64 codes begin in a row.
AlignedVector<std::int64_t> step_offsets(const GemmCodes& call) {
  const std::int64_t steps = call.weight.depth / kTileBytes;
  AlignedVector<std::int64_t> result(static_cast<std::size_t>(steps));
  const auto& offsets = call.rows.offsets;
  const std::int64_t of_run =
      offsets.empty() ? steps : steps / static_cast<std::int64_t>(offsets.size());
  for (std::int64_t step = 0; step < steps; ++step) {
    const std::int64_t offset =
        offsets.empty() ? 0 : offsets[static_cast<std::size_t>(step / of_run)];
    result[static_cast<std::size_t>(step)] = offset + step % of_run * kTileBytes;
  }
  return result;
}

class TileCodes {
 public:
  explicit TileCodes(const GemmCodes& call)
      : call_(call),
        ahead_(call.ahead != nullptr ? call.ahead : &nothing_),
        end_sums_(codes_of_sums()),
        tiles_(call.rows),
        last_(call, tiles_),
        offsets_(step_offsets(call)),
        is_shifted_(std::any_of(call.requantize.compensation.begin(),
                                call.requantize.compensation.end(),
                                [](std::int32_t value) { return value != 0; })) {}

  const RowTiles& tiles() const { return tiles_; }

  /// Tiles [begin, end) of rows times the two panels from `panel` on. Asks for `ahead` bytes behind
  /// them while it does so.
  QUANTA_TILES void multiply(std::int64_t begin, std::int64_t end, std::int64_t panel,
                             std::int64_t ahead) {
    MemoryAhead next({reinterpret_cast<const std::byte*>(call_.weight.panel(panel + 2)),
                      static_cast<std::size_t>(ahead)},
                     ceil_div(end - begin, std::int64_t{2}) * steps());
    for (std::int64_t index = begin; index < end; index += 2) {
      Block block{.first = tiles_.at(index),
                  .tiles = std::min<std::int64_t>(end - index, 2),
                  .panel = panel};
      if (block.tiles == 2) {
        block.second = tiles_.at(index + 1);
        multiply_block<true>(block, next);
      } else {
        multiply_block<false>(block, next);
      }
      pending_ = block;
    }
  }
  /// The last block's.
  QUANTA_TILES void finish() const {
    store_sums(waiting_);
    make_codes();
  }

 private:
  struct Block {
    RowTiles::Tile first{}, second{};
    std::int64_t tiles = 0;  ///< 1 or 2; 0: nothing
    std::int64_t panel = 0;
  };

  std::int64_t steps() const { return static_cast<std::int64_t>(offsets_.size()); }

  template <bool kTwo>
  QUANTA_TILES void multiply_block(const Block& block, MemoryAhead& next) {
    const std::int8_t* weight = call_.weight.panel(block.panel);
    TileStep step{.first = last_.find(block.first.src),
                  .second = last_.find(kTwo ? block.second.src : block.first.src),
                  .stride = static_cast<std::size_t>(call_.rows.stride),
                  .left = weight,
                  .right = weight + call_.weight.panel_bytes()};
    fetch(next);
    const TileStep first = at(step, 0);
    if (is_shifted_) {
      const auto* start = call_.requantize.compensation.data() + block.panel * kPanelChannels;
      first_step<kTwo>(first, StartFromRow{start}, waiting_);
    } else {
      first_step<kTwo>(first, StartFromZero(), waiting_);
    }
    waiting_.two = kTwo;
    const std::int64_t half = std::max<std::int64_t>(steps() / 2, 1);
    multiply_steps<kTwo>(step, 1, half, next);
    make_codes();
    multiply_steps<kTwo>(step, half, steps(), next);
  }

  template <bool kTwo>
  QUANTA_TILES void multiply_steps(const TileStep& block, std::int64_t begin, std::int64_t end,
                                   MemoryAhead& next) {
    for (std::int64_t step = begin; step < end; ++step) {
      fetch(next);
      next_step<kTwo>(at(block, step));
    }
  }
  TileStep at(TileStep block, std::int64_t step) const {
    constexpr std::int64_t kStepBytes = kTileRows * kTileBytes;
    const std::int64_t codes = offsets_[static_cast<std::size_t>(step)];
    block.first += codes;
    block.second += codes;
    block.left += step * kStepBytes;
    block.right += step * kStepBytes;
    return block;
  }
  void fetch(MemoryAhead& next) {
    next.fetch();
    ahead_->fetch();
  }

  /// Of the block whose sums have been written.
  void make_codes() const {
    const Block& block = pending_;
    const std::int32_t* sums = sums_.data();
    if (block.tiles == 0) return;
    if (block.tiles == 2 && tiles_.follows(block.first, block.second)) {
      tiles_.end(call_, end_sums_, block.first, kBlockRows, sums, block.panel);
      return;
    }
    tiles_.end(call_, end_sums_, block.first, tiles_.height(), sums, block.panel);
    if (block.tiles == 1) return;
    tiles_.end(call_, end_sums_, block.second, tiles_.height(), sums + kTileRows * kBlockColumns,
               block.panel);
  }

  const GemmCodes& call_;
  MemoryAhead nothing_;
  MemoryAhead* ahead_;
  CodesOfSums* end_sums_;
  RowTiles tiles_;
  LastRows last_;
  AlignedVector<std::int64_t> offsets_;
  bool is_shifted_;
  /// Its sums are written amid the first products of the next one, and its codes are made between the
  /// rest: the processor goes on with the products meanwhile.
  Block pending_;
  alignas(64) std::array<std::int32_t, (kBlockRows + kSpareRows) * kBlockColumns> sums_;
  WaitingSums waiting_{.dst = sums_.data()};
};

}  // namespace

void gemm_codes_tiles(const GemmCodes& call, std::int64_t panel_begin, std::int64_t panel_end) {
  TileCodes product(call);
  const std::int64_t tiles = product.tiles().count();
  const TileScope scope(kTileShapesOfRows[static_cast<std::size_t>(product.tiles().height() - 1)]);
  // Rows of several lines share their codes.
  const std::int64_t panels = panel_end - panel_begin;
  const std::int64_t together = rows_together(call, panels, 32768, kBlockRows) / kTileRows;
  const std::int64_t chunk = call.rows.lines > 1 ? tiles : std::min(together, tiles);
  const bool stays = stays_in_cache(call.weight, panels);
  const std::int64_t pair_bytes = 2 * call.weight.panel_bytes();
  for (std::int64_t tile = 0; tile < tiles; tile += chunk) {
    const std::int64_t end = std::min(tile + chunk, tiles);
    for (std::int64_t panel = panel_begin; panel < panel_end; panel += 2) {
      // The first rows bring the weight into the cache, if it stays there.
      const bool is_cold = (tile == 0 || !stays) && panel + 2 < panel_end;
      product.multiply(tile, end, panel, is_cold ? pair_bytes : 0);
    }
  }
  product.finish();
}

#else

void gemm_codes_tiles(const GemmCodes&, std::int64_t, std::int64_t) {}

#endif  // QUANTA_HAS_TILES

}  // namespace quanta::cpu
