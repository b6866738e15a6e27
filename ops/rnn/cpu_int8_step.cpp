// Before any header of Highway.
#include "quanta/ops/cpu/simd/highway.h"
#include "quanta/ops/rnn/cpu_int8.h"
#include "quanta/ops/rnn/cpu_int8_tiles.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/rnn/cpu_int8_step.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "quanta/ops/cpu/gemm/int8_kernel.h"
#include "quanta/ops/cpu/simd/int8_dot_simd.h"
#include "quanta/ops/rnn/cpu_gate_simd.h"
#include "quanta/runtime/detail/ceil_div.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

/// Rows that pass a block of the weight together.
inline constexpr int kMaxRows = kBlocks.gate_rows;

using GateInts = hn::RebindToSigned<GateTag>;

/// Sums of the products of a group of rows with a block.
template <int kGates>
using RowSums = std::int32_t[kGates][kUnitBlock];
template <int kGates>
using BlockSums = RowSums<kGates>[kMaxRows];

/// What all rows of a step have in common in a block of units.
template <int kGates>
struct BlockTerms {
  std::int64_t panel;                           ///< of the first gate
  std::size_t first;                            ///< of the block's terms in GatePanels
  alignas(64) RowSums<kGates> offset;           ///< what the sums start from, -zx * sums
  alignas(64) float scale[kGates][kUnitBlock];  ///< sx * scales
};

#if QUANTA_VECTORS

inline constexpr auto kBytes = static_cast<std::int64_t>(hn::MaxLanes(Codes()));
inline constexpr int kSumLanes = static_cast<int>(hn::MaxLanes(Sums()));
/// Vectors of a gate's 16 units.
inline constexpr int kVectors = static_cast<int>(kUnitBlock) / kSumLanes;

/// kCount of the vectors of a block from `first` on, times kRows rows; each sum is kept in kParts
/// that are independent of each other, since a product takes longer than the next can wait.
template <class Product, int kGates, int kRows, int kCount, int kParts>
HWY_INLINE void multiply_vectors(const CodePanels& weight, const BlockTerms<kGates>& block,
                                 const std::uint8_t* codes, std::int64_t stride, int first,
                                 BlockSums<kGates>& sums) {
  constexpr std::int64_t kGroupBytes = kGates * kPanelGroup;
  const std::int64_t groups = weight.groups();
  const std::int8_t* panels = weight.panel(block.panel) + first * kBytes;
  hn::Vec<Sums> acc[kParts][kRows][kCount];
#pragma GCC unroll 2
  for (int part = 0; part < kParts; ++part) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kCount; ++v) {
        acc[part][r][v] = part > 0
                              ? hn::Zero(Sums())
                              : hn::Load(Sums(), &block.offset[0][0] + (first + v) * kSumLanes);
      }
    }
  }
  const auto add_group = [&](std::int64_t group, auto& part) QUANTA_INLINED {
    const std::int8_t* at = panels + group * kGroupBytes;
    hn::Vec<Weights> w[kCount];
#pragma GCC unroll 8
    for (int v = 0; v < kCount; ++v) {
      w[v] = hn::LoadU(Weights(), at + v * kBytes);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      std::int32_t four;
      std::memcpy(&four, codes + r * stride + group * kPanelDepth, sizeof(four));
      const auto x = Product::prepare(hn::BitCast(Codes(), hn::Set(Sums(), four)));
#pragma GCC unroll 8
      for (int v = 0; v < kCount; ++v) part[r][v] = Product::add(part[r][v], x, w[v]);
    }
  };
  std::int64_t group = 0;
  for (; group + kParts <= groups; group += kParts) {
#pragma GCC unroll 2
    for (int part = 0; part < kParts; ++part) add_group(group + part, acc[part]);
  }
  for (; group < groups; ++group) add_group(group, acc[0]);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    auto* dst = &sums[r][0][0] + first * kSumLanes;
#pragma GCC unroll 8
    for (int v = 0; v < kCount; ++v) {
      auto sum = acc[0][r][v];
#pragma GCC unroll 2
      for (int part = 1; part < kParts; ++part) sum = hn::Add(sum, acc[part][r][v]);
      hn::StoreU(sum, Sums(), dst + v * kSumLanes);
    }
  }
}

/// How many of a block's vectors the registers hold at a time.
constexpr int vectors_at_once(int vectors, int rows) {
  int count = vectors;
  while (count > 1 && (count * rows > kBlocks.gate_sums || vectors % count != 0)) --count;
  return count;
}

