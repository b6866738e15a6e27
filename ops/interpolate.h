#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "quanta/runtime/tensor.h"

/// Resizing images and signals. Many threads may call these functions at once while nobody writes to
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
///   Nearest        floor(o * scale); in some kernels of torch, and so here, a size that is kept or
///                  doubled has o and floor(o / 2) instead, whatever the scale factor
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

/// The older name of interpolate.
Tensor upsample(const Tensor& x, const InterpolateOptions& options);
/// interpolate with mode Nearest, to `size` or by `scale_factor`, the other empty.
Tensor upsample_nearest(const Tensor& x, const Dims& size,
                        const std::vector<double>& scale_factor = {});
/// interpolate of two spatial dimensions with mode Bilinear and align_corners, as torch has it.
Tensor upsample_bilinear(const Tensor& x, const Dims& size,
                         const std::vector<double>& scale_factor = {});

enum class ResampleMode : std::uint8_t { Nearest, Linear, Cubic };

/// The source position of output index o (float32), where n is a dimension's size, scale its factor
/// and m = scale * n:
enum class ResamplePosition : std::uint8_t {
  HalfPixel,           ///< (o + 0.5) / scale - 0.5
  HalfPixelSymmetric,  ///< the same, moved so that the centres of input and output meet
  PytorchHalfPixel,    ///< (o + 0.5) / scale - 0.5, or 0 when m is 1
  AlignCorners,        ///< o * (n - 1) / (m - 1), where m is the size that results if scale > 1
  Asymmetric,          ///< o / scale
  CropAndResize,       ///< of the part that `roi` names
  HalfPixelNearest,    ///< (o + 0.5) / scale
};

/// How Nearest rounds a position. FloorOrCeil: up where the dimension gets smaller, else down.
enum class ResampleRounding : std::uint8_t {
  RoundPreferFloor,
  RoundPreferCeil,
  Floor,
  Ceil,
  FloorOrCeil,
};

/// ONNX's names of the modes, "half_pixel" and so on, in the order of the enumerators.
std::span<const std::string_view> enumerators(ResampleMode mode);
std::span<const std::string_view> enumerators(ResamplePosition position);
std::span<const std::string_view> enumerators(ResampleRounding rounding);

struct ResampleOptions {
  Dims size{};                  ///< of the result, a number for each dimension
  std::vector<double> scale{};  ///< for each dimension; empty: size / that of x
  ResampleMode mode = ResampleMode::Nearest;
  ResamplePosition position = ResamplePosition::HalfPixel;
  ResampleRounding rounding = ResampleRounding::RoundPreferFloor;
  double cubic_coeff_a = -0.75;
  bool exclude_outside = false;    ///< weights of what is not in x are 0, the others sum up to 1
  bool antialias = false;          ///< Linear and Cubic: wider where a dimension gets smaller
  std::vector<double> roi{};       ///< CropAndResize: starts of all dimensions, then ends, in 0..1
  double extrapolation_value = 0;  ///< CropAndResize: of positions that are not in x
};

/// Resizes any dimensions of x, in its memory order: ONNX's Resize, whose modes these are
/// (half_pixel, round_prefer_floor ...). One dimension after the other; a dimension that keeps its
/// size at a scale of 1 is left alone.
///
/// Nearest takes any dtype of whole bytes, quantized per tensor. Linear and Cubic take Float32 and
/// Float64, integers (calculated in floats, saturated; Linear drops the fraction, as ONNX Runtime
/// does, the others round half to even), and QUInt8 and QInt8 per tensor, whose codes count. No
/// gradient. Throws ArgumentError for sizes, scales and regions that do not fit,
/// UnsupportedError for other dtypes.
Tensor resample(const Tensor& x, const ResampleOptions& options);

}  // namespace quanta
