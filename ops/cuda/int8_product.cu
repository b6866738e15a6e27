#include "quanta/ops/cuda/int8_product.h"

#include "quanta/ops/cuda/four_floats.h"
#include "quanta/ops/cuda/product_ends.h"
#include "quanta/runtime/cuda/simt.h"
#include "quanta/runtime/detail/gelu_math.h"
#include "quanta/runtime/quant_math.h"

namespace quanta::cuda {
namespace {

// Where a row of the tile begins in the input, before padding and taps.
struct RowPlace {
  std::int64_t image = 0;  // offset of the image
  int at[3] = {0, 0, 0};   // output position times stride, less padding (transposed: plus padding)
  int real = 0;            // whether there is such a pixel
};

// What the sums of a column need where they end: read once for all of them.
struct ColumnEnd {
  std::int32_t added = 0;  // to a sum
  float factor = 0.0F;
  float bias = 0.0F;
};

// Whether a sum ends by its column and what the host knows.
QUANTA_HOST_DEVICE inline bool ends_by_column(ProductEnd end) {
  return end != ProductEnd::Grid && end != ProductEnd::Activations;
}

SIMT_DEVICE ColumnEnd column_end(const ProductParams& p, int channel) {
  ColumnEnd column;
  if (p.end == ProductEnd::Dynamic) {
    column.added = dynamic_sum(p.dynamic, 0, channel);
    column.factor = scale_of(p.dynamic) * p.multiplier[channel];
  } else {
    column.added = p.compensation[channel];
    if (p.end != ProductEnd::Sums) column.factor = p.multiplier[channel];
  }
  if (p.bias != nullptr) column.bias = p.bias[channel];
  return column;
}

// `other`: the code that is added, where there are such.
SIMT_DEVICE std::int32_t end_as_codes(const ProductParams& p, std::int32_t sum,
                                      const ColumnEnd& column, std::uint8_t other) {
  const std::int32_t code =
      math::requantize(sum, column.bias, p.bias_factor, column.factor, p.zero_point, p.low, 255);
  const ProductAddend& addend = p.addend;
  if (addend.codes == nullptr) return code;
  const float own = math::dequantize_fused(code, addend.own_scale, addend.own_offset);
  const float added = math::dequantize_fused(other, addend.scale, addend.offset);
  return math::quantize(own + added, addend.inv_scale, addend.out_zero_point, addend.low, 255);
}

SIMT_DEVICE std::int32_t end_as_float(const ProductParams& p, std::int32_t sum,
                                      const ColumnEnd& column, std::uint8_t other) {
  float value = static_cast<float>(sum) * column.factor;
  if (p.bias != nullptr) value = value + column.bias;
  if (p.addend.codes != nullptr) {
    value = value + math::dequantize(other, p.addend.scale, p.addend.zero_point);
  }
  if (p.function == ProductFunction::ReLU) {
    value = value > 0.0F ? value : 0.0F;
  } else if (p.function == ProductFunction::LeakyReLU) {
    value = value > 0.0F ? value : value * p.negative_slope;
  } else if (p.function == ProductFunction::Steps) {
    return code_of_steps(p.steps, value);
  }
  return math::quantize(value, p.inv_scale, p.zero_point, 0, 255);
}

SIMT_DEVICE std::uint8_t end_as_byte(const ProductParams& p, std::int32_t sum,
                                     const ColumnEnd& column, std::uint8_t other) {
  const std::int32_t full = wrapping(1, sum, column.added);
  const auto code =
      static_cast<std::uint8_t>(p.end == ProductEnd::Codes ? end_as_codes(p, full, column, other)
                                                           : end_as_float(p, full, column, other));
  return p.has_table ? p.table[code] : code;
}

// As cpu::SumsToFloats: integers that wrap, then floats one by one.
SIMT_DEVICE float end_dynamic(const ProductParams& p, std::int32_t sum, const ColumnEnd& column,
                              std::int64_t at) {
  float value = static_cast<float>(wrapping(1, sum, column.added)) * column.factor;
  if (p.bias != nullptr) value += column.bias;
  if (p.function == ProductFunction::ReLU) {
    value = value > 0.0F ? value : 0.0F;
  } else if (p.function == ProductFunction::Gelu) {
    value = math::gelu_float(value);
  }
  if (p.dynamic.addend != nullptr) value += p.dynamic.addend[at];
  return value;
}

// Writes what becomes of a sum; `at` is its place in the result.
SIMT_DEVICE void store_sum(const ProductParams& p, std::int32_t sum, const ColumnEnd& column,
                           std::int64_t at) {
  if (p.end == ProductEnd::Dynamic) {
    static_cast<float*>(p.y)[at] = end_dynamic(p, sum, column, at);
  } else if (p.end == ProductEnd::Sums) {
    static_cast<std::int32_t*>(p.y)[at] = wrapping(1, sum, column.added);
  } else {
    const std::uint8_t other = p.addend.codes == nullptr ? 0 : p.addend.codes[at];
    static_cast<std::uint8_t*>(p.y)[at] = end_as_byte(p, sum, column, other);
  }
}

// The same with four neighbours of a pixel, which lie on as many elements.
SIMT_DEVICE void store_four(const ProductParams& p, const std::int32_t* sums,
                            const ColumnEnd (&columns)[4], std::int64_t at) {
  if (p.end == ProductEnd::Dynamic) {
    FourFloats floats;
    for (int e = 0; e < 4; ++e) floats.of[e] = end_dynamic(p, sums[e], columns[e], at + e);
    return simt::store(static_cast<float*>(p.y) + at, floats);
  }
  if (p.end == ProductEnd::Sums) {
    for (int e = 0; e < 4; ++e) store_sum(p, sums[e], columns[e], at + e);
    return;
  }
  const std::uint32_t others =
      p.addend.codes == nullptr ? 0 : simt::load<std::uint32_t>(p.addend.codes + at);
  std::uint32_t word = 0;
  for (int e = 0; e < 4; ++e) {
    const auto other = static_cast<std::uint8_t>(others >> (8 * e));
    word |= std::uint32_t{end_as_byte(p, sums[e], columns[e], other)} << (8 * e);
  }
  simt::store(static_cast<std::uint8_t*>(p.y) + at, word);
}

// Whether store_four may take the place of four store_sum, whose channels begin at a multiple of 4.
QUANTA_HOST_DEVICE inline bool has_fours(const ProductParams& p) {
  std::uintptr_t bits =
      reinterpret_cast<std::uintptr_t>(p.y) | reinterpret_cast<std::uintptr_t>(p.addend.codes);
  if (p.end != ProductEnd::Dynamic) bits <<= 2;  // four bytes, not four floats
  return bits % 16 == 0 && p.groups * p.columns % 4 == 0;
}

// Writes a sum of one of the products, at its place.
SIMT_DEVICE void store_sum(const ProductParams& p, std::int32_t sum, int matrix, std::int64_t pixel,
                           int channel) {
  const std::int64_t at = pixel * p.groups * p.columns + channel;
  if (ends_by_column(p.end)) return store_sum(p, sum, column_end(p, channel), at);
  if (p.end == ProductEnd::Grid) {
    static_cast<float*>(p.y)[at] = end_on_grid(p, sum, channel);
    return;
  }
  const std::int64_t row_sum =
      (static_cast<std::int64_t>(matrix) * p.pixels + pixel) * p.groups + channel / p.columns;
  const std::int64_t column_sum =
      (p.matrix_w == 0 ? 0 : static_cast<std::int64_t>(matrix) * p.groups * p.columns) + channel;
  store_of_activations(p, sum, static_cast<int>(pixel), channel, row_sum, column_sum,
                       matrix * p.matrix_y + at);
}

// Sets where a pixel begins in its image, and gives the number of the image. Int: one that holds all
// pixels, as a division of 64 bits takes many times as long as one of 32.
template <typename Int>
SIMT_DEVICE std::int64_t image_of(const ProductParams& p, Int pixel, RowPlace& place) {
  for (int d = 2; d >= 0; --d) {
    const auto size = static_cast<Int>(p.out[d]);
    const int position = static_cast<int>(pixel % size);
    pixel /= size;
    place.at[d] = p.transposed ? position + p.padding[d] : position * p.stride[d] - p.padding[d];
  }
  return static_cast<std::int64_t>(pixel);
}

// The place of an output pixel, which there is.
SIMT_DEVICE RowPlace place_of(const ProductParams& p, std::int64_t pixel, int matrix) {
  RowPlace place;
  place.real = 1;
  const std::int64_t image = p.pixels >> 32 == 0
                                 ? image_of(p, static_cast<std::uint32_t>(pixel), place)
                                 : image_of(p, static_cast<std::uint64_t>(pixel), place);
  place.image = image * p.in[0] * p.in[1] * p.in[2] * p.channels + matrix * p.matrix_x;
  return place;
}

// The offset of the input pixel that a tap reads, in elements from x; -1 beyond the image.
SIMT_DEVICE std::int64_t source_offset(const ProductParams& p, const RowPlace& place,
                                       const int (&tap)[3]) {
  std::int64_t pixel = 0;
  for (int d = 0; d < 3; ++d) {
    int position = place.at[d] + tap[d] * p.dilation[d];
    if (p.transposed) {
      position = place.at[d] - tap[d] * p.dilation[d];
      if (position < 0 || position % p.stride[d] != 0) return -1;
      position /= p.stride[d];
    }
    if (position < 0 || position >= p.in[d]) return -1;
    pixel = pixel * p.in[d] + position;
  }
  return place.image + pixel * p.channels;
}

// Depthwise convolutions and their like: a tile would be zeros for the most part. Each thread
// calculates one sum; neighbours are channels of one pixel.
struct MultiplyFew {
  static constexpr const char* kName = "multiply_few_codes";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = ProductParams;

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    const int matrix = simt::block_z();
    const int channels = p.groups * p.columns;
    if (i >= p.pixels * channels) return;
    const int channel = static_cast<int>(i % channels);
    const int group = channel / p.columns;
    const RowPlace place = place_of(p, i / channels, matrix);
    const int padded_columns = (p.columns + ProductParams::kColumns - 1) / ProductParams::kColumns *
                               ProductParams::kColumns;
    const std::int64_t row =
        static_cast<std::int64_t>(group) * padded_columns + channel % p.columns;
    const std::int8_t* w = p.w + matrix * p.matrix_w + row * p.depth;
    const std::int32_t zero_point = pad_of(p)[0];
    std::int32_t sum = 0;
    for (int part = 0; part < p.parts; ++part) {
      int tap[3];
      for (tap[0] = 0; tap[0] < p.kernel[0]; ++tap[0]) {
        for (tap[1] = 0; tap[1] < p.kernel[1]; ++tap[1]) {
          for (tap[2] = 0; tap[2] < p.kernel[2]; ++tap[2]) {
            const std::int64_t from = source_offset(p, place, tap);
            for (int c = 0; c < p.group_channels; ++c, ++w) {
              const std::int32_t x =
                  from < 0 ? zero_point : p.x[from + group * p.group_channels + c];
              sum += x * *w;
            }
          }
        }
      }
    }
    store_sum(p, sum, matrix, i / channels, channel);
  }
};

// Depthwise convolutions whose channels lie on words: a thread has four channels of some pixels, a
// block 64 channels, whose weights it keeps in shared memory.
struct MultiplyDepthwise {
  static constexpr const char* kName = "multiply_depthwise_codes";
  static constexpr int kBlocks = 3;
  static constexpr int kThreads = 256;
  static constexpr int kChannels = 64;
  static constexpr int kThreadsOfPixel = kChannels / 4;
  static constexpr int kPixelsAtOnce = kThreads / kThreadsOfPixel;
  static constexpr int kPixels = 4 * kPixelsAtOnce;  // of a block
  static constexpr int kTaps = ProductParams::kDepth;
  static constexpr int kGroupRows = ProductParams::kColumns * kTaps;  // bytes of a group's weights
  static constexpr int kShared = kTaps * kChannels;
  static constexpr bool kTogether = true;
  using Params = ProductParams;

