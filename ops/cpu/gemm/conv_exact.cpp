#include "quanta/ops/cpu/gemm/conv_exact.h"

#include "quanta/ops/cpu/simd/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/cpu/gemm/conv_exact.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "quanta/ops/cpu/gemm/int16_gemm.h"
#include "quanta/ops/cpu/simd/requantize_simd.h"
#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/parallel.h"

#ifndef QUANTA_OPS_CPU_CONV_EXACT_CPP_
#define QUANTA_OPS_CPU_CONV_EXACT_CPP_
namespace quanta::cpu {
namespace {

/// What a phase of a call works on.
struct PhaseCall {
  const std::uint8_t* src;
  std::int32_t src_zero_point;
  const ConvShape& shape;
  const ExactPhase& phase;
  const std::int16_t* panels;
  std::int64_t counts[3];  ///< output positions of the phase
  const RequantizeParams* requantize;
  std::uint8_t* dst_u8;  ///< null: dst_s32
  std::int32_t* dst_s32;

  /// Results lie in the order of the rows.
  bool in_order() const {
    return std::all_of(std::begin(phase.dims), std::end(phase.dims),
                       [](const ExactDim& dim) { return dim.first == 0 && dim.out_step == 1; });
  }
  /// The rows are the input, pixel after pixel.
  bool is_pointwise() const {
    const auto is_point = [](const ExactDim& dim) {
      return dim.taps.size() == 1 && dim.taps[0].offset == 0 && dim.in_step == 1;
    };
    return shape.groups == 1 && phase.inner % 2 == 0 && in_order() &&
           std::all_of(std::begin(phase.dims), std::end(phase.dims), is_point) &&
           std::equal(std::begin(counts), std::end(counts), std::begin(shape.in));
  }
};

/// Rows (output positions) and panels of one piece of work.
struct Tile {
  std::int64_t row_begin, rows;
  std::int64_t panel_begin, panel_end;  ///< of each group
};

/// Memory of one thread, kept between calls.
struct Scratch {
  AlignedVector<std::int16_t> rows;
  AlignedVector<std::int32_t> sums;
};

/// The last strip of rows may be incomplete; all of it is read and written. The most rows of a
/// strip, less one.
constexpr std::int64_t kRowSlack = 12;

}  // namespace
}  // namespace quanta::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {

#if QUANTA_VECTORS
/// Whole vectors of kCount elements, the last one moved back to end at `count`.
template <std::size_t kCount>
HWY_INLINE void widen_vectors(const std::uint8_t* src, std::int64_t count, std::int32_t zero_point,
                              std::int16_t* dst) {
  const hn::FixedTag<std::int16_t, kCount> dw;
  const hn::FixedTag<std::uint8_t, kCount> db;
  constexpr auto kStep = static_cast<std::int64_t>(kCount);
  const auto zero = hn::Set(dw, static_cast<std::int16_t>(zero_point));
  std::int64_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    hn::StoreU(hn::Sub(hn::PromoteTo(dw, hn::LoadU(db, src + i)), zero), dw, dst + i);
  }
  if (i == count) return;
  i = count - kStep;
  hn::StoreU(hn::Sub(hn::PromoteTo(dw, hn::LoadU(db, src + i)), zero), dw, dst + i);
}
#endif

/// dst[i] = src[i] - zero_point
HWY_INLINE void widen(const std::uint8_t* src, std::int64_t count, std::int32_t zero_point,
                      std::int16_t* dst) {
#if QUANTA_VECTORS
  constexpr std::size_t kFull = kVectorBytes / 2;
  if (count >= static_cast<std::int64_t>(kFull)) {
    return widen_vectors<kFull>(src, count, zero_point, dst);
  }
  if (count >= 16) return widen_vectors<16>(src, count, zero_point, dst);
  if (count >= 8) return widen_vectors<8>(src, count, zero_point, dst);
#endif
  for (std::int64_t i = 0; i < count; ++i) {
    dst[i] = static_cast<std::int16_t>(src[i] - zero_point);
  }
}

