// Private: the sums of a depthwise convolution, inside Highway's foreach_target (hence the guard
// that toggles).
//
// An output line is done in two steps for each vector of channels. First the bytes of the input
// lines under the kernel are interleaved, so that the rows of one column lie next to each other and
// border columns hold the zero point. Then each output is a sum over kernel columns, in which one
// instruction multiplies two rows (as int16) or four (VNNI). Interleaving is paid once for all
// kernel columns, and where the last group of rows has room, for two output lines.

#if defined(QUANTA_OPS_CPU_DEPTHWISE_LINES_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUANTA_OPS_CPU_DEPTHWISE_LINES_H_
#undef QUANTA_OPS_CPU_DEPTHWISE_LINES_H_
#else
#define QUANTA_OPS_CPU_DEPTHWISE_LINES_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "quanta/ops/conv/cpu_depthwise_call.h"
#include "quanta/ops/cpu/simd/requantize_simd.h"
#include "quanta/ops/cpu/simd/vnni_simd.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
#if QUANTA_VECTORS

/// Rows that one instruction multiplies.
enum class Rows : int { Pair = 2, Quad = 4 };

/// A part of an output line.
struct LineShape {
  std::int64_t width;    ///< of the input
  std::int64_t first;    ///< input column of interleaved column 0; below 0 in the padding
  std::int64_t columns;  ///< interleaved, padding included
  std::int64_t groups;   ///< of rows
  std::int64_t outputs, kernel_width, stride, dilation;
};

/// The four vectors of a column: bytes of the rows next to each other for each channel.
template <Rows kRows, std::size_t kBytes>
HWY_INLINE void interleave_column(const InputLine* lines, std::int64_t x, std::uint8_t* dst) {
  const Bytes<kBytes> db;
  const hn::FixedTag<std::uint16_t, kBytes / 2> dw;
  const auto row0 = hn::LoadU(db, lines[0].data + x * lines[0].step);
  const auto row1 = hn::LoadU(db, lines[1].data + x * lines[1].step);
  const auto low01 = hn::BitCast(dw, hn::InterleaveLower(db, row0, row1));
  const auto high01 = hn::BitCast(dw, hn::InterleaveUpper(db, row0, row1));
  const auto store = [&](std::size_t part, auto vector) QUANTA_INLINED {
    hn::Store(hn::BitCast(db, vector), db, dst + part * kBytes);
  };
  if constexpr (kRows == Rows::Quad) {
    const auto row2 = hn::LoadU(db, lines[2].data + x * lines[2].step);
    const auto row3 = hn::LoadU(db, lines[3].data + x * lines[3].step);
    const auto low23 = hn::BitCast(dw, hn::InterleaveLower(db, row2, row3));
    const auto high23 = hn::BitCast(dw, hn::InterleaveUpper(db, row2, row3));
    store(0, hn::InterleaveLower(dw, low01, low23));
    store(1, hn::InterleaveUpper(dw, low01, low23));
    store(2, hn::InterleaveLower(dw, high01, high23));
    store(3, hn::InterleaveUpper(dw, high01, high23));
  } else {
    const auto zero = hn::Zero(db);
    const auto low = hn::BitCast(db, low01);
    const auto high = hn::BitCast(db, high01);
    store(0, hn::InterleaveLower(db, low, zero));
    store(1, hn::InterleaveUpper(db, low, zero));
    store(2, hn::InterleaveLower(db, high, zero));
    store(3, hn::InterleaveUpper(db, high, zero));
  }
}

/// dst: [columns][groups][4][kBytes]
template <Rows kRows, std::size_t kBytes>
HWY_NOINLINE void interleave_lines(const LineShape& shape, const InputLine* lines,
                                   const std::uint8_t* padding, std::uint8_t* dst) {
  constexpr auto kGroup = static_cast<std::int64_t>(kRows);
  constexpr auto kStep = static_cast<std::int64_t>(4 * kBytes);
  const std::int64_t column = shape.groups * kStep;
  const std::int64_t left = std::clamp<std::int64_t>(-shape.first, 0, shape.columns);
  const std::int64_t right =
      std::clamp<std::int64_t>(shape.width - shape.first, left, shape.columns);
  const InputLine outside[4] = {{padding, 0}, {padding, 0}, {padding, 0}, {padding, 0}};
  for (std::int64_t g = 0; g < shape.groups; ++g) {
    std::uint8_t* out = dst + g * kStep;
    for (std::int64_t x = 0; x < left; ++x) {
      interleave_column<kRows, kBytes>(outside, 0, out + x * column);
    }
    for (std::int64_t x = left; x < right; ++x) {
      interleave_column<kRows, kBytes>(lines + g * kGroup, x + shape.first, out + x * column);
    }
    for (std::int64_t x = right; x < shape.columns; ++x) {
      interleave_column<kRows, kBytes>(outside, 0, out + x * column);
    }
  }
}