  static bool takes(const Params& p) {
    const std::uintptr_t bits = reinterpret_cast<std::uintptr_t>(p.x);
    return p.columns == 1 && p.group_channels == 1 && p.parts == 1 && p.matrices == 1 &&
           p.depth == kTaps && bits % 4 == 0 && has_fours(p) && ends_by_column(p.end);
  }

  static SIMT_DEVICE void run(const Params& p, unsigned char* shared) {
    const int t = simt::thread();
    const int first_channel = simt::block_y() * kChannels;
    const int taps = p.kernel[0] * p.kernel[1] * p.kernel[2];
    for (int i = t; i < taps * kChannels; i += kThreads) {
      const int channel = i / taps;
      if (first_channel + channel >= p.groups) break;
      const std::int64_t row = static_cast<std::int64_t>(first_channel + channel) * kGroupRows;
      shared[i % taps * kChannels + channel] = static_cast<unsigned char>(p.w[row + i % taps]);
    }
    const int lane = t % kThreadsOfPixel * 4;
    simt::sync();
    const int channel = first_channel + lane;
    if (channel >= p.groups) return;
    ColumnEnd columns[4];
    for (int e = 0; e < 4; ++e) columns[e] = column_end(p, channel + e);
    const std::uint32_t beyond = pad_of(p)[0] * 0x01010101U;
    const std::int64_t first_pixel = static_cast<std::int64_t>(simt::block_x()) * kPixels;
    for (int i = t / kThreadsOfPixel; i < kPixels; i += kPixelsAtOnce) {
      const std::int64_t pixel = first_pixel + i;
      if (pixel >= p.pixels) return;
      const RowPlace place = place_of(p, pixel, 0);
      std::int32_t sums[4] = {};
      const unsigned char* weights = shared + lane;
      int tap[3];
      for (tap[0] = 0; tap[0] < p.kernel[0]; ++tap[0]) {
        for (tap[1] = 0; tap[1] < p.kernel[1]; ++tap[1]) {
          for (tap[2] = 0; tap[2] < p.kernel[2]; ++tap[2], weights += kChannels) {
            const std::int64_t from = source_offset(p, place, tap);
            const std::uint32_t x =
                from < 0 ? beyond : simt::load<std::uint32_t>(p.x + from + channel);
            const auto w = simt::load<std::uint32_t>(weights);
            for (int e = 0; e < 4; ++e) {
              sums[e] = simt::dot_u8s8(x & (0xFFU << (8 * e)), w, sums[e]);
            }
          }
        }
      }
      store_four(p, sums, columns, pixel * p.groups + channel);
    }
  }
};

// The sum of a row, by a warp.
struct SumWindows {
  static constexpr const char* kName = "sum_windows";
  static constexpr int kThreads = 256;
  static constexpr int kRows = kThreads / 32;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = true;
  using Params = ProductParams;

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t row =
        static_cast<std::int64_t>(simt::block_x()) * kRows + simt::thread() / 32;
    const int lane = simt::thread() % 32;
    const int matrix = simt::block_z();
    if (row >= p.pixels * p.groups) return;
    const int group = static_cast<int>(row % p.groups);
    const RowPlace place = place_of(p, row / p.groups, matrix);
    const std::int32_t zero_point = pad_of(p)[0];
    std::int32_t sum = 0;
    int tap[3];
    for (tap[0] = 0; tap[0] < p.kernel[0]; ++tap[0]) {
      for (tap[1] = 0; tap[1] < p.kernel[1]; ++tap[1]) {
        for (tap[2] = 0; tap[2] < p.kernel[2]; ++tap[2]) {
          const std::int64_t from = source_offset(p, place, tap);
          if (from < 0) {
            if (lane == 0) sum += zero_point * p.group_channels;
            continue;
          }
          const std::uint8_t* x = p.x + from + group * p.group_channels;
          if (p.piece < 4) {
            for (int c = lane; c < p.group_channels; c += 32) sum += x[c];
          } else {
            for (int c = lane * 4; c < p.group_channels; c += 128) {
              sum = simt::dot_u8s8(simt::load<std::uint32_t>(x + c), 0x01010101U, sum);
            }
          }
        }
      }
    }
    sum = simt::warp_sum(sum);
    if (lane == 0) {
      static_cast<std::int32_t*>(p.y)[matrix * p.pixels * p.groups + row] = sum;
    }
  }
};

