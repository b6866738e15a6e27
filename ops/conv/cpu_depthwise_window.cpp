#include "quanta/ops/conv/cpu_depthwise_call.h"
#include "quanta/ops/cpu/simd/highway.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quanta/ops/conv/cpu_depthwise_window.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

#include "quanta/ops/cpu/simd/requantize_simd.h"

HWY_BEFORE_NAMESPACE();
namespace quanta::cpu::HWY_NAMESPACE {
namespace {
#if QUANTA_AVX512_VBMI

using ByteVector = hn::Vec<Bytes<64>>;
using IntVector = hn::Vec<Ints<64>>;

/// Up to four output lines that are done at once, for the channels of a chunk.
template <int kKernel, int kLines>
struct WindowRows {
  const std::uint8_t* src[kKernel][kLines];
  std::uint8_t* dst[kLines];
};

/// What all lines have in common.
struct WindowTables {
  const std::uint8_t* weights;
  const float* numbers;
  std::int64_t width, outputs, padding;
  std::int64_t channels;
  const std::uint8_t* padding_line;  ///< zero points
};

/// The channels of a pixel: 64 of one line, 32 of two, 16 of four.
template <int kLines>
HWY_INLINE ByteVector load_pixel(const std::uint8_t* const (&rows)[kLines], std::int64_t at) {
  if constexpr (kLines == 1) {
    return hn::LoadU(Bytes<64>(), rows[0] + at);
  } else if constexpr (kLines == 2) {
    const Bytes<32> half;
    return hn::Combine(Bytes<64>(), hn::LoadU(half, rows[1] + at), hn::LoadU(half, rows[0] + at));
  } else {
    __m512i x = _mm512_castsi128_si512(hn::LoadU(Bytes<16>(), rows[0] + at).raw);
    x = _mm512_inserti32x4(x, hn::LoadU(Bytes<16>(), rows[1] + at).raw, 1);
    x = _mm512_inserti32x4(x, hn::LoadU(Bytes<16>(), rows[2] + at).raw, 2);
    x = _mm512_inserti32x4(x, hn::LoadU(Bytes<16>(), rows[3] + at).raw, 3);
    return ByteVector{x};
  }
}

template <int kLines>
HWY_INLINE void store_pixel(ByteVector codes, std::uint8_t* const (&rows)[kLines],
                            std::int64_t at) {
  if constexpr (kLines == 1) {
    hn::StoreU(codes, Bytes<64>(), rows[0] + at);
  } else if constexpr (kLines == 2) {
    const Bytes<32> half;
    hn::StoreU(hn::LowerHalf(half, codes), half, rows[0] + at);
    hn::StoreU(hn::UpperHalf(half, codes), half, rows[1] + at);
  } else {
    const Bytes<16> quarter;
    using Quarter = hn::Vec<Bytes<16>>;
    hn::StoreU(Quarter{_mm512_castsi512_si128(codes.raw)}, quarter, rows[0] + at);
    hn::StoreU(Quarter{_mm512_extracti32x4_epi32(codes.raw, 1)}, quarter, rows[1] + at);
    hn::StoreU(Quarter{_mm512_extracti32x4_epi32(codes.raw, 2)}, quarter, rows[2] + at);
    hn::StoreU(Quarter{_mm512_extracti32x4_epi32(codes.raw, 3)}, quarter, rows[3] + at);
  }
}

/// The bytes of four rows next to each other for each channel.
struct Column {
  ByteVector part[4];
};

template <int kKernel, int kLines>
HWY_INLINE Column first_rows(const WindowRows<kKernel, kLines>& rows, std::int64_t at) {
  const Bytes<64> db;
  const hn::RepartitionToWide<Bytes<64>> dw;
  const auto row0 = load_pixel<kLines>(rows.src[0], at);
  const auto row1 = load_pixel<kLines>(rows.src[1], at);
  const auto row2 = load_pixel<kLines>(rows.src[2], at);
  // The weights of a fourth row that is not there are 0.
  const auto row3 = kKernel == 3 ? row2 : load_pixel<kLines>(rows.src[kKernel == 3 ? 2 : 3], at);
  const auto low01 = hn::BitCast(dw, hn::InterleaveLower(db, row0, row1));
  const auto high01 = hn::BitCast(dw, hn::InterleaveUpper(db, row0, row1));
  const auto low23 = hn::BitCast(dw, hn::InterleaveLower(db, row2, row3));
  const auto high23 = hn::BitCast(dw, hn::InterleaveUpper(db, row2, row3));
  return {{hn::BitCast(db, hn::InterleaveLower(dw, low01, low23)),
           hn::BitCast(db, hn::InterleaveUpper(dw, low01, low23)),
           hn::BitCast(db, hn::InterleaveLower(dw, high01, high23)),
           hn::BitCast(db, hn::InterleaveUpper(dw, high01, high23))}};
}

/// Bytes of a quad of channels, each four times.
struct QuadOrders {
  alignas(64) std::uint8_t lanes[4][64];

