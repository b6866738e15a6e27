#include "quanta/ops/linear/cpu_weight_only_kernels.h"
// Before any header of Highway.
#include "quanta/ops/cpu/simd/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/linear/cpu_weight_only_kernels.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>
#include <utility>

#include "quanta/ops/cpu/simd/simd.h"
#include "quanta/runtime/detail/ceil_div.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

#if QUANTA_VECTORS

using FloatVec = hn::Vec<FloatTag>;

// A source gives the weights of kWeightOnlyStep values of k, vector `v` of the block's channels.

struct Int8Source {
  static constexpr bool kFromMemory = true;
  static constexpr std::int64_t kBytes = kWeightOnlyStep * kWeightOnlyBlock;
  template <int kStep>
  static HWY_INLINE FloatVec get(const std::uint8_t* step, std::int64_t v) {
    const auto* codes = reinterpret_cast<const std::int8_t*>(step);
    return hn::ConvertTo(FloatTag(), load_codes(codes + kStep * kWeightOnlyBlock + v * kLanes));
  }
};

struct Int4Source {
  static constexpr bool kFromMemory = true;
  static constexpr std::int64_t kBytes = kWeightOnlyStep * kWeightOnlyBlock / 2;
  template <int kStep>
  static HWY_INLINE FloatVec get(const std::uint8_t* step, std::int64_t v) {
    const IntTag di;
    const auto words = hn::LoadU(di, reinterpret_cast<const std::int32_t*>(step) + v * kLanes);
#if QUANTA_AVX512
    // The permutation looks at the lowest four bits only, and its table holds the floats.
    alignas(64) static constexpr float kValues[16] = {0,  1,  2,  3,  4,  5,  6,  7,
                                                      -8, -7, -6, -5, -4, -3, -2, -1};
    const __m512 table = _mm512_load_ps(kValues);
    return FloatVec{_mm512_permutexvar_ps(_mm512_srli_epi32(words.raw, 4 * kStep), table)};
#else
    return hn::ConvertTo(FloatTag(), hn::ShiftRight<28>(hn::ShiftLeft<28 - 4 * kStep>(words)));
#endif
  }
};

struct FloatSource {
  static constexpr bool kFromMemory = false;
  static constexpr std::int64_t kBytes = kWeightOnlyStep * kWeightOnlyBlock * 4;
  template <int kStep>
  static HWY_INLINE FloatVec get(const std::uint8_t* step, std::int64_t v) {
    return hn::LoadU(FloatTag(),
                     reinterpret_cast<const float*>(step) + kStep * kWeightOnlyBlock + v * kLanes);
  }
};

using Steps = std::make_integer_sequence<int, static_cast<int>(kWeightOnlyStep)>;
constexpr int kBlockVectors = static_cast<int>(kWeightOnlyBlock / kLanes);

// The registers hold so many sums beside the weights of one k.
constexpr std::int64_t kMostRows = kBlocks.weight_only_rows;
constexpr int vectors_for(int rows) {
  return kVectorBytes == 64 || rows <= 2 ? kBlockVectors : kBlockVectors / 2;
}
// Few rows have too few sums to hide the latency of an addition: these take turns.
constexpr int phases_for(int rows) { return rows <= 2 ? 2 : 1; }

// The processor's own prefetcher stops at each page; with this a weight in the last cache is read
// a tenth faster.
constexpr std::int64_t kPrefetchBytes = 512;

HWY_INLINE void prefetch(const std::uint8_t* from, std::int64_t bytes) {
  constexpr std::int64_t kLine = 64;
#pragma GCC unroll 4
  for (std::int64_t line = 0; line < bytes; line += kLine) hwy::Prefetch(from + line);
}

/// The sums of kRows rows and kVectors vectors of channels.
template <int kRows, int kVectors, int kPhases>
struct Accumulators {
  FloatVec sums[kPhases][kRows][kVectors];

  HWY_INLINE void clear() {
#pragma GCC unroll 2
    for (int p = 0; p < kPhases; ++p) {
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) sums[p][r][v] = hn::Zero(FloatTag());
      }
    }
  }

  template <class Source, int kStep>
  HWY_INLINE void add_step(const std::uint8_t* codes, std::int64_t first_vector, const float* x) {
    FloatVec weights[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      weights[v] = Source::template get<kStep>(codes, first_vector + v);
    }
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      const FloatVec value = hn::Set(FloatTag(), x[kStep * kRows + r]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        FloatVec& sum = sums[kStep % kPhases][r][v];
        sum = hn::MulAdd(value, weights[v], sum);
      }
    }
  }

  template <class Source, int... kStep>
  HWY_INLINE void add_steps(const std::uint8_t* codes, std::int64_t first_vector, const float* x,
                            std::integer_sequence<int, kStep...> /*steps*/) {
    (add_step<Source, kStep>(codes, first_vector, x), ...);
  }

  HWY_INLINE FloatVec total(int r, int v) const {
    if constexpr (kPhases == 1) return sums[0][r][v];
    return hn::Add(sums[0][r][v], sums[kPhases - 1][r][v]);
  }
};

