#include "quanta/ops/cuda/weight_product.h"

#include <bit>
#include <cmath>

#include "quanta/runtime/cuda/simt.h"
#include "quanta/runtime/half.h"

namespace quanta::cuda {
namespace {

constexpr int kBlock = WeightProductParams::kBlock;
constexpr int kUnit = 16;  // weights that are decoded at once: no segment is shorter

struct alignas(16) Words {
  std::uint32_t at[4];
};
struct alignas(16) Floats {
  float at[4];
};

// A number of at most 23 bits in the low bits of this float is that number more.
constexpr std::uint32_t kMagicBits = 0x4B000000U;
constexpr float kMagic = 8388608.0F;

// How kUnit weights come from the words of a column.
template <WeightForm kForm>
struct Decoder;

template <>
struct Decoder<WeightForm::Half> {
  static constexpr int kNeighbours = 8;  // of 16 bytes
  template <int kAt>
  static SIMT_DEVICE float get(const Words* words, float) {
    const std::uint32_t word = words[kAt / 8].at[kAt % 8 / 2];
    return simt::half_to_float(static_cast<std::uint16_t>(word >> (kAt % 2 * 16)));
  }
};

template <>
struct Decoder<WeightForm::Int8> {
  static constexpr int kNeighbours = 16;
  static constexpr float kOffset = kMagic + 128.0F;
  template <int kAt>
  static SIMT_DEVICE float get(const Words* words, float offset) {
    const std::uint32_t code = words[kAt / 16].at[kAt % 16 / 4] >> (kAt % 4 * 8) & 0xFFU;
    return std::bit_cast<float>(kMagicBits | code) - offset;
  }
};

template <>
struct Decoder<WeightForm::Int4> {
  static constexpr int kNeighbours = 32;
  static constexpr float kOffset = kMagic + 8.0F;
  template <int kAt>
  static SIMT_DEVICE float get(const Words* words, float offset) {
    const std::uint32_t code = words[kAt / 32].at[kAt % 32 / 8] >> (kAt % 8 * 4) & 0xFU;
    return std::bit_cast<float>(kMagicBits | code) - offset;
  }
};

// Calls visit with 0, 1, .. as constants, as the words of a thread lie in registers.
template <int kCount, typename Visit, int kAt = 0>
SIMT_DEVICE void for_each(const Visit& visit) {
  if constexpr (kAt < kCount) {
    visit.template operator()<kAt>();
    for_each<kCount, Visit, kAt + 1>(visit);
  }
}

SIMT_DEVICE float read_x(const WeightProductParams& p, std::int64_t i) {
  return p.is_bfloat16 ? math::bfloat16_to_float(static_cast<const std::uint16_t*>(p.x)[i])
                       : static_cast<const float*>(p.x)[i];
}

// Weights of a column are decoded as code - offset.
template <WeightForm kForm>
SIMT_DEVICE float offset_of(const WeightProductParams& p, int column, int k) {
  if (p.zero_points == nullptr) return Decoder<kForm>::kOffset;
  const std::int64_t at = static_cast<std::int64_t>(k >> p.group_shift) * p.padded_columns + column;
  return Decoder<kForm>::kOffset + static_cast<float>(p.zero_points[at]);
}

SIMT_DEVICE float scale_at(const WeightProductParams& p, int column, int k) {
  return p.scales[static_cast<std::int64_t>(k >> p.group_shift) * p.padded_columns + column];
}

SIMT_DEVICE void store_sum(const WeightProductParams& p, std::int64_t row, int column, float sum) {
  if (p.bias != nullptr) sum = sum + p.bias[column];
  if (p.relu) sum = sum > 0.0F ? sum : 0.0F;
  const std::int64_t at = row * p.columns + column;
  if (p.is_bfloat16) {
    static_cast<std::uint16_t*>(p.y)[at] = math::float_to_bfloat16(sum);
  } else {
    static_cast<float*>(p.y)[at] = sum;
  }
}

// A few rows: the weights pass once, 16 bytes a thread. A warp has 32 columns and a block of the
// depth, whose activations lie in shared memory; blocks meet there as well.
template <WeightForm kForm, int kRows>
struct StreamWeights {
  static constexpr const char* kName = "stream_weights";
  static constexpr int kThreads = 256;
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kDepth = kWarps * kBlock;  // of a round
  static constexpr int kShared = (kRows * kDepth + kRows * kThreads) * 4;
  static constexpr bool kTogether = true;
  using Params = WeightProductParams;
  using Form = Decoder<kForm>;

