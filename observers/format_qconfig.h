#pragma once

#include <span>
#include <string_view>

#include "quanta/observers/qconfig.h"

namespace quanta {

/// A way to store a network's numbers, known by name. Threads may share all of this header.
struct NumberFormat {
  std::string_view name;
  std::string_view weights;
  std::string_view activations;
  /// What a weight takes, with its share of the scales of blocks (per-channel and per-tensor scales
  /// are not counted).
  double weight_bits;
};

/// "int8", "int4-block32", "fp8", "fp8-e5m2", "mxfp8", "mxfp6", "mxfp4", "nvfp4".
std::span<const NumberFormat> number_formats();

/// Throws ArgumentError listing the names.
const NumberFormat& number_format(std::string_view name);

/// Fake quantizers of weights and activations in a format, for prepare_qat and
/// simulate_quantization:
///
///   int8          weights QInt8 for each channel, activations QUInt8, histogram observer
///   int4-block32  W4A8: weights in blocks of 32 int4 with a float32 scale, activations as int8
///   fp8           float8 E4M3, one scale for each tensor;   fp8-e5m2: E5M2
///   mxfp8, mxfp6, mxfp4   E4M3, E3M2, E2M1 in blocks of 32 with a power of two
///   nvfp4         E2M1 in blocks of 16 with an E4M3 scale, and one scale for each tensor
///
/// Throws ArgumentError listing the names.
QConfig qconfig_for_format(std::string_view name);

}  // namespace quanta