  constexpr QuadOrders() : lanes() {
    for (int part = 0; part < 4; ++part) {
      for (int i = 0; i < 64; ++i) {
        lanes[part][i] = static_cast<std::uint8_t>(part * 4 + i % 16 / 4);
      }
    }
  }
};
constexpr QuadOrders kQuadOrders;

/// Part `kPart` of a column of which only one row, the fifth, is there: the others' weights are 0.
template <int kPart>
HWY_INLINE ByteVector last_row(ByteVector row) {
  // The orders stay in memory, as the registers are needed for sums.
  asm("vpshufb %1, %0, %0"
      : "+v"(row.raw)
      : "m"(*reinterpret_cast<const __m512i*>(kQuadOrders.lanes[kPart])));
  return row;
}

HWY_INLINE void add_products(IntVector& sum, ByteVector x, ByteVector weight) {
  // Highway does not let the compiler use AVX512_VNNI, which all machines of the target have.
  asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(x.raw), "vm"(weight.raw));
}

/// The sums of the outputs that the window's columns are part of. A column is read and interleaved
/// once, and added to all of them.
template <int kKernel, int kStride, int kLines>
class Window {
 public:
  static constexpr int kOutputs = (kKernel - 1) / kStride + 1;
  /// Whether all weights stay in registers.
  static constexpr bool kKeepTaps = kKernel == 3;
  struct Taps {
    ByteVector weight[kKeepTaps ? kKernel * 4 : 1];
  };

  Window(const WindowTables& tables, const RequantizeParams& params)
      : tables_(tables), weights_(tables.weights), outside_(), requantizer_(params) {
    for (auto& row : outside_.src) std::fill(std::begin(row), std::end(row), tables.padding_line);
  }

  HWY_INLINE void run(const WindowRows<kKernel, kLines>& rows) {
    IntVector sums[kOutputs][4];
    Taps taps;
    if constexpr (kKeepTaps) {
#pragma GCC unroll 12
      for (int i = 0; i < kKernel * 4; ++i) {
        taps.weight[i] = hn::Load(Bytes<64>(), tables_.weights + i * 64);
        // Keeps the compiler from reading it again from memory.
        asm("" : "+v"(taps.weight[i].raw));
      }
    }
#pragma GCC unroll 5
    for (int o = 0; o < kOutputs; ++o) start(sums[o]);
    const std::int64_t steps = tables_.outputs + kOutputs - 1;
    for (std::int64_t x = 0; x < steps; x += kOutputs) {
      steps_of(rows, taps, sums, x, steps, std::make_integer_sequence<int, kOutputs>());
    }
  }

 private:
  HWY_INLINE void start(IntVector (&sum)[4]) const {
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      sum[v] = hn::BitCast(Ints<64>(), hn::Load(Floats<64>(), tables_.numbers + 128 + v * 16));
    }
  }

  template <int... kSlots>
  HWY_INLINE void steps_of(const WindowRows<kKernel, kLines>& rows, const Taps& taps,
                           IntVector (&sums)[kOutputs][4], std::int64_t x, std::int64_t steps,
                           std::integer_sequence<int, kSlots...>) const {
    static_cast<void>(
        ((x + kSlots < steps && (step<kSlots>(rows, taps, sums, x + kSlots), true)) && ...));
  }

  /// The columns of which output x is the first to see; its sum is in slot kSlot. Output
  /// x - (kOutputs - 1) is complete then.
  template <int kSlot>
  HWY_INLINE void step(const WindowRows<kKernel, kLines>& rows, const Taps& taps,
                       IntVector (&sums)[kOutputs][4], std::int64_t x) const {
    constexpr int kLast = (kSlot + 1) % kOutputs;
    const std::int64_t column = x * kStride - tables_.padding;
    add_column<kSlot, 0>(rows, taps, sums, column);
    if constexpr ((kKernel - 1) % kStride != 0) add_column<kSlot, 1>(rows, taps, sums, column + 1);
    const std::int64_t done = x - (kOutputs - 1);
    if (done >= 0) {
      IntVector scaled[4];
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) {
        scaled[v] = requantizer_.scaled_bounded(
            sums[kLast][v], hn::Load(Floats<64>(), tables_.numbers + v * 16),
            hn::Load(Floats<64>(), tables_.numbers + 64 + v * 16));
      }
      store_pixel<kLines>(requantizer_.codes(scaled[0], scaled[1], scaled[2], scaled[3]), rows.dst,
                          done * tables_.channels);
    }
    start(sums[kLast]);
    if constexpr (kStride == 2 && (kKernel - 1) % kStride == 0) {
      add_column<kSlot, 1>(rows, taps, sums, column + 1);
    }
  }

  template <int kSlot, int kFirst>
  HWY_INLINE void add_column(const WindowRows<kKernel, kLines>& rows, const Taps& taps,
                             IntVector (&sums)[kOutputs][4], std::int64_t column) const {
    const bool inside = column >= 0 && column < tables_.width;
    const WindowRows<kKernel, kLines>& from = inside ? rows : outside_;
    const std::int64_t at = inside ? column * tables_.channels : 0;
    const Column first = first_rows<kKernel, kLines>(from, at);
    add_part<kSlot, kFirst, 0, 0>(first.part[0], taps, sums);
    add_part<kSlot, kFirst, 0, 1>(first.part[1], taps, sums);
    add_part<kSlot, kFirst, 0, 2>(first.part[2], taps, sums);
    add_part<kSlot, kFirst, 0, 3>(first.part[3], taps, sums);
    if constexpr (kKernel == 5) {
      const auto row = load_pixel<kLines>(from.src[4], at);
      add_part<kSlot, kFirst, 1, 0>(last_row<0>(row), taps, sums);
      add_part<kSlot, kFirst, 1, 1>(last_row<1>(row), taps, sums);
      add_part<kSlot, kFirst, 1, 2>(last_row<2>(row), taps, sums);
      add_part<kSlot, kFirst, 1, 3>(last_row<3>(row), taps, sums);
    }
  }

  template <int kSlot, int kFirst, int kGroup, int kPart>
  HWY_INLINE void add_part(ByteVector part, const Taps& taps,
                           IntVector (&sums)[kOutputs][4]) const {
#pragma GCC unroll 5
    for (int k = kFirst; k < kKernel; k += kStride) {
      auto& sum = sums[(kSlot + kOutputs - (k - kFirst) / kStride) % kOutputs][kPart];
      constexpr int kColumn = kGroup * kKernel;
      const int tap = (kColumn + k) * 4 + kPart;
      if constexpr (kKeepTaps) {
        add_products(sum, part, taps.weight[tap]);
      } else {
        add_products(sum, part, hn::Load(Bytes<64>(), weights_ + tap * 64));
      }
    }
  }

  WindowTables tables_;
  const std::uint8_t* weights_;
  WindowRows<kKernel, kLines> outside_;
  Requantizer<64> requantizer_;
};

