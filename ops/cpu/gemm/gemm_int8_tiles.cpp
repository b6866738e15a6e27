// The products of gemm_int8.h on AMX.

#include "quanta/ops/cpu/gemm/amx_tiles.h"
#include "quanta/ops/cpu/gemm/gemm_int8.h"
#include "quanta/ops/cpu/gemm/memory_ahead.h"
#include "quanta/runtime/detail/ceil_div.h"

#include <algorithm>
#include <array>

namespace quanta::cpu {

#ifdef QUANTA_HAS_TILES

namespace {

/// The floats of a block are made while the tiles work on the next one, once its first step has written
/// the sums: the two use different units, and in turns of a few hundred cycles the processor overlaps
/// them.
class PendingFloats {
 public:
  PendingFloats(const GemmOutput& output, std::int64_t channels)
      : output_(output), channels_(channels) {}
  static constexpr std::int64_t kParts = 4;
  static constexpr std::int64_t kPartRows = kBlockRows / kParts;

  void part(std::int64_t index) const {
    SumBlock part = block_;
    const std::int64_t skipped = index * kPartRows;
    if (skipped >= block_.rows) return;
    part.sums += skipped * block_.stride;
    part.row += skipped;
    part.rows = std::min(kPartRows, block_.rows - skipped);
    floats_of_block(part, output_, channels_);
  }
  void finish() const {
    for (std::int64_t index = 0; index < kParts; ++index) part(index);
  }
  void set(const SumBlock& block) { block_ = block; }

 private:
  const GemmOutput& output_;
  std::int64_t channels_;
  SumBlock block_{};
};

/// What is asked for while a block is multiplied: the weight of the next panels, and where the
/// floats of this block go.
struct BlockAhead {
  MemoryAhead& weight;
  RowsAhead floats;

  void operator()() {
    weight.fetch();
    floats.fetch();
  }
};

class TileProduct {
 public:
  TileProduct(const PanelProduct& call, const GemmOutput& output)
      : call_(call),
        dst_(output.dst),
        channels_(call.weight->out_features),
        is_far_(output.end != GemmEnd::Gelu &&
                call.rows * channels_ > kNearBytes / static_cast<std::int64_t>(sizeof(float))),
        pending_(output, channels_) {}

  /// Rows [row, row + rows) times the two panels from `panel` on, or the last one before `end`.
  QUANTA_TILES void multiply(std::int64_t row, std::int64_t rows, std::int64_t panel,
                             std::int64_t end) {
    const CodePanels& weight = *call_.weight;
    const std::int64_t steps = weight.depth / kTileBytes;
    const std::int64_t panel_bytes = weight.panel_bytes();
    const std::int8_t* first = weight.panel(panel);
    // Without a second panel the first one is multiplied twice.
    const bool pair = panel + 1 < end;
    const std::int64_t channel = panel * kPanelChannels;
    const std::int64_t columns =
        std::min(pair ? kBlockColumns : kPanelChannels, channels_ - channel);
    const std::int64_t next_panels =
        std::clamp<std::int64_t>(end - panel - kGemmPanels, 0, kGemmPanels);
    MemoryAhead next({reinterpret_cast<const std::byte*>(first + kGemmPanels * panel_bytes),
                      static_cast<std::size_t>(next_panels * panel_bytes)},
                     ceil_div(rows, kBlockRows) * steps);
    const std::int64_t row_end = row + rows;
    for (; row < row_end; row += kBlockRows) {
      const std::int64_t block_rows = std::min(kBlockRows, row_end - row);
      const bool two = block_rows > kTileRows;
      const TileBlock block{call_.src + row * call_.src_stride, call_.src_stride, first,
                            pair ? first + panel_bytes : first};
      if (is_far_ && two) {
        constexpr auto kFloat = static_cast<std::int64_t>(sizeof(float));
        BlockAhead ahead{next, RowsAhead(dst_ + row * channels_ + channel, columns * kFloat,
                                         channels_ * kFloat, block_rows, steps)};
        multiply_block<true>(block, steps, ahead);
      } else if (two) {
        multiply_block<true>(block, steps, next);
      } else {
        multiply_block<false>(block, steps, next);
      }
      pending_.set({sums_.data(), kBlockColumns, row, block_rows, channel, columns});
    }
  }
  QUANTA_TILES void finish() const {
    store_sums(waiting_);
    pending_.finish();
  }

 private:
  template <bool kTwo, class Ahead>
  QUANTA_TILES void multiply_block(const TileBlock& block, std::int64_t steps, Ahead& ahead) {
    ahead();
    first_step<kTwo>(block.at<kTwo>(0), StartFromZero(), waiting_);
    waiting_.two = kTwo;
    std::int64_t step = 1;
    for (std::int64_t part = 0; part < PendingFloats::kParts; ++part) {
      for (; step < steps * (part + 1) / PendingFloats::kParts; ++step) {
        ahead();
        next_step<kTwo>(block.at<kTwo>(step));
      }
      pending_.part(part);
    }
  }

  /// Results that stay in the L2 cache need not be asked for, nor those of a function that takes as
  /// long as its stores.
  static constexpr std::int64_t kNearBytes = std::int64_t{2} << 20;

  const PanelProduct& call_;
  float* dst_;
  std::int64_t channels_;
  bool is_far_;
  PendingFloats pending_;
  alignas(64) std::array<std::int32_t, kBlockRows * kBlockColumns> sums_;
  WaitingSums waiting_{.dst = sums_.data()};
};

}  // namespace

void gemm_int8_tiles(const PanelProduct& call, const GemmOutput& output, std::int64_t begin,
                     std::int64_t end) {
  const TileScope scope;
  TileProduct product(call, output);
  // Rows that stay in the L2 cache while all panels pass.
  constexpr std::int64_t kMaxBytes = std::int64_t{384} * 1024;
  const std::int64_t fitting = std::max(kMaxBytes / call.src_stride / kBlockRows, std::int64_t{1});
  const std::int64_t blocks = ceil_div(call.rows, kBlockRows);
  const std::int64_t parts = ceil_div(blocks, fitting);
  const std::int64_t part_rows = ceil_div(blocks, parts) * kBlockRows;
  for (std::int64_t row = 0; row < call.rows; row += part_rows) {
    const std::int64_t rows = std::min(part_rows, call.rows - row);
    for (std::int64_t panel = begin; panel < end; panel += kGemmPanels) {
      product.multiply(row, rows, panel, end);
    }
  }
  product.finish();
}

#else

void gemm_int8_tiles(const PanelProduct& call, const GemmOutput& output, std::int64_t begin,
                     std::int64_t end) {
  gemm_int8_simd(call, output, begin, end);
}

#endif  // QUANTA_HAS_TILES

}  // namespace quanta::cpu