template <int kPiece>
struct MultiplyCodes {
  static constexpr const char* kName = "multiply_codes";
  static constexpr int kRows = ProductParams::kRows;
  static constexpr int kColumns = ProductParams::kColumns;
  static constexpr int kDepth = ProductParams::kDepth;
  static constexpr int kThreads = 128;  // four warps, each of 32 x 32 sums
  static constexpr int kStages = 4;
  static constexpr int kStageBytes = (kRows + kColumns) * kDepth;
  static constexpr int kPitch = kColumns + 4;  // of the sums in shared memory
  static constexpr int kPipeBytes = kStages * kStageBytes;
  static constexpr int kSumBytes = kRows * kPitch * 4;
  static constexpr int kWorkBytes = kPipeBytes > kSumBytes ? kPipeBytes : kSumBytes;
  static constexpr int kShared = kWorkBytes + kRows * static_cast<int>(sizeof(RowPlace));
  static constexpr bool kTogether = true;
  using Params = ProductParams;

  // Chunks of 16 bytes change places from row to row, so that the eight rows of a matrix lie in
  // different banks.
  static SIMT_DEVICE int swizzled(int row, int chunk) {
    return row * kDepth + ((chunk ^ ((row >> 1) & 3)) << 4);
  }

  // Where a thread stands along the depth: the channel, and the tap that it belongs to.
  struct Tap {
    int channel;
    int at[3];
    int part;
    SIMT_DEVICE void advance(const Params& p, int channels) {
      channel += channels;
      while (channel >= p.group_channels) {
        channel -= p.group_channels;
        if (++at[2] < p.kernel[2]) continue;
        at[2] = 0;
        if (++at[1] < p.kernel[1]) continue;
        at[1] = 0;
        if (++at[0] < p.kernel[0]) continue;
        at[0] = 0;
        ++part;
      }
    }
  };

