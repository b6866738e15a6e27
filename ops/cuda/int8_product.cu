#include "quanta/ops/cuda/int8_product.h"

#include <type_traits>

#include "quanta/ops/cuda/column_ends.h"
#include "quanta/ops/cuda/few_products.h"
#include "quanta/ops/cuda/product_places.h"
#include "quanta/runtime/cuda/driver.h"
#include "quanta/runtime/cuda/simt.h"
#include "quanta/runtime/detail/ceil_div.h"

namespace quanta::cuda {
namespace {

struct alignas(8) TwoSums {
  std::int32_t of[2];
};
struct alignas(16) FourSums {
  std::int32_t of[4];
};

// How the sums are divided: a block has a tile of kRows x kColumns, a warp a part of it. The warps
// are kSplit groups, each of which has the whole tile for its part of the depth. kStages steps are on
// their way or in use.
struct SmallTile {
  static constexpr const char* kName = "multiply_codes";
  static constexpr int kRows = 64;
  static constexpr int kColumns = 64;
  static constexpr int kWarpRows = 32;
  static constexpr int kWarpColumns = 32;
  static constexpr int kSplit = 1;
  static constexpr int kStages = 4;
  static constexpr int kBlocks = 4;  // of a multiprocessor, at least
};
struct WideTile : SmallTile {
  static constexpr const char* kName = "multiply_codes_wide";
  static constexpr int kRows = 128;
  static constexpr int kColumns = 128;
  static constexpr int kWarpRows = 64;
  static constexpr int kBlocks = 2;
};
// For products of few sums and much depth, which would leave most of the device without work.
struct DeepTile : SmallTile {
  static constexpr const char* kName = "multiply_codes_deep";
  static constexpr int kRows = 32;
  static constexpr int kColumns = 32;
  static constexpr int kSplit = 8;
  static constexpr int kStages = 3;
  static constexpr int kBlocks = 1;
};

template <typename Tile, int kPiece, typename End>
struct MultiplyCodes {
  static constexpr const char* kName = Tile::kName;
  static constexpr int kRows = Tile::kRows;
  static constexpr int kColumns = Tile::kColumns;
  static constexpr int kSplit = Tile::kSplit;
  static constexpr int kStages = Tile::kStages;
  static constexpr int kBlocks = Tile::kBlocks;
  static constexpr int kDepth = ProductParams::kDepth;
  static constexpr int kWarpsOfRows = kRows / Tile::kWarpRows;
  static constexpr int kGroupThreads = 32 * kWarpsOfRows * (kColumns / Tile::kWarpColumns);
  static constexpr int kThreads = kGroupThreads * kSplit;
  static constexpr int kStageBytes = (kRows + kColumns) * kDepth;  // of a group
  static constexpr int kPitch = kColumns + 4;                      // of the sums in shared memory
  static constexpr int kPipeBytes = kStages * kSplit * kStageBytes;
  static constexpr int kSumBytes = kSplit * kRows * kPitch * 4;
  static constexpr int kWorkBytes = kPipeBytes > kSumBytes ? kPipeBytes : kSumBytes;
  static constexpr int kShared = kWorkBytes + kRows * static_cast<int>(sizeof(RowPlace));
  static constexpr bool kTogether = true;
  using Params = ProductParams;

  // A warp's part, in the tensor cores' matrices.
  static constexpr int kUp = Tile::kWarpRows / 16;
  static constexpr int kAcross = Tile::kWarpColumns / 8;
  using Sums = std::int32_t[kUp][kAcross][4];

  // A thread copies one piece of every so many-th row of the input and of the weights.
  static constexpr int kPieceDepth = kPiece == 3 ? 4 : kPiece;
  static constexpr int kPieces = kDepth / kPieceDepth;
  static constexpr int kRowsAtOnce = kGroupThreads / kPieces;
  static constexpr int kMine = kRows / kRowsAtOnce;
  static constexpr int kWeightRowsAtOnce = kGroupThreads / 4;
  static constexpr bool kKeepsSources = kMine <= 4;

  // Chunks of 16 bytes change places from row to row, so that the eight rows of a matrix lie in
  // different banks.
  static SIMT_DEVICE int swizzled(int row, int chunk) {
    return row * kDepth + ((chunk ^ ((row >> 1) & 3)) << 4);
  }

  // Where a thread stands along the depth: the channel, and the tap that it belongs to. Behind the
  // last tap comes the first one again: there the weight has another part, or is 0.
  struct Tap {
    int channel;
    int at[3];
    // Gives whether the tap is another one.
    SIMT_DEVICE bool advance(const Params& p, int channels) {
      channel += channels;
      if (channel < p.group_channels) return false;
      do {
        channel -= p.group_channels;
        if (++at[2] < p.kernel[2]) continue;
        at[2] = 0;
        if (++at[1] < p.kernel[1]) continue;
        at[1] = 0;
        if (++at[0] < p.kernel[0]) continue;
        at[0] = 0;
      } while (channel >= p.group_channels);
      return true;
    }
  };

