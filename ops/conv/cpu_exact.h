#pragma once

// Private: integer convolution kernels of our own, exact on every instruction set (products of
// 16-bit values summed in 32 bits). Used where oneDNN has no exact or no fast kernel: weights with
// zero points, machines without VNNI, transposed convolutions.

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include "quanta/runtime/dims.h"

namespace quanta::cpu {

/// Puts the elements of a std::vector on cache lines.
template <typename T>
struct CacheLineAllocator {
  using value_type = T;
  static constexpr std::align_val_t kAlignment{64};
  CacheLineAllocator() = default;
  template <typename U>
  explicit CacheLineAllocator(const CacheLineAllocator<U>&) {}
  T* allocate(std::size_t count) {
    if (count > SIZE_MAX / sizeof(T)) throw std::bad_array_new_length();
    return static_cast<T*>(::operator new(count * sizeof(T), kAlignment));
  }
  void deallocate(T* data, std::size_t) noexcept { ::operator delete(data, kAlignment); }
  bool operator==(const CacheLineAllocator&) const { return true; }
};
template <typename T>
using AlignedVector = std::vector<T, CacheLineAllocator<T>>;

/// Turns int32 sums into codes, a channel n at a time (runtime/quant_math.h, requantize):
///   q = clamp(zero_point + round_half_even((float(acc) + bias[n]) * multiplier[n]), min, max)
/// zero_point, min and max lie in 0..255.
struct RequantizeParams {
  const float* bias = nullptr;        ///< [O], bias / (sx * sw); null: 0
  const float* multiplier = nullptr;  ///< [O], sx * sw / s
  std::int32_t zero_point = 0;
  std::int32_t min = 0;
  std::int32_t max = 255;
};

/// Sizes of a convolution seen as 3-d (1d and 2d have leading ones). Channels-last everywhere:
/// src [N, D, H, W, C], dst [N, OD, OH, OW, O], dense.
struct ConvShape {
  std::int64_t batch = 1;
  std::int64_t in_channels = 0, out_channels = 0, groups = 1;
  std::int64_t in[3] = {1, 1, 1};
  std::int64_t out[3] = {1, 1, 1};
  std::int64_t kernel[3] = {1, 1, 1};
  std::int64_t stride[3] = {1, 1, 1};
  std::int64_t padding[3] = {0, 0, 0};
  std::int64_t dilation[3] = {1, 1, 1};
  bool transposed = false;
  bool operator==(const ConvShape&) const = default;
};

/// One dimension of a phase: output positions first, first + out_step, ...; number j of them reads
/// input positions j * in_step + tap.offset where they exist.
struct ExactDim {
  struct Tap {
    std::int64_t kernel;  ///< position in the kernel
    std::int64_t offset;  ///< ascending
  };
  std::int64_t first = 0, out_step = 1, in_step = 1;
  std::vector<Tap> taps;
};

/// Output positions that see the same part of the kernel. A convolution has one phase with all of
/// it. A transposed one has a phase for each remainder of the output position by the stride, so
/// that none multiplies zeros between input elements.
struct ExactPhase {
  ExactDim dims[3];
  std::size_t data_begin = 0;  ///< of its panels
  std::int64_t inner = 0;      ///< products of one sum
  std::int64_t pairs = 0;      ///< the same in pairs, rounded up
  bool adjacent = false;       ///< taps of the last dimension are neighbours
};

/// Weights for conv_exact, centred (w - zero point) as int16: for each phase and group, panels of
/// kPanel output channels, each [pairs][kPanel][2]. Depends on kernel, channels, groups, stride,
/// padding and dilation, not on batch, in and out.
struct ExactWeights {
  static constexpr std::int64_t kPanel = 16;
  AlignedVector<std::int16_t> data;
  std::vector<ExactPhase> phases;
};
/// `weight` is int8 in torch's order: [O, C/groups, kD, kH, kW], transposed [C, O/groups, ...];
/// `zero_points` has one entry, or one for each output channel.
ExactWeights pack_exact_weights(const std::int8_t* weight,
                                const std::vector<std::int64_t>& zero_points,
                                const ConvShape& shape);

/// Exact sums, requantized: dst u8.
void conv_exact_u8(const std::uint8_t* src, std::int32_t src_zero_point,
                   const ExactWeights& weights, const ConvShape& shape,
                   const RequantizeParams& requantize, std::uint8_t* dst);
/// Exact sums as they are: dst int32 [N, OD, OH, OW, O].
void conv_exact_s32(const std::uint8_t* src, std::int32_t src_zero_point,
                    const ExactWeights& weights, const ConvShape& shape, std::int32_t* dst);

/// dst[r][n] = requantize(acc[r][n] + compensation[n]); compensation may be null. rows x channels,
/// both dense.
void requantize_rows(const std::int32_t* acc, const std::int32_t* compensation, std::int64_t rows,
                     std::int64_t channels, const RequantizeParams& requantize, std::uint8_t* dst);

}  // namespace quanta::cpu