template <class Source, int kRows>
HWY_NOINLINE void block_sums(const WeightOnlyBlock& block, const WeightOnlyRows& rows, Sums mode,
                             float* sums) {
  constexpr int kVectors = vectors_for(kRows);
  const FloatTag d;
  for (std::int64_t first = 0; first < kBlockVectors; first += kVectors) {
    const std::uint8_t* codes = block.codes;
    const float* x = rows.x;
    for (std::int64_t begin = 0; begin < block.depth; begin += block.group) {
      Accumulators<kRows, kVectors, phases_for(kRows)> acc;
      acc.clear();
      const std::int64_t end = std::min(begin + block.group, block.depth);
      for (std::int64_t k = begin; k < end; k += kWeightOnlyStep) {
        if constexpr (Source::kFromMemory) prefetch(codes + kPrefetchBytes, Source::kBytes);
        acc.template add_steps<Source>(codes, first, x, Steps());
        codes += Source::kBytes;
        x += kWeightOnlyStep * kRows;
      }
      const std::int64_t group = begin / block.group;
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const std::int64_t channel = (first + v) * kLanes;
        const std::int64_t at = group * kWeightOnlyBlock + channel;
        const auto scale =
            block.scales == nullptr ? hn::Set(d, 1.0F) : hn::LoadU(d, block.scales + at);
        const auto zero_point = block.zero_points == nullptr
                                    ? hn::Zero(d)
                                    : hn::ConvertTo(d, load_codes(block.zero_points + at));
#pragma GCC unroll 12
        for (int r = 0; r < kRows; ++r) {
          auto sum = acc.total(r, v);
          if (block.zero_points != nullptr) {
            sum = hn::NegMulAdd(hn::Set(d, rows.x_sums[group * kRows + r]), zero_point, sum);
          }
          float* result = sums + r * kWeightOnlyBlock + channel;
          const auto before = group == 0 && mode == Sums::Set ? hn::Zero(d) : hn::LoadU(d, result);
          hn::StoreU(hn::MulAdd(scale, sum, before), d, result);
        }
      }
    }
  }
}

template <class Source>
void source_sums(const WeightOnlyBlock& block, const WeightOnlyRows& rows, Sums mode, float* sums) {
  switch (rows.rows) {
    case 1:
      return block_sums<Source, 1>(block, rows, mode, sums);
    case 2:
      return block_sums<Source, 2>(block, rows, mode, sums);
    case 4:
      return block_sums<Source, 4>(block, rows, mode, sums);
#if QUANTA_AVX512
    case 8:
      return block_sums<Source, 8>(block, rows, mode, sums);
#endif
    default:
      return block_sums<Source, static_cast<int>(kMostRows)>(block, rows, mode, sums);
  }
}

template <class Source, int... kStep>
HWY_INLINE void write_panel(const std::uint8_t* codes, std::int64_t v, FloatVec scale,
                            FloatVec zero_point, float* panel,
                            std::integer_sequence<int, kStep...> /*steps*/) {
  (hn::StoreU(hn::Mul(hn::Sub(Source::template get<kStep>(codes, v), zero_point), scale),
              FloatTag(), panel + kStep * kWeightOnlyBlock + v * kLanes),
   ...);
}

template <class Source>
void source_panel(const WeightOnlyBlock& block, std::int64_t begin, std::int64_t end,
                  float* panel) {
  const FloatTag d;
  for (std::int64_t k = begin; k < end; k += kWeightOnlyStep) {
    const std::uint8_t* codes = block.codes + k / kWeightOnlyStep * Source::kBytes;
    const std::int64_t group = k / block.group;
    for (std::int64_t v = 0; v < kBlockVectors; ++v) {
      const std::int64_t at = group * kWeightOnlyBlock + v * kLanes;
      const auto zero_point = block.zero_points == nullptr
                                  ? hn::Zero(d)
                                  : hn::ConvertTo(d, load_codes(block.zero_points + at));
      write_panel<Source>(codes, v, hn::LoadU(d, block.scales + at), zero_point,
                          panel + (k - begin) * kWeightOnlyBlock, Steps());
    }
  }
}

std::int64_t tile_rows(std::int64_t left) {
  // Tiles of about the same height: two of eight rows take less time than one of twelve and one of
  // four.
  const std::int64_t tiles = ceil_div(left, kMostRows);
  const std::int64_t share = ceil_div(left, tiles);
  for (const std::int64_t rows : {1, 2, 4, 8}) {
    if (share <= rows && rows < kMostRows) return rows;
  }
  return kMostRows;
}