  static SIMT_DEVICE void stage(const Params& p, float* xs, std::int64_t first_row, int first) {
    for (int i = simt::thread(); i < kRows * kDepth; i += kThreads) {
      const std::int64_t row = first_row + i / kDepth;
      const int k = first + i % kDepth;
      xs[i] = row < p.rows && k < p.depth ? read_x(p, row * p.depth + k) : 0.0F;
    }
  }

  // The sums of one block; `xs` holds its activations, the rows kDepth apart.
  static SIMT_DEVICE void add_block(const Params& p, int column, int first, const float* xs,
                                    float (&block)[kRows]) {
    // All of a column's weights are on their way at once, or half of them where rows need registers.
    constexpr int kWords = kBlock / Form::kNeighbours / (kRows > 4 ? 2 : 1);
    constexpr int kUnitsOfWords = kWords * Form::kNeighbours / kUnit;
    Words words[kWords];
    const unsigned char* from =
        p.w +
        (static_cast<std::int64_t>(first / Form::kNeighbours) * p.padded_columns + column) * 16;
    const std::int64_t step = static_cast<std::int64_t>(p.padded_columns) * 16;
    float chain[kRows] = {};
    float offset = 0.0F;
    for_each<kBlock / kUnit>([&]<int kAt>() {
      const int k = first + kAt * kUnit;
      if (k >= p.depth) return;
      if constexpr (kForm != WeightForm::Half) offset = offset_of<kForm>(p, column, k);
      if constexpr (kAt % kUnitsOfWords == 0) {
        for (int i = 0; i < kWords; ++i, from += step) words[i] = simt::load<Words>(from);
      }
      constexpr int kWithin = kAt % kUnitsOfWords * kUnit;
      for_each<kUnit / 4>([&]<int kFour>() {
        float w[4];
        for_each<4>([&]<int kOne>() {
          w[kOne] = Form::template get<kWithin + kFour * 4 + kOne>(words, offset);
        });
        for (int r = 0; r < kRows; ++r) {
          const auto x = simt::load<Floats>(xs + r * kDepth + kAt * kUnit + kFour * 4);
          for (int i = 0; i < 4; ++i) chain[r] = fmaf(x.at[i], w[i], chain[r]);
        }
      });
      if constexpr (kForm != WeightForm::Half) {
        const int next = k + kUnit;
        if ((next & (p.segment - 1)) != 0 && next < p.depth && kAt + 1 < kBlock / kUnit) return;
        const float scale = scale_at(p, column, k);
        for (int r = 0; r < kRows; ++r) {
          block[r] = fmaf(scale, chain[r], block[r]);
          chain[r] = 0.0F;
        }
      }
    });
    if constexpr (kForm == WeightForm::Half) {
      for (int r = 0; r < kRows; ++r) block[r] = chain[r];
    }
  }