/// The centred input elements under one row of the kernel; returns their end. `line` is the input
/// line, `first` the input position of offset 0.
HWY_INLINE std::int16_t* gather_line(const PhaseCall& call, const std::uint8_t* line,
                                     std::int64_t first, std::int64_t group, std::int16_t* row) {
  const ConvShape& shape = call.shape;
  const auto& taps = call.phase.dims[2].taps;
  const auto tap_count = static_cast<std::int64_t>(taps.size());
  const std::int64_t channels = shape.in_channels;
  const std::int64_t width = shape.in[2];
  if (shape.groups == 1 && call.phase.adjacent && tap_count > 0) {
    const std::int64_t left = first + taps.front().offset;
    const std::int64_t begin = std::clamp<std::int64_t>(-left, 0, tap_count);
    const std::int64_t end = std::clamp<std::int64_t>(width - left, begin, tap_count);
    std::fill_n(row, begin * channels, std::int16_t{0});
    if (end > begin) {
      widen(line + (left + begin) * channels, (end - begin) * channels, call.src_zero_point,
            row + begin * channels);
    }
    std::fill_n(row + end * channels, (tap_count - end) * channels, std::int16_t{0});
    return row + tap_count * channels;
  }
  const std::int64_t in_group = channels / shape.groups;
  for (const ExactDim::Tap& tap : taps) {
    const std::int64_t position = first + tap.offset;
    if (position >= 0 && position < width) {
      widen(line + position * channels + group * in_group, in_group, call.src_zero_point, row);
    } else {
      std::fill_n(row, in_group, std::int16_t{0});
    }
    row += in_group;
  }
  return row;
}

/// A walk through the output positions of a phase.
struct Position {
  std::int64_t image, at[3];

  Position(const PhaseCall& call, std::int64_t row) {
    for (int dim = 2; dim >= 0; --dim) {
      at[dim] = row % call.counts[dim];
      row /= call.counts[dim];
    }
    image = row;
  }
  void advance(const PhaseCall& call) {
    for (int dim = 2; dim >= 0; --dim) {
      if (++at[dim] < call.counts[dim]) return;
      at[dim] = 0;
    }
    ++image;
  }
  /// Index of the output position among all.
  std::int64_t out_index(const PhaseCall& call) const {
    std::int64_t index = image;
    for (int dim = 0; dim < 3; ++dim) {
      const ExactDim& plan = call.phase.dims[dim];
      index = index * call.shape.out[dim] + plan.first + at[dim] * plan.out_step;
    }
    return index;
  }
};

/// A row of the matrix: everything one output position of a group is computed from.
void gather_row(const PhaseCall& call, const Position& position, std::int64_t group,
                std::int16_t* row) {
  const ConvShape& shape = call.shape;
  const ExactDim& depth = call.phase.dims[0];
  const ExactDim& height = call.phase.dims[1];
  const std::int64_t line_size = shape.in[2] * shape.in_channels;
  const auto tap_count = static_cast<std::int64_t>(call.phase.dims[2].taps.size());
  const std::int64_t run = tap_count * (shape.in_channels / shape.groups);
  const std::int64_t first = position.at[2] * call.phase.dims[2].in_step;
  for (const ExactDim::Tap& tap_d : depth.taps) {
    const std::int64_t d = position.at[0] * depth.in_step + tap_d.offset;
    for (const ExactDim::Tap& tap_h : height.taps) {
      const std::int64_t h = position.at[1] * height.in_step + tap_h.offset;
      if (d < 0 || d >= shape.in[0] || h < 0 || h >= shape.in[1]) {
        std::fill_n(row, run, std::int16_t{0});
        row += run;
        continue;
      }
      const std::int64_t line = (position.image * shape.in[0] + d) * shape.in[1] + h;
      row = gather_line(call, call.src + line * line_size, first, group, row);
    }
  }
  if (call.phase.inner % 2 != 0) *row = 0;
}

/// Where the results of a tile's rows lie among all.
class Places {
 public:
  Places(const PhaseCall& call, const Tile& tile)
      : call_(call),
        position_(call, tile.row_begin),
        row_(tile.row_begin),
        in_order_(call.in_order()) {}
  /// That of the next row.
  std::int64_t next() {
    if (in_order_) return row_++;
    const std::int64_t place = position_.out_index(call_);
    position_.advance(call_);
    return place;
  }

 private:
  const PhaseCall& call_;
  Position position_;
  std::int64_t row_;
  bool in_order_;
};