void sums_of_codes(const WeightOnlyBlock& block, const WeightOnlyRows& rows, float* sums) {
  block.bits == 4 ? source_sums<Int4Source>(block, rows, Sums::Set, sums)
                  : source_sums<Int8Source>(block, rows, Sums::Set, sums);
}

void panel_of_codes(const WeightOnlyBlock& block, std::int64_t begin, std::int64_t end,
                    float* panel) {
  block.bits == 4 ? source_panel<Int4Source>(block, begin, end, panel)
                  : source_panel<Int8Source>(block, begin, end, panel);
}

void sums_of_panel(const float* panel, std::int64_t depth, const WeightOnlyRows& rows, Sums mode,
                   float* sums) {
  const WeightOnlyBlock block{
      32, reinterpret_cast<const std::uint8_t*>(panel), nullptr, nullptr, depth, depth};
  source_sums<FloatSource>(block, rows, mode, sums);
}

#else  // !QUANTA_VECTORS

std::int64_t tile_rows(std::int64_t left) { return std::min<std::int64_t>(left, 4); }

void panel_of_codes(const WeightOnlyBlock& block, std::int64_t begin, std::int64_t end,
                    float* panel) {
  for (std::int64_t i = 0; i < (end - begin) * kWeightOnlyBlock; ++i) {
    const std::int64_t k = begin + i / kWeightOnlyBlock;
    const std::int64_t c = i % kWeightOnlyBlock;
    const std::int64_t at = k / block.group * kWeightOnlyBlock + c;
    const std::int32_t zero_point = block.zero_points == nullptr ? 0 : block.zero_points[at];
    panel[i] = math::dequantize(weight_only_code(block, k, c), block.scales[at], zero_point);
  }
}

void sums_of_panel(const float* panel, std::int64_t depth, const WeightOnlyRows& rows, Sums mode,
                   float* sums) {
  if (mode == Sums::Set) std::fill_n(sums, rows.rows * kWeightOnlyBlock, 0.0F);
  for (std::int64_t k = 0; k < depth; ++k) {
    for (std::int64_t r = 0; r < rows.rows; ++r) {
      for (std::int64_t c = 0; c < kWeightOnlyBlock; ++c) {
        sums[r * kWeightOnlyBlock + c] +=
            rows.x[k * rows.rows + r] * panel[k * kWeightOnlyBlock + c];
      }
    }
  }
}

void sums_of_codes(const WeightOnlyBlock& block, const WeightOnlyRows& rows, float* sums) {
  std::fill_n(sums, rows.rows * kWeightOnlyBlock, 0.0F);
  for (std::int64_t begin = 0; begin < block.depth; begin += block.group) {
    const std::int64_t end = std::min(begin + block.group, block.depth);
    const std::int64_t group = begin / block.group;
    for (std::int64_t i = 0; i < rows.rows * kWeightOnlyBlock; ++i) {
      const std::int64_t r = i / kWeightOnlyBlock;
      const std::int64_t c = i % kWeightOnlyBlock;
      const std::int64_t at = group * kWeightOnlyBlock + c;
      float sum = 0.0F;
      for (std::int64_t k = begin; k < end; ++k) {
        sum += rows.x[k * rows.rows + r] * static_cast<float>(weight_only_code(block, k, c));
      }
      if (block.zero_points != nullptr) {
        sum -= rows.x_sums[group * rows.rows + r] * static_cast<float>(block.zero_points[at]);
      }
      sums[i] += block.scales[at] * sum;
    }
  }
}

#endif

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::cpu {

HWY_EXPORT(tile_rows);
HWY_EXPORT(sums_of_codes);
HWY_EXPORT(panel_of_codes);
HWY_EXPORT(sums_of_panel);

std::int64_t weight_only_tile_rows(std::int64_t left) {
  return HWY_DYNAMIC_DISPATCH(tile_rows)(left);
}
void weight_only_sums(const WeightOnlyBlock& block, const WeightOnlyRows& rows, float* sums) {
  HWY_DYNAMIC_DISPATCH(sums_of_codes)(block, rows, sums);
}
void weight_only_panel(const WeightOnlyBlock& block, std::int64_t begin, std::int64_t end,
                       float* panel) {
  HWY_DYNAMIC_DISPATCH(panel_of_codes)(block, begin, end, panel);
}
void panel_sums(const float* panel, std::int64_t depth, const WeightOnlyRows& rows, Sums mode,
                float* sums) {
  HWY_DYNAMIC_DISPATCH(sums_of_panel)(panel, depth, rows, mode, sums);
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