  static SIMT_DEVICE void place_rows(const Params& p, RowPlace* places, std::int64_t first) {
    const int matrix = simt::block_z() / p.groups;
    for (int row = simt::thread(); row < kRows; row += kThreads) {
      const std::int64_t pixel = first + row;
      RowPlace place = place_of(p, pixel < p.pixels ? pixel : 0, matrix);
      place.real = pixel < p.pixels ? 1 : 0;
      places[row] = place;
    }
  }

  // The input that a tap of a row reads, or null beyond the image.
  static SIMT_DEVICE const std::uint8_t* source(const Params& p, const RowPlace& place,
                                                const Tap& tap, int first_channel) {
    if (place.real == 0 || tap.part >= p.parts) return nullptr;
    const std::int64_t from = source_offset(p, place, tap.at);
    return from < 0 ? nullptr : p.x + from + first_channel + tap.channel;
  }

  static SIMT_DEVICE void run(const Params& p, unsigned char* shared) {
    const int t = simt::thread();
    const int lane = t % 32;
    const int warp = t / 32;
    const int group = simt::block_z() % p.groups;
    const int matrix = simt::block_z() / p.groups;
    const std::int64_t first_pixel = static_cast<std::int64_t>(simt::block_x()) * kRows;
    const int first_column = simt::block_y() * kColumns;
    auto* places = reinterpret_cast<RowPlace*>(shared + kWorkBytes);
    place_rows(p, places, first_pixel);
    simt::sync();

    constexpr int kPieces = kDepth / kPiece;  // of a row
    constexpr int kRowsAtOnce = kThreads / kPieces;
    const int piece = t % kPieces;
    Tap tap{0, {0, 0, 0}, 0};
    tap.advance(p, piece * kPiece);
    const int padded_columns = (p.columns + kColumns - 1) / kColumns * kColumns;
    const std::uint8_t* const pad = pad_of(p);
    const std::int8_t* const weights =
        p.w + matrix * p.matrix_w +
        (static_cast<std::int64_t>(group) * padded_columns + first_column) * p.depth;
    const int steps = p.depth / kDepth;
    const auto load = [&](int step, int stage) {
      unsigned char* a = shared + stage * kStageBytes;
      unsigned char* b = a + kRows * kDepth;
      for (int row = t / kPieces; row < kRows; row += kRowsAtOnce) {
        const std::uint8_t* from = source(p, places[row], tap, group * p.group_channels);
        if (from == nullptr) from = pad;
        unsigned char* to = a + swizzled(row, piece * kPiece / 16) + piece * kPiece % 16;
        if constexpr (kPiece == 1) {
          *to = *from;
        } else {
          simt::copy_async<kPiece>(to, from);
        }
      }
      for (int i = t; i < kColumns * 4; i += kThreads) {
        simt::copy_async<16>(
            b + swizzled(i / 4, i % 4),
            weights + static_cast<std::int64_t>(i / 4) * p.depth + step * kDepth + i % 4 * 16);
      }
      tap.advance(p, kDepth);
    };

    std::int32_t sums[2][4][4] = {};
    for (int i = 0; i < kStages - 1; ++i) {
      if (i < steps) load(i, i);
      simt::commit();
    }
    const int warp_row = warp % 2 * 32;
    const int warp_column = warp / 2 * 32;
    for (int step = 0; step < steps; ++step) {
      simt::wait<kStages - 2>();
      simt::sync();
      if (step + kStages - 1 < steps) load(step + kStages - 1, (step + kStages - 1) % kStages);
      simt::commit();
      const unsigned char* a = shared + step % kStages * kStageBytes;
      const unsigned char* b = a + kRows * kDepth;
      for (int half = 0; half < 2; ++half) {
        std::uint32_t left[2][4];
        std::uint32_t right[4][2];
        for (int i = 0; i < 2; ++i) {
          simt::load_matrix_x4(left[i],
                               a + swizzled(warp_row + i * 16 + lane % 16, half * 2 + lane / 16));
        }
        for (int j = 0; j < 2; ++j) {
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
    simt::wait<0>();
    simt::sync();
    store(p, shared, sums, warp_row, warp_column, lane);
  }

  // The sums go through shared memory, so that neighbours in memory are written by neighbours.
  static SIMT_DEVICE void store(const Params& p, unsigned char* shared,
                                const std::int32_t (&sums)[2][4][4], int warp_row, int warp_column,
                                int lane) {
    auto* all = reinterpret_cast<std::int32_t*>(shared);
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < 4; ++j) {
        for (int e = 0; e < 4; ++e) {
          const int row = warp_row + i * 16 + lane / 4 + e / 2 * 8;
          all[row * kPitch + warp_column + j * 8 + lane % 4 * 2 + e % 2] = sums[i][j][e];
        }
      }
    }
    simt::sync();
    const std::int64_t first_pixel = static_cast<std::int64_t>(simt::block_x()) * kRows;
    const int first_column = simt::block_y() * kColumns;
    const int first_channel = simt::block_z() % p.groups * p.columns;
    if (ends_by_column(p.end)) {
      return store_columns(p, all, first_pixel, first_column, first_channel);
    }
    for (int i = simt::thread(); i < kRows * kColumns; i += kThreads) {
      const int row = i / kColumns;
      const int column = first_column + i % kColumns;
      const std::int64_t pixel = first_pixel + row;
      if (pixel >= p.pixels || column >= p.columns) continue;
      store_sum(p, all[row * kPitch + i % kColumns], simt::block_z() / p.groups, pixel,
                first_channel + column);
    }
  }

  // A thread has four columns, and goes from row to row.
  static SIMT_DEVICE void store_columns(const Params& p, const std::int32_t* all,
                                        std::int64_t first_pixel, int first_column,
                                        int first_channel) {
    constexpr int kThreadsOfRow = kColumns / 4;
    const int begin = simt::thread() % kThreadsOfRow * 4;
    const int left = p.columns - first_column - begin;
    if (left <= 0) return;
    const int count = left < 4 ? left : 4;
    const int channel = first_channel + first_column + begin;
    ColumnEnd columns[4];
    for (int e = 0; e < 4; ++e) {
      if (e < count) columns[e] = column_end(p, channel + e);
    }
    const bool fours = has_fours(p) && p.columns % 4 == 0;
    for (int row = simt::thread() / kThreadsOfRow; row < kRows; row += kThreads / kThreadsOfRow) {
      const std::int64_t pixel = first_pixel + row;
      if (pixel >= p.pixels) return;
      const std::int32_t* sums = all + row * kPitch + begin;
      const std::int64_t at = pixel * p.groups * p.columns + channel;
      if (fours) {
        store_four(p, sums, columns, at);
        continue;
      }
      for (int e = 0; e < 4; ++e) {
        if (e < count) store_sum(p, sums[e], columns[e], at + e);
      }
    }
  }
};

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void multiply_codes(Device device, const ProductParams& params) {
  if (MultiplyDepthwise::takes(params)) {
    constexpr int kChannels = MultiplyDepthwise::kChannels;
    constexpr int kPixels = MultiplyDepthwise::kPixels;
    const simt::Grid grid{(params.pixels + kPixels - 1) / kPixels,
                          (params.groups + kChannels - 1) / kChannels, 1};
    return simt::launch<MultiplyDepthwise>(device, grid, params);
  }
  constexpr int kFew = 4;
  if (params.columns <= kFew && params.group_channels <= kFew) {
    const std::int64_t sums = params.pixels * params.groups * params.columns;
    simt::Grid grid = simt::grid_for(sums);
    grid.z = params.matrices;
    return simt::launch<MultiplyFew>(device, grid, params);
  }
  const simt::Grid grid{(params.pixels + ProductParams::kRows - 1) / ProductParams::kRows,
                        (params.columns + ProductParams::kColumns - 1) / ProductParams::kColumns,
                        params.groups * params.matrices};
  switch (params.piece) {
    case 16:
      return simt::launch<MultiplyCodes<16>>(device, grid, params);
    case 8:
      return simt::launch<MultiplyCodes<8>>(device, grid, params);
    case 4:
      return simt::launch<MultiplyCodes<4>>(device, grid, params);
    default:
      return simt::launch<MultiplyCodes<1>>(device, grid, params);
  }
}

void sum_windows(Device device, const ProductParams& params) {
  simt::Grid grid = simt::grid_for(params.pixels * params.groups, SumWindows::kRows);
  grid.z = params.matrices;
  simt::launch<SumWindows>(device, grid, params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
