#include "quanta/ops/cuda/few_products.h"

#include <algorithm>

#include "quanta/ops/cuda/column_ends.h"
#include "quanta/ops/cuda/product_places.h"
#include "quanta/runtime/cuda/driver.h"
#include "quanta/runtime/cuda/simt.h"
#include "quanta/runtime/detail/ceil_div.h"

namespace quanta::cuda {
namespace {

struct StripParams {
  ProductParams product;
  std::int64_t strips = 0;  // of all images
  int strips_of_row = 0;
  int each = 1;  // that a thread has, one after the other
};

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
    const int padded_columns = round_up(p.columns, ProductParams::kColumns);
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
            const std::int64_t from = source_offset(p, place, tap, tap_offset(p, tap));
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
            const std::int64_t from = source_offset(p, place, tap, tap_offset(p, tap));
            const std::uint32_t x =
                from < 0 ? beyond : simt::load<std::uint32_t>(p.x + from + channel);
            const auto w = simt::load<std::uint32_t>(weights);
            for (int e = 0; e < 4; ++e) {
              sums[e] = simt::dot_u8s8(x & (0xFFU << (8 * e)), w, sums[e]);
            }
          }
        }
      }
      AnyEnd::store_four(p, sums, columns, pixel * p.groups + channel);
    }
  }
};

// The same with a square kernel over two dimensions: a thread has four channels of kStrip pixels
// beside each other, for which it reads each input pixel once for each row of taps. Neighbours have
// neighbouring channels.
template <int kKernel, int kStride>
struct MultiplyStrips {
  static constexpr const char* kName = "multiply_depthwise_strips";
  static constexpr int kBlocks = 2;
  static constexpr int kThreads = 256;
  static constexpr int kStrip = 4;
  static constexpr int kWords = (kStrip - 1) * kStride + kKernel;  // of an input row
  static constexpr int kTaps = kKernel * kKernel;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = StripParams;

  static bool takes(const ProductParams& p) {
    return MultiplyDepthwise::takes(p) && p.end == ProductEnd::Codes && !p.transposed &&
           p.in[0] == 1 && p.out[0] == 1 && p.kernel[0] == 1 && p.padding[0] == 0 &&
           p.kernel[1] == kKernel && p.kernel[2] == kKernel && p.stride[1] == kStride &&
           p.stride[2] == kStride && p.dilation[1] == 1 && p.dilation[2] == 1;
  }

  static void launch(Device device, const ProductParams& product) {
    StripParams params{product};
    params.strips_of_row = (product.out[2] + kStrip - 1) / kStrip;
    params.strips = product.pixels / product.out[2] * params.strips_of_row;
    // What a thread reads first pays for several strips, once all multiprocessors have work.
    constexpr std::int64_t kMostEach = 8;
    const std::int64_t enough = std::int64_t{4096} * driver(device).multiprocessors();
    const std::int64_t quads = product.groups / 4;
    params.each =
        static_cast<int>(std::clamp<std::int64_t>(params.strips * quads / enough, 1, kMostEach));
    const std::int64_t slots = (params.strips + params.each - 1) / params.each;
    simt::launch<MultiplyStrips>(device, simt::grid_for(slots * quads, kThreads), params);
  }

  static SIMT_DEVICE void run(const Params& params, unsigned char*) {
    const ProductParams& p = params.product;
    const int quads = p.groups / 4;
    const std::int64_t slot = simt::quotient(simt::global_thread(), quads);
    const int channel = static_cast<int>(simt::global_thread() - slot * quads) * 4;
    const std::int64_t first = slot * params.each;
    if (first >= params.strips) return;
    ColumnEnd columns[4];
    SIMT_UNROLL
    for (int e = 0; e < 4; ++e) columns[e] = column_end(p, channel + e);
    std::uint32_t weights[kTaps];
    read_weights(p, channel, weights);
    for (std::int64_t strip = first; strip < first + params.each && strip < params.strips;
         ++strip) {
      run_strip(params, strip, channel, weights, columns);
    }
  }