/// Weights and parameters of the vector's channels; each follows from quad to quad at its stride.
struct LineWeights {
  const std::uint8_t* weight;  ///< strides in bytes
  std::int64_t quad_stride, tap_stride, copy_stride;
  const std::int32_t* offset;  ///< what sums start from
  const float* bias;
  const float* multiplier;
  std::int64_t parameter_stride;
};

template <Rows kRows, std::size_t kBytes>
HWY_INLINE hn::Vec<Ints<kBytes>> add_rows(hn::Vec<Ints<kBytes>> sum, hn::Vec<Bytes<kBytes>> x,
                                          hn::Vec<Bytes<kBytes>> weight) {
  if constexpr (kRows == Rows::Quad) {
    return add_byte_products(sum, x, weight);
  } else {
    const Words<kBytes> dw;
    auto unused = hn::Zero(Ints<kBytes>());
    return hn::ReorderWidenMulAccumulate(Ints<kBytes>(), hn::BitCast(dw, x),
                                         hn::BitCast(dw, weight), sum, unused);
  }
}

/// kOutputs neighbouring outputs of kLines lines. kWidth and kStride are those of the shape, or 0
/// where they are known at run time only.
template <Rows kRows, std::size_t kBytes, int kLines, int kOutputs, int kWidth, int kStride>
HWY_INLINE void sum_outputs(const LineShape& shape, const LineWeights& weights,
                            const std::uint8_t* input, const Requantizer<kBytes>& requantizer,
                            hn::Vec<Bytes<kBytes>> (&codes)[kLines][kOutputs]) {
  const Bytes<kBytes> db;
  constexpr auto kPart = static_cast<std::int64_t>(kBytes);
  const std::int64_t column = shape.groups * 4 * kPart;
  const std::int64_t output_step = (kStride != 0 ? kStride : shape.stride) * column;
  const std::int64_t tap_step = (kWidth != 0 ? 1 : shape.dilation) * column;
  const std::int64_t width = kWidth != 0 ? kWidth : shape.kernel_width;
  hn::Vec<Ints<kBytes>> results[kLines][kOutputs][4];
#pragma GCC unroll 4
  for (std::int64_t quad = 0; quad < 4; ++quad) {
    hn::Vec<Ints<kBytes>> acc[kLines][kOutputs];
    const std::int64_t parameter = quad * weights.parameter_stride;
    const auto offset = hn::LoadU(Ints<kBytes>(), weights.offset + parameter);
#pragma GCC unroll 2
    for (int line = 0; line < kLines; ++line) {
#pragma GCC unroll 8
      for (int o = 0; o < kOutputs; ++o) acc[line][o] = offset;
    }
    const std::uint8_t* weight = weights.weight + quad * weights.quad_stride;
    const std::uint8_t* part = input + quad * kPart;
    for (std::int64_t g = 0; g < shape.groups; ++g) {
#pragma GCC unroll 5
      for (std::int64_t k = 0; k < width; ++k) {
        hn::Vec<Bytes<kBytes>> w[kLines];
#pragma GCC unroll 2
        for (int line = 0; line < kLines; ++line) {
          w[line] = hn::LoadU(db, weight + k * weights.tap_stride + line * weights.copy_stride);
        }
#pragma GCC unroll 8
        for (int o = 0; o < kOutputs; ++o) {
          const auto x = hn::Load(db, part + k * tap_step + o * output_step);
#pragma GCC unroll 2
          for (int line = 0; line < kLines; ++line) {
            acc[line][o] = add_rows<kRows, kBytes>(acc[line][o], x, w[line]);
          }
        }
      }
      weight += width * weights.tap_stride;
      part += 4 * kPart;
    }
    const auto bias = hn::LoadU(Floats<kBytes>(), weights.bias + parameter);
    const auto multiplier = hn::LoadU(Floats<kBytes>(), weights.multiplier + parameter);
#pragma GCC unroll 2
    for (int line = 0; line < kLines; ++line) {
#pragma GCC unroll 8
      for (int o = 0; o < kOutputs; ++o) {
        results[line][o][quad] = requantizer.scaled(acc[line][o], bias, multiplier);
      }
    }
  }
#pragma GCC unroll 2
  for (int line = 0; line < kLines; ++line) {
#pragma GCC unroll 8
    for (int o = 0; o < kOutputs; ++o) {
      const auto& r = results[line][o];
      codes[line][o] = requantizer.codes(r[0], r[1], r[2], r[3]);
    }
  }
}