  static SIMT_DEVICE void run(const Params& p, unsigned char* shared) {
    auto* const xs = reinterpret_cast<float*>(shared);
    float* const blocks = xs + kRows * kDepth;
    const int lane = simt::thread() % 32;
    const int warp = simt::thread() / 32;
    const int column = simt::block_x() * 32 + lane;
    const std::int64_t first_row = static_cast<std::int64_t>(simt::block_y()) * kRows;
    float sum = 0.0F;  // of row `warp`
    for (int first = 0; first < p.depth; first += kDepth) {
      stage(p, xs, first_row, first);
      simt::sync();
      const int mine = first + warp * kBlock;
      if (mine < p.depth) {
        float block[kRows] = {};
        add_block(p, column, mine, xs + warp * kBlock, block);
        for (int r = 0; r < kRows; ++r) blocks[(warp * kRows + r) * 32 + lane] = block[r];
      }
      simt::sync();
      if (warp >= kRows) continue;
      for (int i = 0; i < kWarps && first + i * kBlock < p.depth; ++i) {
        const float block = blocks[(i * kRows + warp) * 32 + lane];
        sum += block;
      }
    }
    const std::int64_t row = first_row + warp;
    if (warp < kRows && row < p.rows && column < p.columns) store_sum(p, row, column, sum);
  }
};

// Many rows: tiles of 64 x 64 sums, 4 x 4 of a thread, whose weights become floats once a tile.
template <WeightForm kForm>
struct MultiplyWeights {
  static constexpr const char* kName = "multiply_weights";
  static constexpr int kThreads = 256;
  static constexpr int kRows = 64;
  static constexpr int kColumns = WeightProductParams::kColumns;
  static constexpr int kDepth = 32;         // of a step
  static constexpr int kPitch = kRows + 4;  // of one k of the activations
  static constexpr int kStageFloats = kDepth * (kPitch + kColumns);
  static constexpr int kShared = 2 * kStageFloats * 4;
  static constexpr bool kTogether = true;
  using Params = WeightProductParams;
  using Form = Decoder<kForm>;

  // What a thread brings for the next step.
  struct Pieces {
    Floats x[2];
    Words w;
    float offset;  // with int4 that of the first half
    float second_offset;
  };
  static constexpr int kWeightPieces = kColumns * kDepth / Form::kNeighbours;

  static SIMT_DEVICE Pieces fetch(const Params& p, std::int64_t first_row, int first_column,
                                  int first) {
    Pieces pieces{};
    for (int i = 0; i < 2; ++i) {
      const int at = simt::thread() + i * kThreads;
      const std::int64_t row = first_row + at / (kDepth / 4);
      const int k = first + at % (kDepth / 4) * 4;
      if (row >= p.rows || k >= p.depth) continue;
      if (p.aligned_x && !p.is_bfloat16) {
        pieces.x[i] = simt::load<Floats>(static_cast<const float*>(p.x) + row * p.depth + k);
        continue;
      }
      for (int e = 0; e < 4; ++e) {
        if (k + e < p.depth) pieces.x[i].at[e] = read_x(p, row * p.depth + k + e);
      }
    }
    if (simt::thread() >= kWeightPieces) return pieces;
    const int column = first_column + simt::thread() % kColumns;
    const int k = first + simt::thread() / kColumns * Form::kNeighbours;
    const std::int64_t chunk = k / Form::kNeighbours;
    pieces.w = simt::load<Words>(p.w + (chunk * p.padded_columns + column) * 16);
    if constexpr (kForm != WeightForm::Half) {
      // Behind the depth the activations are zeros, and any offset will do.
      const int last = p.depth - 1;
      pieces.offset = offset_of<kForm>(p, column, k < last ? k : last);
      pieces.second_offset = offset_of<kForm>(p, column, k + kUnit < last ? k + kUnit : last);
    }
    return pieces;
  }

  static SIMT_DEVICE void put(const Pieces& pieces, float* xs, float* ws) {
    for (int i = 0; i < 2; ++i) {
      const int at = simt::thread() + i * kThreads;
      for (int e = 0; e < 4; ++e) {
        xs[(at % (kDepth / 4) * 4 + e) * kPitch + at / (kDepth / 4)] = pieces.x[i].at[e];
      }
    }
    if (simt::thread() >= kWeightPieces) return;
    const int column = simt::thread() % kColumns;
    const int first = simt::thread() / kColumns * Form::kNeighbours;
    for_each<Form::kNeighbours>([&]<int kAt>() {
      const float offset = kAt < kUnit ? pieces.offset : pieces.second_offset;
      ws[(first + kAt) * kColumns + column] = Form::template get<kAt>(&pieces.w, offset);
    });
  }