  // A word for each tap, with a byte for each channel.
  static SIMT_DEVICE void read_weights(const ProductParams& p, int channel,
                                       std::uint32_t (&weights)[kTaps]) {
    SIMT_UNROLL
    for (int i = 0; i < kTaps; ++i) weights[i] = 0;
    SIMT_UNROLL
    for (int e = 0; e < 4; ++e) {
      const std::int8_t* const row =
          p.w + static_cast<std::int64_t>(channel + e) * MultiplyDepthwise::kGroupRows;
      SIMT_UNROLL
      for (int first = 0; first < kTaps; first += 4) {
        const auto word = simt::load<std::uint32_t>(row + first);
        SIMT_UNROLL
        for (int i = first; i < first + 4 && i < kTaps; ++i) {
          weights[i] |= (word >> (8 * (i - first)) & 255U) << (8 * e);
        }
      }
    }
  }

  static SIMT_DEVICE void run_strip(const Params& params, std::int64_t strip, int channel,
                                    const std::uint32_t (&weights)[kTaps],
                                    const ColumnEnd (&columns)[4]) {
    const ProductParams& p = params.product;
    const std::int64_t out_row = simt::quotient(strip, params.strips_of_row);
    const int first_x = static_cast<int>(strip - out_row * params.strips_of_row) * kStrip;
    const std::int64_t image = simt::quotient(out_row, p.out[1]);
    const int first_row = static_cast<int>(out_row - image * p.out[1]) * kStride - p.padding[1];
    const int first_column = first_x * kStride - p.padding[2];
    const std::uint32_t beyond = pad_of(p)[0] * 0x01010101U;
    std::int32_t sums[kStrip][4] = {};
    SIMT_UNROLL
    for (int y = 0; y < kKernel; ++y) {
      const bool is_row = is_within(first_row + y, p.in[1]);
      const std::uint8_t* row = p.x + channel;
      if (is_row) row += offset_of(p, image, first_row + y, 0);
      SIMT_UNROLL
      for (int i = 0; i < kWords; ++i) {
        std::uint32_t x = beyond;
        if (is_row && is_within(first_column + i, p.in[2])) {
          x = simt::load<std::uint32_t>(row + std::int64_t{first_column + i} * p.channels);
        }
        SIMT_UNROLL
        for (int e = 0; e < 4; ++e) {
          const std::uint32_t one = x & (0xFFU << (8 * e));
          SIMT_UNROLL
          for (int o = 0; o < kStrip; ++o) {
            const int tap = i - o * kStride;
            if (tap < 0 || tap >= kKernel) continue;
            sums[o][e] = simt::dot_u8s8(one, weights[y * kKernel + tap], sums[o][e]);
          }
        }
      }
    }
    SIMT_UNROLL
    for (int o = 0; o < kStrip; ++o) {
      if (first_x + o >= p.out[2]) break;
      CodesEnd::store_four(p, sums[o], columns,
                           (out_row * p.out[2] + first_x + o) * p.groups + channel);
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
          const std::int64_t from = source_offset(p, place, tap, tap_offset(p, tap));
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

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void multiply_few_codes(Device device, const ProductParams& params) {
  if (MultiplyStrips<3, 1>::takes(params)) return MultiplyStrips<3, 1>::launch(device, params);
  if (MultiplyStrips<3, 2>::takes(params)) return MultiplyStrips<3, 2>::launch(device, params);
  if (MultiplyStrips<5, 1>::takes(params)) return MultiplyStrips<5, 1>::launch(device, params);
  if (MultiplyStrips<5, 2>::takes(params)) return MultiplyStrips<5, 2>::launch(device, params);
  if (MultiplyDepthwise::takes(params)) {
    constexpr int kChannels = MultiplyDepthwise::kChannels;
    constexpr int kPixels = MultiplyDepthwise::kPixels;
    const simt::Grid grid{(params.pixels + kPixels - 1) / kPixels,
                          (params.groups + kChannels - 1) / kChannels, 1};
    return simt::launch<MultiplyDepthwise>(device, grid, params);
  }
  simt::Grid grid = simt::grid_for(params.pixels * params.groups * params.columns);
  grid.z = params.matrices;
  simt::launch<MultiplyFew>(device, grid, params);
}

void sum_windows(Device device, const ProductParams& params) {
  simt::Grid grid = simt::grid_for(params.pixels * params.groups, SumWindows::kRows);
  grid.z = params.matrices;
  simt::launch<SumWindows>(device, grid, params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