/// A chunk's channels of lines [begin, end).
template <int kKernel, int kStride, int kLines>
HWY_NOINLINE void run_chunk(const WindowCall& call, const DepthwiseChunk& chunk,
                            const WindowTables& tables, std::int64_t begin, std::int64_t end) {
  const ConvShape& shape = call.shape;
  Window<kKernel, kStride, kLines> window(tables, call.epilogue.params);
  for (std::int64_t index = begin; index < end; index += kLines) {
    WindowRows<kKernel, kLines> rows;
    for (int l = 0; l < kLines; ++l) {
      // Lines beyond the last are the last once more.
      const std::int64_t at = std::min(index + l, end - 1);
      const DepthwiseLine line(shape, at);
      for (int k = 0; k < kKernel; ++k) {
        const std::uint8_t* row = line.input(call.src, shape, k);
        rows.src[k][l] = row != nullptr ? row + chunk.first : tables.padding_line;
      }
      rows.dst[l] = call.dst + at * shape.out[2] * shape.out_channels + chunk.first;
    }
    window.run(rows);
  }
}

template <int kKernel, int kStride>
void run_chunk_of(const WindowCall& call, const DepthwiseChunk& chunk, const WindowTables& tables,
                  std::int64_t begin, std::int64_t end) {
  switch (chunk.lines) {
    case 1:
      return run_chunk<kKernel, kStride, 1>(call, chunk, tables, begin, end);
    case 2:
      return run_chunk<kKernel, kStride, 2>(call, chunk, tables, begin, end);
    default:
      return run_chunk<kKernel, kStride, 4>(call, chunk, tables, begin, end);
  }
}

void run_windows(const WindowCall& call, std::int64_t begin, std::int64_t end) {
  const ConvShape& shape = call.shape;
  thread_local AlignedVector<std::uint8_t> padding;
  const auto zero_point = static_cast<std::uint8_t>(call.epilogue.src_zero_point);
  padding.assign(static_cast<std::size_t>(shape.in[2] * shape.in_channels + 64), zero_point);
  const std::int64_t kernel = shape.kernel[2];
  const bool strided = shape.stride[2] == 2;
  const auto run = kernel == 3 ? (strided ? run_chunk_of<3, 2> : run_chunk_of<3, 1>)
                               : (strided ? run_chunk_of<5, 2> : run_chunk_of<5, 1>);
  WindowTables tables{reinterpret_cast<const std::uint8_t*>(call.weights.windows.data()),
                      call.epilogue.windows.data(),
                      shape.in[2],
                      shape.out[2],
                      shape.padding[2],
                      shape.in_channels,
                      padding.data()};
  for (const DepthwiseChunk& chunk : call.weights.chunks) {
    run(call, chunk, tables, begin, end);
    tables.weights += (kernel + 3) / 4 * kernel * 256;
    tables.numbers += 192;
  }
}

bool has_windows() { return true; }

#else

// Chunks are packed for the other target only.
void run_windows(const WindowCall&, std::int64_t, std::int64_t) {}

bool has_windows() { return false; }

#endif
}  // namespace
}  // namespace quanta::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quanta::cpu {

HWY_EXPORT(run_windows);
HWY_EXPORT(has_windows);

bool has_depthwise_windows() { return HWY_DYNAMIC_DISPATCH(has_windows)(); }

void depthwise_windows(const WindowCall& call, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(run_windows)(call, begin, end);
}

}  // namespace quanta::cpu
#endif  // HWY_ONCE
