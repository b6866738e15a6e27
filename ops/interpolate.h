#pragma once

#include <cstdint>
#include <vector>

#include "quanta/runtime/tensor.h"

/// Resizing images and signals. Many threads may call interpolate at once while nobody writes to
/// the tensor.
namespace quanta {

enum class InterpolateMode : std::uint8_t { Nearest, NearestExact, Linear, Bilinear, Trilinear };

/// Either `size` or `scale_factor`, one number per spatial dimension or one for all; the other
/// stays empty. With `scale_factor` the output size is floor(input * scale_factor), and source
/// positions use the factor itself unless `recompute_scale_factor`.
struct InterpolateOptions {
  Dims size{};
  std::vector<double> scale_factor{};
  InterpolateMode mode = InterpolateMode::Nearest;
  bool align_corners = false;
  bool recompute_scale_factor = false;
};

/// Resizes the spatial dimensions of x [N, C, spatial...] with one to three of them, in its memory
/// order. Source position of output index o (float32, scale = input / output or 1 / scale_factor):
///
///   Nearest        floor(o * scale)
///   NearestExact   floor((o + 0.5) * scale)
///   ...linear      (o + 0.5) * scale - 0.5, not below 0; with align_corners
///                  o * (input - 1) / (output - 1)
///
/// Float32 and Float64 tensors have all modes: Linear for one, Bilinear for two, Trilinear for
/// three spatial dimensions. QUInt8 and QInt8 per tensor have the nearest modes, and Bilinear as
/// round_half_even(blend of codes - zero point) + zero point; the result keeps the parameters.
///
/// Same as torch.nn.functional.interpolate. Throws ArgumentError for sizes and factors that do not
/// fit, UnsupportedError for other dtypes and modes.
Tensor interpolate(const Tensor& x, const InterpolateOptions& options);

}  // namespace quanta