#if QUANTA_VECTORS
/// The codes of a panel's first `count` channels, for all rows of a tile: two rows at a time, with
/// bias and multiplier in registers.
void write_panel(const PhaseCall& call, const Tile& tile, const std::int32_t* sums,
                 std::int64_t sums_stride, std::int64_t channel, std::int64_t count) {
  constexpr std::size_t kBytes = 2 * kPanel;
  const Ints<kBytes> di;
  const Floats<kBytes> df;
  const hn::FixedTag<std::uint8_t, kPanel> half;
  constexpr std::int64_t kHalf = kPanel / 2;
  const Requantizer<kBytes> requantizer(*call.requantize);
  alignas(64) float bias[kPanel] = {};
  alignas(64) float multiplier[kPanel] = {};
  if (call.requantize->bias != nullptr) std::copy_n(call.requantize->bias + channel, count, bias);
  std::copy_n(call.requantize->multiplier + channel, count, multiplier);
  const auto bias_low = hn::Load(df, bias), bias_high = hn::Load(df, bias + kHalf);
  const auto times_low = hn::Load(df, multiplier), times_high = hn::Load(df, multiplier + kHalf);
  const auto scaled = [&](const std::int32_t* acc, bool high) {
    return high ? requantizer.scaled(hn::LoadU(di, acc + kHalf), bias_high, times_high)
                : requantizer.scaled(hn::LoadU(di, acc), bias_low, times_low);
  };
  Places places(call, tile);
  const auto store = [&](hn::Vec<decltype(half)> codes) {
    std::uint8_t* dst = call.dst_u8 + places.next() * call.shape.out_channels + channel;
    if (count == kPanel) return hn::StoreU(codes, half, dst);
    alignas(16) std::uint8_t all[kPanel];
    hn::Store(codes, half, all);
    std::memcpy(dst, all, static_cast<std::size_t>(count));
  };
  for (std::int64_t row = 0; row < tile.rows; row += 2) {
    // The last strip of rows is whole: the second row can be read.
    const std::int32_t* acc = sums + row * sums_stride;
    const auto codes = in_order<kBytes>(requantizer.codes(scaled(acc, false), scaled(acc, true),
                                                          scaled(acc + sums_stride, false),
                                                          scaled(acc + sums_stride, true)));
    store(hn::LowerHalf(half, codes));
    if (row + 1 < tile.rows) store(hn::UpperHalf(half, codes));
  }
}
#endif

/// Channels [channel, channel + count) of the rows of a tile.
void write_sums(const PhaseCall& call, const Tile& tile, const std::int32_t* sums,
                std::int64_t sums_stride, std::int64_t channel, std::int64_t count) {
  const bool quantized = call.dst_u8 != nullptr;
#if QUANTA_VECTORS
  if (quantized && kVectorBytes >= 2 * kPanel) {
    for (std::int64_t first = 0; first < count; first += kPanel) {
      write_panel(call, tile, sums + first, sums_stride, channel + first,
                  std::min(kPanel, count - first));
    }
    return;
  }
#endif
  RequantizeSpan span{};
  if (quantized) {
    span.bias = call.requantize->bias != nullptr ? call.requantize->bias + channel : nullptr;
    span.multiplier = call.requantize->multiplier + channel;
  }
  Places places(call, tile);
  for (std::int64_t row = 0; row < tile.rows; ++row) {
    const std::int64_t at = places.next() * call.shape.out_channels + channel;
    span.acc = sums + row * sums_stride;
    if (quantized) {
      requantize_channels(span, count, *call.requantize, call.dst_u8 + at);
    } else {
      std::memcpy(call.dst_s32 + at, span.acc, static_cast<std::size_t>(count) * sizeof(*span.acc));
    }
  }
}

/// All rows of a tile, for one group.
void gather_rows(const PhaseCall& call, const Tile& tile, std::int64_t group, std::int16_t* rows) {
  const std::int64_t row_stride = call.phase.pairs * 2;
  if (call.is_pointwise()) {
    return widen(call.src + tile.row_begin * row_stride, tile.rows * row_stride,
                 call.src_zero_point, rows);
  }
  Position position(call, tile.row_begin);
  for (std::int64_t row = 0; row < tile.rows; ++row, position.advance(call)) {
    gather_row(call, position, group, rows + row * row_stride);
  }
}