  static SIMT_DEVICE void run(const Params& p, unsigned char* shared) {
    auto* const stages = reinterpret_cast<float*>(shared);
    const std::int64_t first_row = static_cast<std::int64_t>(simt::block_x()) * kRows;
    const int first_column = simt::block_y() * kColumns;
    const int my_row = simt::thread() / 16 * 4;
    const int my_column = simt::thread() % 16 * 4;
    float chain[4][4] = {};
    float block[4][4] = {};
    float sum[4][4] = {};
    put(fetch(p, first_row, first_column, 0), stages, stages + kDepth * kPitch);
    simt::sync();
    for (int first = 0; first < p.depth; first += kDepth) {
      const float* const xs = stages + first / kDepth % 2 * kStageFloats;
      const float* const ws = xs + kDepth * kPitch;
      Pieces next{};
      const bool more = first + kDepth < p.depth;
      if (more) next = fetch(p, first_row, first_column, first + kDepth);
      for (int unit = 0; unit < kDepth; unit += kUnit) {
        const int behind = first + unit + kUnit;  // the products so far
        if (behind - kUnit >= p.depth) break;
        for (int k = unit; k < unit + kUnit; ++k) {
          const auto x = simt::load<Floats>(xs + k * kPitch + my_row);
          const auto w = simt::load<Floats>(ws + k * kColumns + my_column);
          for (int i = 0; i < 4; ++i) {
            for (int j = 0; j < 4; ++j) chain[i][j] = fmaf(x.at[i], w.at[j], chain[i][j]);
          }
        }
        const bool ends = behind % kBlock == 0 || behind >= p.depth;
        if constexpr (kForm == WeightForm::Half) {
          if (!ends) continue;
        } else {
          if (!ends && (behind & (p.segment - 1)) != 0) continue;
          for (int j = 0; j < 4; ++j) {
            const float scale = scale_at(p, first_column + my_column + j, behind - kUnit);
            for (int i = 0; i < 4; ++i) block[i][j] = fmaf(scale, chain[i][j], block[i][j]);
          }
        }
        for (int i = 0; i < 4; ++i) {
          for (int j = 0; j < 4; ++j) {
            float& whole = kForm == WeightForm::Half ? chain[i][j] : block[i][j];
            if (ends) {
              sum[i][j] += whole;
              whole = 0.0F;
            }
            chain[i][j] = 0.0F;
          }
        }
      }
      if (!more) break;
      float* const other = stages + (first / kDepth + 1) % 2 * kStageFloats;
      put(next, other, other + kDepth * kPitch);
      simt::sync();
    }
    for (int i = 0; i < 4; ++i) {
      for (int j = 0; j < 4; ++j) {
        const std::int64_t row = first_row + my_row + i;
        const int column = first_column + my_column + j;
        if (row < p.rows && column < p.columns) store_sum(p, row, column, sum[i][j]);
      }
    }
  }
};

template <WeightForm kForm, int kRows>
void stream(Device device, const WeightProductParams& params) {
  const simt::Grid grid{(params.columns + 31) / 32,
                        static_cast<int>((params.rows + kRows - 1) / kRows), 1};
  simt::launch<StreamWeights<kForm, kRows>>(device, grid, params);
}

template <WeightForm kForm>
void multiply(Device device, const WeightProductParams& params) {
  // The rows for which weights that pass again and again, then from the cache, are faster than
  // tiles that are empty for the most part.
  constexpr std::int64_t kFewRows = 16;
  if (params.rows == 1) return stream<kForm, 1>(device, params);
  if (params.rows == 2) return stream<kForm, 2>(device, params);
  if (params.rows <= 4) return stream<kForm, 4>(device, params);
  if (params.rows <= kFewRows) return stream<kForm, 8>(device, params);
  using Tiles = MultiplyWeights<kForm>;
  simt::launch<Tiles>(device,
                      simt::Grid{(params.rows + Tiles::kRows - 1) / Tiles::kRows,
                                 (params.columns + Tiles::kColumns - 1) / Tiles::kColumns, 1},
                      params);
}

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void multiply_weights(Device device, const WeightProductParams& params) {
  switch (params.form) {
    case WeightForm::Half:
      return multiply<WeightForm::Half>(device, params);
    case WeightForm::Int8:
      return multiply<WeightForm::Int8>(device, params);
    case WeightForm::Int4:
      return multiply<WeightForm::Int4>(device, params);
  }
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
