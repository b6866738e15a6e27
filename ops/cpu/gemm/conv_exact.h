#pragma once

// Private: integer convolution kernels of our own, exact on every instruction set (products of
// 16-bit values summed in 32 bits). Used where oneDNN has no exact or no fast kernel: weights with
// zero points, machines without VNNI, transposed convolutions.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "quanta/ops/cpu/aligned_vector.h"
#include "quanta/ops/cpu/conv_shape.h"
#include "quanta/ops/cpu/gemm/panels.h"
#include "quanta/ops/cpu/gemm/requantize_rows.h"

namespace quanta::cpu {

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
/// kPanel output channels in the order of panels.h, each [pairs][kPanel][2]. Depends on kernel,
/// channels, groups, stride, padding and dilation, not on batch, in and out.
struct ExactWeights {
  static constexpr std::int64_t kPanel = kPanelChannels;
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

}  // namespace quanta::cpu
