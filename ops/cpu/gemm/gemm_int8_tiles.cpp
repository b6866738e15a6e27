// The products of gemm_int8.h on AMX: a tile holds 16 rows of 64 codes, of 16 channels by 64
// weights, or of 16 by 16 sums.

#include "quanta/ops/cpu/gemm/amx_tiles.h"
#include "quanta/ops/cpu/gemm/gemm_int8.h"
#include "quanta/ops/cpu/onednn/onednn.h"

#ifdef QUANTA_HAS_TILES
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <array>

namespace quanta::cpu {

#ifdef QUANTA_HAS_TILES

namespace {

constexpr std::int64_t kColumns = kGemmPanels * kPanelChannels;
constexpr std::int64_t kBlockRows = 2 * kTileRows;

// Sums in tiles 0 to 3 (two blocks of rows by two panels), codes in 4 and 5, weights in 6 and 7.

/// Operands of a block: panels of 1024 bytes for each step of 64 codes.
struct TileBlock {
  const std::uint8_t* src;
  std::int64_t stride;
  const std::int8_t* first;
  const std::int8_t* second;
};

/// Weights of the next panels, asked for bit by bit while these are multiplied: a weight is read
/// once from memory, and waiting for it would take as long as the products.
class NextWeights {
 public:
  /// `bytes` from `begin` on within `steps` steps.
  NextWeights(const std::int8_t* begin, std::int64_t bytes, std::int64_t steps)
      : at_(begin), end_(begin + bytes), lines_((bytes / kLine + steps - 1) / steps) {}
  void step() {
    for (std::int64_t i = 0; i < lines_ && at_ < end_; ++i, at_ += kLine) {
      _mm_prefetch(reinterpret_cast<const char*>(at_), _MM_HINT_T1);
    }
  }

 private:
  static constexpr std::int64_t kLine = 64;
  const std::int8_t* at_;
  const std::int8_t* end_;
  std::int64_t lines_;
};

QUANTA_TILES inline void zero_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

QUANTA_TILES inline void multiply_steps(const TileBlock& block, bool two, std::int64_t begin,
                                        std::int64_t end, NextWeights& next) {
  constexpr std::int64_t kStepBytes = kTileRows * kTileBytes;
  const auto stride = static_cast<std::size_t>(block.stride);
  for (std::int64_t step = begin; step < end; ++step) {
    const std::uint8_t* src = block.src + step * kTileBytes;
    next.step();
    _tile_loadd(6, block.first + step * kStepBytes, kTileBytes);
    _tile_loadd(4, src, stride);
    _tile_dpbusd(0, 4, 6);
    _tile_loadd(7, block.second + step * kStepBytes, kTileBytes);
    _tile_dpbusd(1, 4, 7);
    if (!two) continue;
    _tile_loadd(5, src + kTileRows * block.stride, stride);
    _tile_dpbusd(2, 5, 6);
    _tile_dpbusd(3, 5, 7);
  }
}

QUANTA_TILES inline void store_sums(std::int32_t* sums, bool two) {
  constexpr std::size_t kStride = kColumns * sizeof(std::int32_t);
  _tile_stored(0, sums, kStride);
  _tile_stored(1, sums + kPanelChannels, kStride);
  if (!two) return;
  sums += kTileRows * kColumns;
  _tile_stored(2, sums, kStride);
  _tile_stored(3, sums + kPanelChannels, kStride);
}

/// The floats of a block are made while the tiles work on the next one: the two use different
/// units, and in turns of a few hundred cycles the processor overlaps them.
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

class TileProduct {
 public:
  TileProduct(const GemvInt8& call, const GemmOutput& output)
      : call_(call), pending_(output, call.out_features) {}

  /// Rows [row, row + rows) times the two panels from `panel` on, or the last one before `end`.
  QUANTA_TILES void multiply(std::int64_t row, std::int64_t rows, std::int64_t panel,
                             std::int64_t end) {
    const std::int64_t steps = call_.in_features / kTileBytes;
    const std::int64_t panel_bytes = call_.in_features * kPanelChannels;
    const std::int8_t* first = call_.weight + panel * panel_bytes;
    // Without a second panel the first one is multiplied twice.
    const bool pair = panel + 1 < end;
    const std::int64_t channel = panel * kPanelChannels;
    const std::int64_t columns =
        std::min(pair ? kColumns : kPanelChannels, call_.out_features - channel);
    const std::int64_t next_panels =
        std::clamp<std::int64_t>(end - panel - kGemmPanels, 0, kGemmPanels);
    NextWeights next(first + kGemmPanels * panel_bytes, next_panels * panel_bytes,
                     (rows + kBlockRows - 1) / kBlockRows * steps);
    const std::int64_t row_end = row + rows;
    for (; row < row_end; row += kBlockRows, turn_ ^= 1) {
      const std::int64_t block_rows = std::min(kBlockRows, row_end - row);
      const bool two = block_rows > kTileRows;
      const TileBlock block{call_.src + row * call_.src_stride, call_.src_stride, first,
                            pair ? first + panel_bytes : first};
      zero_sums();
      for (std::int64_t part = 0; part < PendingFloats::kParts; ++part) {
        multiply_steps(block, two, steps * part / PendingFloats::kParts,
                       steps * (part + 1) / PendingFloats::kParts, next);
        pending_.part(part);
      }
      std::int32_t* sums = sums_[turn_].data();
      store_sums(sums, two);
      pending_.set({sums, kColumns, row, block_rows, channel, columns});
    }
  }
  void finish() const { pending_.finish(); }

 private:
  const GemvInt8& call_;
  PendingFloats pending_;
  std::size_t turn_ = 0;
  alignas(64) std::array<std::array<std::int32_t, kBlockRows * kColumns>, 2> sums_;
};

}  // namespace

bool has_tiles() {
  static const bool value = [] {
    const auto isa = static_cast<unsigned>(dnnl_get_effective_cpu_isa());
    constexpr auto kWanted = static_cast<unsigned>(dnnl_cpu_isa_avx512_core_amx);
    if ((isa & kWanted) != kWanted) return false;
    // Linux wants to be asked before a process uses the tiles' registers.
    constexpr long kRequestPermission = 0x1023;
    constexpr long kTileData = 18;
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return value;
}

void gemm_int8_tiles(const GemvInt8& call, const GemmOutput& output, std::int64_t begin,
                     std::int64_t end) {
  const TileScope scope;
  TileProduct product(call, output);
  // Rows that stay in the L2 cache while all panels pass.
  constexpr std::int64_t kMaxBytes = std::int64_t{384} * 1024;
  const std::int64_t fitting = std::max(kMaxBytes / call.src_stride / kBlockRows, std::int64_t{1});
  const std::int64_t blocks = (call.rows + kBlockRows - 1) / kBlockRows;
  const std::int64_t parts = (blocks + fitting - 1) / fitting;
  const std::int64_t part_rows = (blocks + parts - 1) / parts * kBlockRows;
  for (std::int64_t row = 0; row < call.rows; row += part_rows) {
    const std::int64_t rows = std::min(part_rows, call.rows - row);
    for (std::int64_t panel = begin; panel < end; panel += kGemmPanels) {
      product.multiply(row, rows, panel, end);
    }
  }
  product.finish();
}

#else

bool has_tiles() { return false; }
void gemm_int8_tiles(const GemvInt8& call, const GemmOutput& output, std::int64_t begin,
                     std::int64_t end) {
  gemm_int8_simd(call, output, begin, end);
}

#endif  // QUANTA_HAS_TILES

}  // namespace quanta::cpu