template <class Product, int kGates, int kRows>
HWY_INLINE void multiply_rows(const GateStep& step, const BlockTerms<kGates>& block,
                              std::int64_t row, BlockSums<kGates>& sums) {
  constexpr int kAll = kGates * kVectors;
  constexpr int kCount = vectors_at_once(kAll, kRows);
  constexpr int kParts = kRows == 1 && kCount <= 4 ? 2 : 1;
  const std::uint8_t* codes = step.codes + row * step.stride;
  for (int first = 0; first < kAll; first += kCount) {
    multiply_vectors<Product, kGates, kRows, kCount, kParts>(step.weight->codes, block, codes,
                                                             step.stride, first, sums);
  }
}

#else  // !QUANTA_VECTORS

struct Plain {};

template <class Product, int kGates, int kRows>
void multiply_rows(const GateStep& step, const BlockTerms<kGates>& block, std::int64_t row,
                   BlockSums<kGates>& sums) {
  std::memcpy(sums[0], block.offset, sizeof(sums[0]));
  for (int gate = 0; gate < kGates; ++gate) {
    add_panel_products(step.codes + row * step.stride, step.weight->codes, block.panel + gate,
                       sums[0][gate]);
  }
}

#endif  // QUANTA_VECTORS

template <int kGates>
HWY_INLINE void block_terms(const GateStep& step, std::int64_t block, BlockTerms<kGates>& terms) {
  const GatePanels& weight = *step.weight;
  terms.panel = block * kGates;
  terms.first = static_cast<std::size_t>(block * kGates * kUnitBlock);
  const auto zero_point = hn::Set(GateInts(), -step.zero_point);
  const auto scale = hn::Set(GateTag(), step.scale);
  for (std::int64_t i = 0; i < kGates * kUnitBlock; i += kGateLanes) {
    const std::size_t at = terms.first + static_cast<std::size_t>(i);
    hn::Store(hn::Mul(zero_point, hn::LoadU(GateInts(), &weight.sums[at])), GateInts(),
              &terms.offset[0][0] + i);
    hn::Store(hn::Mul(scale, hn::LoadU(GateTag(), &weight.scales[at])), GateTag(),
              &terms.scale[0][0] + i);
  }
}

/// A vector of units of one row, or of two rows: where they are, and what their gates are made of:
/// input gates, and hidden gates as sums_to_floats makes them.
template <class V, class Lanes, int kGates>
class Units {
 public:
  Units(const GateStep& step, const BlockTerms<kGates>& block, const RowSums<kGates>* sums,
        const Lanes& lanes, std::int64_t row, std::int64_t unit, std::int64_t i)
      : step_(step),
        weight_(*step.weight),
        block_(block),
        sums_(sums),
        lanes_(lanes),
        row_(row),
        unit_(unit + i),
        i_(i) {}

  HWY_INLINE V input(int gate) const {
    return of_rows([&](std::int64_t r) QUANTA_INLINED {
      return lanes_.load(step_.input_gates + ((row_ + r) * kGates + gate) * weight_.hidden + unit_);
    });
  }
  HWY_INLINE V hidden(int gate) const {
    return of_rows([&](std::int64_t r) QUANTA_INLINED { return hidden_of_row(gate, r); });
  }
  HWY_INLINE V gate(int gate) const { return add(input(gate), hidden(gate)); }

  HWY_INLINE V cell() const {
    return of_rows([&](std::int64_t r) QUANTA_INLINED { return lanes_.load(at(step_.cell, r)); });
  }
  HWY_INLINE V before() const {
    return of_rows([&](std::int64_t r)
                       QUANTA_INLINED { return lanes_.load(step_.before[row_ + r] + unit_); });
  }
  HWY_INLINE void set_cell(V x) const {
    for_rows(x, [&](GateVector c, std::int64_t r)
                    QUANTA_INLINED { lanes_.store(c, at(step_.cell, r)); });
  }
  HWY_INLINE void set_state(V x) const {
    for_rows(x, [&](GateVector h, std::int64_t r) QUANTA_INLINED {
      lanes_.store(h, at(step_.h, r));
      widen(h, step_.ranges[row_ + r]);
    });
  }