  static SIMT_DEVICE void place_rows(const Params& p, RowPlace* places, std::int64_t first) {
    const int matrix = simt::block_z() / p.groups;
    for (int row = simt::thread(); row < kRows; row += kThreads) {
      places[row] = place_of(p, first + row, matrix);
    }
  }

  // The pieces of the input that a thread copies, one of every kRowsAtOnce-th row from its first on:
  // where they begin, as long as the tap stays the same.
  struct Sources {
    const RowPlace* shared = nullptr;  // of the first row
    int first_channel = 0;             // of the group
    Tap tap{0, {0, 0, 0}};
    RowPlace rows[kKeepsSources ? kMine : 1];
    const std::uint8_t* from[kKeepsSources ? kMine : 1];
    unsigned inside = 0;  // a bit for each: whether it is of the image

    SIMT_DEVICE Sources(const Params& p, const RowPlace* places, int channel, int depth)
        : shared(places), first_channel(channel) {
      if constexpr (kKeepsSources) {
        SIMT_UNROLL
        for (int i = 0; i < kMine; ++i) rows[i] = places[i * kRowsAtOnce];
      }
      tap.advance(p, depth);
      find_all(p);
    }

    SIMT_DEVICE const std::uint8_t* find(const Params& p, const RowPlace& row,
                                         std::int64_t ahead) const {
      const std::int64_t offset = source_offset(p, row, tap.at, ahead);
      return offset < 0 ? nullptr : p.x + offset + first_channel + tap.channel;
    }

    // Behind a new tap.
    SIMT_DEVICE void find_all(const Params& p) {
      if constexpr (kKeepsSources) {
        const std::int64_t ahead = tap_offset(p, tap.at);
        const std::uint8_t* const pad = pad_of(p);
        inside = 0;
        SIMT_UNROLL
        for (int i = 0; i < kMine; ++i) {
          from[i] = find(p, rows[i], ahead);
          if (from[i] == nullptr) {
            from[i] = pad;
          } else {
            inside |= 1U << i;
          }
        }
      }
    }

    SIMT_DEVICE void advance(const Params& p) {
      if (tap.advance(p, kDepth)) return find_all(p);
      if constexpr (kKeepsSources) {
        SIMT_UNROLL
        for (int i = 0; i < kMine; ++i) {
          if ((inside >> i & 1U) != 0) from[i] += kDepth;
        }
      }
    }

    // `to`: the stage's rows.
    SIMT_DEVICE void copy(const Params& p, int row, int piece, unsigned char* to) const {
      const auto place_in_stage = [&](int i) {
        return to + swizzled(row + i * kRowsAtOnce, piece * kPieceDepth / 16) +
               piece * kPieceDepth % 16;
      };
      if constexpr (kKeepsSources) {
        SIMT_UNROLL
        for (int i = 0; i < kMine; ++i) simt::copy_async<kPiece>(place_in_stage(i), from[i]);
      } else {
        const std::uint8_t* const pad = pad_of(p);
        const std::int64_t ahead = tap_offset(p, tap.at);
        for (int i = 0; i < kMine; ++i) {
          const std::uint8_t* source = find(p, shared[i * kRowsAtOnce], ahead);
          if (source == nullptr) source = pad;
          if constexpr (kPiece == 1) {
            *place_in_stage(i) = *source;
          } else if constexpr (kPiece == 3) {  // what is fourth meets a weight of 0
            simt::store(place_in_stage(i), std::uint32_t{source[0]} |
                                               std::uint32_t{source[1]} << 8 |
                                               std::uint32_t{source[2]} << 16);
          } else {
            simt::copy_async<kPiece>(place_in_stage(i), source);
          }
        }
      }
    }
  };