/// Where codes go: `count` channels (at most kBytes) of output x of a line.
struct OutputLines {
  std::uint8_t* data;
  std::int64_t step, line_step;
  std::int64_t count;
};

template <Rows kRows, std::size_t kBytes, int kLines, int kOutputs, int kWidth, int kStride>
HWY_INLINE void write_outputs(const LineShape& shape, const LineWeights& weights,
                              const std::uint8_t* interleaved, std::int64_t x,
                              const Requantizer<kBytes>& requantizer, const OutputLines& out) {
  const Bytes<kBytes> db;
  const std::int64_t column = shape.groups * static_cast<std::int64_t>(4 * kBytes);
  hn::Vec<Bytes<kBytes>> codes[kLines][kOutputs];
  sum_outputs<kRows, kBytes, kLines, kOutputs, kWidth, kStride>(
      shape, weights, interleaved + x * shape.stride * column, requantizer, codes);
#pragma GCC unroll 2
  for (int line = 0; line < kLines; ++line) {
#pragma GCC unroll 8
    for (int o = 0; o < kOutputs; ++o) {
      std::uint8_t* dst = out.data + line * out.line_step + (x + o) * out.step;
      if (out.count == static_cast<std::int64_t>(kBytes)) {
        hn::StoreU(codes[line][o], db, dst);
      } else {
        alignas(64) std::uint8_t all[kBytes];
        hn::Store(codes[line][o], db, all);
        std::memcpy(dst, all, static_cast<std::size_t>(out.count));
      }
    }
  }
}

/// All outputs, kOutputs at a time; the last ones may be done twice. There are at least kOutputs.
template <Rows kRows, std::size_t kBytes, int kLines, int kOutputs, int kWidth, int kStride>
HWY_INLINE void write_all(const LineShape& shape, const LineWeights& weights,
                          const std::uint8_t* interleaved, const Requantizer<kBytes>& requantizer,
                          const OutputLines& out) {
  for (std::int64_t x = 0; x < shape.outputs; x += kOutputs) {
    const std::int64_t first = std::min<std::int64_t>(x, shape.outputs - kOutputs);
    write_outputs<kRows, kBytes, kLines, kOutputs, kWidth, kStride>(shape, weights, interleaved,
                                                                    first, requantizer, out);
  }
}

template <Rows kRows, std::size_t kBytes, int kLines, int kWidth, int kStride>
HWY_NOINLINE void sum_lines(const LineShape& shape, const LineWeights& weights,
                            const std::uint8_t* interleaved, const RequantizeParams& params,
                            const OutputLines& out) {
  const Requantizer<kBytes> requantizer(params);
  if constexpr (kRows == Rows::Quad) {
    // Enough registers; 7 divides the widths that images of 224 lead to.
    if (shape.outputs >= 7) {
      return write_all<kRows, kBytes, kLines, 7, kWidth, kStride>(shape, weights, interleaved,
                                                                  requantizer, out);
    }
  }
  if (shape.outputs >= 4) {
    return write_all<kRows, kBytes, kLines, 4, kWidth, kStride>(shape, weights, interleaved,
                                                                requantizer, out);
  }
  write_all<kRows, kBytes, kLines, 1, kWidth, kStride>(shape, weights, interleaved, requantizer,
                                                       out);
}

#endif  // QUANTA_VECTORS
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