void convolve_tile(const PhaseCall& call, const Tile& tile, std::int16_t* rows,
                   std::int32_t* sums) {
  const ConvShape& shape = call.shape;
  const std::int64_t out_group = shape.out_channels / shape.groups;
  const std::int64_t group_panels = ceil_div(out_group, kPanel);
  const std::int64_t row_stride = call.phase.pairs * 2;
  const std::int64_t panel_stride = call.phase.pairs * kPanel * 2;
  const std::int64_t panels = tile.panel_end - tile.panel_begin;
  // Steps of equal width: 6 panels are 3 and 3, not 4 and 2.
  const std::int64_t steps = ceil_div(panels, kMaxPanels);
  for (std::int64_t group = 0; group < shape.groups; ++group) {
    gather_rows(call, tile, group, rows);
    for (std::int64_t step = 0; step < steps; ++step) {
      const std::int64_t begin = tile.panel_begin + panels * step / steps;
      const std::int64_t end = tile.panel_begin + panels * (step + 1) / steps;
      const std::int64_t sums_stride = (end - begin) * kPanel;
      if (call.phase.pairs > 0) {
        const GemmInput input{rows, row_stride,
                              call.panels + (group * group_panels + begin) * panel_stride,
                              panel_stride};
        multiply_panels(input, tile.rows, end - begin, call.phase.pairs, sums);
      } else {
        std::fill_n(sums, tile.rows * sums_stride, 0);
      }
      const std::int64_t count = std::min(end * kPanel, out_group) - begin * kPanel;
      write_sums(call, tile, sums, sums_stride, group * out_group + begin * kPanel, count);
    }
  }
}

}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::cpu {

HWY_EXPORT(convolve_tile);

namespace {

template <typename T>
T* at_least(AlignedVector<T>& memory, std::int64_t count) {
  if (static_cast<std::int64_t>(memory.size()) < count) {
    memory.resize(static_cast<std::size_t>(count));
  }
  return memory.data();
}

/// How a phase is cut into tiles: `splits` ranges of panels times ranges of rows.
struct Tiling {
  std::int64_t tile_rows, row_tiles, splits;
};

Tiling choose_tiling(std::int64_t rows, std::int64_t pairs, std::int64_t panels) {
  // Rows of a tile stay in the L2 cache while all panels pass.
  constexpr std::int64_t kTileBytes = 262144;
  constexpr std::int64_t kMostRows = 192;
  const std::int64_t threads = get_num_threads();
  Tiling tiling{};
  // Few rows and many columns: each thread reads a part of the weights, not all of them.
  tiling.splits = rows < 64 * threads && panels >= 4 * threads ? threads : 1;
  const std::int64_t most =
      std::clamp<std::int64_t>(kTileBytes / std::max<std::int64_t>(pairs * 4, 1), 24, kMostRows);
  const std::int64_t share = tiling.splits > 1 ? 1 : threads;
  const std::int64_t rounds = ceil_div(rows, share * most);
  tiling.tile_rows = ceil_div(rows, share * rounds);
  tiling.row_tiles = ceil_div(rows, tiling.tile_rows);
  return tiling;
}

void convolve_phase(const PhaseCall& call) {
  const ConvShape& shape = call.shape;
  const std::int64_t rows = shape.batch * call.counts[0] * call.counts[1] * call.counts[2];
  if (rows == 0 || shape.out_channels == 0) return;
  constexpr std::int64_t kPanel = ExactWeights::kPanel;
  const std::int64_t panels = ceil_div(shape.out_channels / shape.groups, kPanel);
  const Tiling tiling = choose_tiling(rows, call.phase.pairs, panels);
  const auto run = HWY_DYNAMIC_DISPATCH(convolve_tile);
  parallel_for(tiling.splits * tiling.row_tiles, 1, [&](std::int64_t begin, std::int64_t end) {
    thread_local Scratch scratch;
    constexpr std::int64_t kWidestStep = 4 * kPanel;
    const std::int64_t scratch_rows = tiling.tile_rows + kRowSlack;
    std::int16_t* row_data = at_least(scratch.rows, scratch_rows * call.phase.pairs * 2);
    std::int32_t* sums = at_least(scratch.sums, scratch_rows * kWidestStep);
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t split = item / tiling.row_tiles;
      Tile tile{};
      tile.row_begin = item % tiling.row_tiles * tiling.tile_rows;
      tile.rows = std::min(tiling.tile_rows, rows - tile.row_begin);
      tile.panel_begin = panels * split / tiling.splits;
      tile.panel_end = panels * (split + 1) / tiling.splits;
      run(call, tile, row_data, sums);
    }
  });
}

void convolve(const std::uint8_t* src, std::int32_t src_zero_point, const ExactWeights& weights,
              const ConvShape& shape, const RequantizeParams* requantize, std::uint8_t* dst_u8,
              std::int32_t* dst_s32) {
  for (const ExactPhase& phase : weights.phases) {
    PhaseCall call{.src = src,
                   .src_zero_point = src_zero_point,
                   .shape = shape,
                   .phase = phase,
                   .panels = weights.data.data() + phase.data_begin,
                   .counts = {},
                   .requantize = requantize,
                   .dst_u8 = dst_u8,
                   .dst_s32 = dst_s32};
    for (std::size_t dim = 0; dim < 3; ++dim) {
      const ExactDim& plan = phase.dims[dim];
      call.counts[dim] =
          std::max<std::int64_t>(ceil_div(shape.out[dim] - plan.first, plan.out_step), 0);
    }
    convolve_phase(call);
  }
}

}  // namespace

void conv_exact_u8(const std::uint8_t* src, std::int32_t src_zero_point,
                   const ExactWeights& weights, const ConvShape& shape,
                   const RequantizeParams& requantize, std::uint8_t* dst) {
  convolve(src, src_zero_point, weights, shape, &requantize, dst, nullptr);
}

void conv_exact_s32(const std::uint8_t* src, std::int32_t src_zero_point,
                    const ExactWeights& weights, const ConvShape& shape, std::int32_t* dst) {
  convolve(src, src_zero_point, weights, shape, nullptr, nullptr, dst);
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