 private:
  template <class Load>
  HWY_INLINE V of_rows(const Load& load) const {
    if constexpr (kIsPair<V>) {
      return {load(0), load(1)};
    } else {
      return load(0);
    }
  }
  template <class Store>
  HWY_INLINE void for_rows(V x, const Store& store) const {
    if constexpr (kIsPair<V>) {
      store(x.a, 0);
      store(x.b, 1);
    } else {
      store(x, 0);
    }
  }
  HWY_INLINE float* at(float* rows, std::int64_t r) const {
    return rows + (row_ + r) * weight_.hidden + unit_;
  }
  HWY_INLINE GateVector hidden_of_row(int gate, std::int64_t r) const {
    const std::size_t term = block_.first + static_cast<std::size_t>(gate * kUnitBlock + i_);
    auto sum = hn::Load(GateInts(), &sums_[r][gate][i_]);
    if (!weight_.zero_points.empty()) {
      const auto code_sum = hn::Set(GateInts(), step_.code_sums[row_ + r]);
      sum = hn::Sub(sum, hn::Mul(code_sum, hn::LoadU(GateInts(), &weight_.zero_points[term])));
    }
    const auto scale = hn::Load(GateTag(), &block_.scale[gate][i_]);
    return hn::Add(hn::Mul(hn::ConvertTo(GateTag(), sum), scale),
                   hn::LoadU(GateTag(), &weight_.bias[term]));
  }
  HWY_INLINE void widen(GateVector h, RangeLanes& range) const {
    const GateTag d;
    lanes_.store(hn::Min(hn::Load(d, range.min + i_), h), range.min + i_);
    lanes_.store(hn::Max(hn::Load(d, range.max + i_), h), range.max + i_);
    // Minimum and maximum lose a NaN; its product with 0, and that of an infinity, stays.
    const auto zero = hn::Mul(h, hn::Zero(d));
    lanes_.store(hn::Add(hn::Load(d, range.finite + i_), zero), range.finite + i_);
  }

  const GateStep& step_;
  const GatePanels& weight_;
  const BlockTerms<kGates>& block_;
  const RowSums<kGates>* sums_;
  const Lanes& lanes_;
  std::int64_t row_, unit_, i_;
};

/// The gates of a vector of units, as in rnn_kernels.cpp.
template <RecurrentKind kKind, class V, class Lanes, int kGates>
HWY_INLINE void gates(const Units<V, Lanes, kGates>& units) {
  if constexpr (kKind == RecurrentKind::Lstm) {
    const auto input = sigmoid(units.gate(0));
    const auto forget = sigmoid(units.gate(1));
    const auto candidate = tanh(units.gate(2));
    const auto output = sigmoid(units.gate(3));
    const V cell = lstm_cell(input, forget, candidate, units.cell());
    units.set_cell(cell);
    units.set_state(product(output, tanh(cell)));
  } else {
    const V reset = sigmoid(units.gate(0)).value();
    const V update = sigmoid(units.gate(1)).value();
    const V candidate = gru_candidate(units.input(2), units.hidden(2), reset);
    units.set_state(gru_state(units.before(), candidate, update));
  }
}

/// The units of one row (V is a vector) or two (a pair) in a block.
template <RecurrentKind kKind, class V, int kGates>
HWY_INLINE void row_gates(const GateStep& step, const BlockTerms<kGates>& block, std::int64_t unit,
                          std::int64_t row, const RowSums<kGates>* sums) {
  for_vectors(0, std::min(kUnitBlock, step.weight->hidden - unit),
              [&](const auto& lanes, std::int64_t i) QUANTA_ATTR {
                using Lanes = std::remove_cvref_t<decltype(lanes)>;
                gates<kKind>(Units<V, Lanes, kGates>(step, block, sums, lanes, row, unit, i));
              });
}

/// kRows rows at a time from `row` on, then those that are left in smaller groups.
template <class Product, RecurrentKind kKind, int kGates, int kRows>
HWY_INLINE void block_rows(const GateStep& step, const BlockTerms<kGates>& block, std::int64_t unit,
                           std::int64_t row) {
  for (; row + kRows <= step.rows; row += kRows) {
    alignas(64) BlockSums<kGates> sums;
    multiply_rows<Product, kGates, kRows>(step, block, row, sums);
    if constexpr (kRows == 1) {
      row_gates<kKind, GateVector>(step, block, unit, row, sums);
    } else {
      for (int r = 0; r < kRows; r += 2) {
        row_gates<kKind, GatePair>(step, block, unit, row + r, sums + r);
      }
    }
  }
  if constexpr (kRows > 1) block_rows<Product, kKind, kGates, kRows / 2>(step, block, unit, row);
}