  static SIMT_DEVICE void run(const Params& p, unsigned char* shared) {
    const int t = simt::thread();
    const int lane = t % 32;
    const int part = t / kGroupThreads;  // of the depth
    const int of_part = t % kGroupThreads;
    const int group = simt::block_z() % p.groups;
    const int matrix = simt::block_z() / p.groups;
    const std::int64_t first_pixel = static_cast<std::int64_t>(simt::block_x()) * kRows;
    const int first_column = simt::block_y() * kColumns;
    auto* const places = reinterpret_cast<RowPlace*>(shared + kWorkBytes);
    place_rows(p, places, first_pixel);
    simt::sync();

    // Each part has as many steps of the depth, the last ones fewer or none.
    const int all_steps = p.depth / kDepth;
    const int rounds = (all_steps + kSplit - 1) / kSplit;
    const int first_step = part * rounds;
    const int steps = all_steps - first_step;
    const int row = of_part / kPieces;
    const int piece = of_part % kPieces;
    Sources sources(p, places + row, group * p.group_channels,
                    first_step * kDepth + piece * kPieceDepth);
    const int padded_columns = round_up(p.columns, ProductParams::kColumns);
    const int weight_row = of_part / 4;
    const std::int8_t* weights =
        p.w + matrix * p.matrix_w + first_step * kDepth + of_part % 4 * 16 +
        (static_cast<std::int64_t>(group) * padded_columns + first_column + weight_row) * p.depth;
    const std::int64_t weight_pitch = static_cast<std::int64_t>(kWeightRowsAtOnce) * p.depth;
    const auto load = [&](int round) {
      if (round >= rounds || round >= steps) return;
      unsigned char* a = shared + (round % kStages * kSplit + part) * kStageBytes;
      unsigned char* b = a + kRows * kDepth;
      sources.copy(p, row, piece, a);
      SIMT_UNROLL
      for (int i = 0; i < kColumns / kWeightRowsAtOnce; ++i) {
        simt::copy_async<16>(b + swizzled(weight_row + i * kWeightRowsAtOnce, of_part % 4),
                             weights + i * weight_pitch);
      }
      weights += kDepth;
      sources.advance(p);
    };

    Sums sums = {};
    for (int i = 0; i < kStages - 1; ++i) {
      load(i);
      simt::commit();
    }
    const int warp = of_part / 32;
    const int warp_row = warp % kWarpsOfRows * Tile::kWarpRows;
    const int warp_column = warp / kWarpsOfRows * Tile::kWarpColumns;
    for (int round = 0; round < rounds; ++round) {
      simt::wait<kStages - 2>();
      simt::sync();
      load(round + kStages - 1);
      simt::commit();
      if (round >= steps || first_column + warp_column >= p.columns) continue;
      const unsigned char* a = shared + (round % kStages * kSplit + part) * kStageBytes;
      multiply(a, a + kRows * kDepth, warp_row, warp_column, lane, sums);
    }
    simt::wait<0>();
    simt::sync();
    store(p, shared, sums, part, warp_row, warp_column, lane);
  }

  // Adds the products of a stage.
  static SIMT_DEVICE void multiply(const unsigned char* a, const unsigned char* b, int warp_row,
                                   int warp_column, int lane, Sums& sums) {
    SIMT_UNROLL
    for (int half = 0; half < 2; ++half) {
      std::uint32_t left[kUp][4];
      std::uint32_t right[kAcross][2];
      SIMT_UNROLL
      for (int i = 0; i < kUp; ++i) {
        simt::load_matrix_x4(left[i],
                             a + swizzled(warp_row + i * 16 + lane % 16, half * 2 + lane / 16));
      }
      SIMT_UNROLL
      for (int j = 0; j < kAcross / 2; ++j) {
        std::uint32_t both[4];
        simt::load_matrix_x4(both, b + swizzled(warp_column + j * 16 + lane % 8 + lane / 16 * 8,
                                                half * 2 + lane / 8 % 2));
        right[j * 2][0] = both[0];
        right[j * 2][1] = both[1];
        right[j * 2 + 1][0] = both[2];
        right[j * 2 + 1][1] = both[3];
      }
      simt::multiply_u8s8(sums, left, right);
    }
  }

  // The sums go through shared memory, so that neighbours in memory are written by neighbours.
  static SIMT_DEVICE void store(const Params& p, unsigned char* shared, const Sums& sums, int part,
                                int warp_row, int warp_column, int lane) {
    constexpr int kSums = kRows * kPitch;
    auto* all = reinterpret_cast<std::int32_t*>(shared);
    SIMT_UNROLL
    for (int i = 0; i < kUp; ++i) {
      SIMT_UNROLL
      for (int j = 0; j < kAcross; ++j) {
        SIMT_UNROLL
        for (int half = 0; half < 2; ++half) {
          const int row = warp_row + i * 16 + lane / 4 + half * 8;
          simt::store(all + part * kSums + row * kPitch + warp_column + j * 8 + lane % 4 * 2,
                      TwoSums{{sums[i][j][half * 2], sums[i][j][half * 2 + 1]}});
        }
      }
    }
    simt::sync();
    if constexpr (kSplit > 1) {
      for (int i = simt::thread(); i < kSums; i += kThreads) {
        std::int32_t sum = 0;
        for (int s = 0; s < kSplit; ++s) sum = wrapping(1, sum, all[s * kSums + i]);
        all[i] = sum;
      }
      simt::sync();
    }
    if (ends_by_column(p.end)) return store_columns(p, all);
    if constexpr (std::is_same_v<End, AnyEnd>) store_others(p, all);
  }