template <class Product, RecurrentKind kKind, int kGates>
void blocks(const GateStep& step, std::int64_t begin, std::int64_t end) {
  BlockTerms<kGates> terms;
  for (std::int64_t block = begin; block < end; ++block) {
    block_terms(step, block, terms);
    block_rows<Product, kKind, kGates, kMaxRows>(step, terms, block * kUnitBlock, 0);
  }
}

#if QUANTA_AVX512_VBMI && defined(QUANTA_HAS_TILES)

/// The gates of sequences [begin, end), whose sums begin with those of sequence 0.
template <RecurrentKind kKind, int kGates>
HWY_INLINE void gates_of_rows(const GateStep& step, const BlockTerms<kGates>& block,
                              std::int64_t unit, std::int64_t begin, std::int64_t end,
                              const RowSums<kGates>* sums) {
  std::int64_t row = begin;
  for (; row + 2 <= end; row += 2) {
    row_gates<kKind, GatePair>(step, block, unit, row, sums + row);
  }
  if (row < end) row_gates<kKind, GateVector>(step, block, unit, row, sums + row);
}

/// The gates of a block are computed while the tiles multiply the next one: the two use different
/// units of the processor, which overlaps them in turns of a few hundred cycles.
template <RecurrentKind kKind, int kGates>
QUANTA_VECTORS_AND_TILES void tile_blocks(const GateStep& step, std::int64_t begin,
                                          std::int64_t end) {
  if (begin == end) return;
  const GateTiles tiles(step.rows);
  const CodePanels& weight = step.weight->codes;
  const std::int64_t chunks = weight.depth / kTileBytes;
  constexpr std::int64_t kChunkBytes = kTileRows * kTileBytes * kGates;
  constexpr std::int64_t kParts = 4;
  const std::int64_t part_rows = ceil_div(step.rows, 2 * kParts) * 2;
  BlockTerms<kGates> terms[2];
  alignas(64) RowSums<kGates> sums[kMaxStepRows];
  std::int32_t* dst = &sums[0][0][0];
  const auto gates_of_part = [&](std::int64_t block, std::int64_t part) QUANTA_ATTR {
    gates_of_rows<kKind>(step, terms[block & 1], block * kUnitBlock,
                         std::min(part * part_rows, step.rows),
                         std::min((part + 1) * part_rows, step.rows), sums);
  };
  for (std::int64_t block = begin; block < end; ++block) {
    BlockTerms<kGates>& own = terms[block & 1];
    block_terms(step, block, own);
    const std::int8_t* panel = weight.panel(own.panel);
    GateTiles::first<kGates>(step.codes, step.stride, panel, &own.offset[0][0], dst);
    std::int64_t chunk = 1;
    for (std::int64_t part = 0; part < kParts; ++part) {
      for (; chunk < chunks * (part + 1) / kParts; ++chunk) {
        GateTiles::add<kGates>(step.codes + chunk * kTileBytes, step.stride,
                               panel + chunk * kChunkBytes);
      }
      if (block > begin) gates_of_part(block - 1, part);
    }
  }
  GateTiles::store<kGates>(dst);
  for (std::int64_t part = 0; part < kParts; ++part) gates_of_part(end - 1, part);
}

#endif  // tiles

template <class Product>
void step_of_kind(const GateStep& step, std::int64_t begin, std::int64_t end) {
  if (step.kind == RecurrentKind::Lstm) {
    return blocks<Product, RecurrentKind::Lstm, 4>(step, begin, end);
  }
  blocks<Product, RecurrentKind::Gru, 3>(step, begin, end);
}

void GateStepBlocks(const GateStep& step, std::int64_t begin, std::int64_t end) {
#if QUANTA_AVX512_VBMI && defined(QUANTA_HAS_TILES)
  if (gate_step_uses_tiles(step.weight->codes.tiles, step.rows)) {
    if (step.kind == RecurrentKind::Lstm) {
      return tile_blocks<RecurrentKind::Lstm, 4>(step, begin, end);
    }
    return tile_blocks<RecurrentKind::Gru, 3>(step, begin, end);
  }
#endif
#if QUANTA_VECTORS
  with_product(step.code_bits,
               [&](auto product) { step_of_kind<decltype(product)>(step, begin, end); });
#else
  step_of_kind<Plain>(step, begin, end);
#endif
}

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::cpu {

HWY_EXPORT(GateStepBlocks);

void gate_step(const GateStep& step, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(GateStepBlocks)(step, begin, end);
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