  // A thread has four columns, and goes from row to row.
  static SIMT_DEVICE void store_columns(const Params& p, const std::int32_t* all) {
    const std::int64_t first_pixel = static_cast<std::int64_t>(simt::block_x()) * kRows;
    const int first_column = simt::block_y() * kColumns;
    int of_row = kColumns / 4;  // threads
    while (of_row > 1 && first_column + of_row * 2 >= p.columns) of_row /= 2;
    const int begin = simt::thread() % of_row * 4;
    const int left = p.columns - first_column - begin;
    if (left <= 0) return;
    const int count = left < 4 ? left : 4;
    const int channel = simt::block_z() % p.groups * p.columns + first_column + begin;
    ColumnEnd columns[4];
    SIMT_UNROLL
    for (int e = 0; e < 4; ++e) {
      if (e < count) columns[e] = column_end(p, channel + e);
    }
    const bool fours = has_fours(p) && p.columns % 4 == 0;
    SIMT_LOOP
    for (int row = simt::thread() / of_row; row < kRows; row += kThreads / of_row) {
      const std::int64_t pixel = first_pixel + row;
      if (pixel >= p.pixels) return;
      const auto sums = simt::load<FourSums>(all + row * kPitch + begin);
      const std::int64_t at = pixel * p.groups * p.columns + channel;
      if (fours) {
        End::store_four(p, sums.of, columns, at);
        continue;
      }
      SIMT_UNROLL
      for (int e = 0; e < 4; ++e) {
        if (e < count) End::store(p, sums.of[e], columns[e], at + e);
      }
    }
  }

  static SIMT_DEVICE void store_others(const Params& p, const std::int32_t* all) {
    const int first_column = simt::block_y() * kColumns;
    SIMT_LOOP
    for (int i = simt::thread(); i < kRows * kColumns; i += kThreads) {
      const int row = i / kColumns;
      const int column = first_column + i % kColumns;
      const std::int64_t pixel = static_cast<std::int64_t>(simt::block_x()) * kRows + row;
      if (pixel >= p.pixels || column >= p.columns) continue;
      store_sum(p, all[row * kPitch + i % kColumns], simt::block_z() / p.groups, pixel,
                simt::block_z() % p.groups * p.columns + column);
    }
  }
};

}  // namespace

namespace QUANTA_SIMT_BACKEND {
namespace {

template <typename Tile>
simt::Grid grid_of(const ProductParams& p) {
  return {(p.pixels + Tile::kRows - 1) / Tile::kRows,
          (p.columns + Tile::kColumns - 1) / Tile::kColumns, p.groups * p.matrices};
}

// Whether so many blocks give each multiprocessor one.
template <typename Tile>
bool fills(Device device, const ProductParams& p) {
  const simt::Grid grid = grid_of<Tile>(p);
  return grid.x * grid.y * grid.z >= driver(device).multiprocessors();
}

template <typename Tile, int kPiece, typename End>
void launch_tile(Device device, const ProductParams& p) {
  simt::launch<MultiplyCodes<Tile, kPiece, End>>(device, grid_of<Tile>(p), p);
}

// The largest tile that leaves no multiprocessor without one: each byte is read for more products.
template <typename End>
void launch_best(Device device, const ProductParams& p) {
  constexpr int kManySteps = 4;
  if constexpr (!std::is_same_v<End, AnyEnd>) {  // whose registers such a tile needs itself
    const bool is_wide = round_up(p.columns, ProductParams::kColumns) % WideTile::kColumns == 0;
    if (is_wide && fills<WideTile>(device, p)) return launch_tile<WideTile, 16, End>(device, p);
  }
  if (p.depth >= kManySteps * ProductParams::kDepth && !fills<SmallTile>(device, p)) {
    return launch_tile<DeepTile, 16, End>(device, p);
  }
  launch_tile<SmallTile, 16, End>(device, p);
}

template <typename End>
void launch_piece(Device device, const ProductParams& p) {
  switch (p.piece) {
    case 16:
      return launch_best<End>(device, p);
    case 8:
      return launch_tile<SmallTile, 8, End>(device, p);
    case 4:
      return launch_tile<SmallTile, 4, End>(device, p);
    case 3:
      return launch_tile<SmallTile, 3, End>(device, p);
    default:
      return launch_tile<SmallTile, 1, End>(device, p);
  }
}

}  // namespace

void multiply_codes(Device device, const ProductParams& params) {
  if (has_few_products(params.columns, params.group_channels)) {
    return QUANTA_SIMT_BACKEND::multiply_few_codes(device, params);
  }
  if (params.end == ProductEnd::Codes) return launch_piece<CodesEnd>(device, params);
  if (params.end == ProductEnd::Dynamic && params.piece == 16) {
    return launch_best<DynamicEnd>(device, params);
  }
  launch_piece<AnyEnd>(device, params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
