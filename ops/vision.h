#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "quanta/runtime/tensor.h"

/// What networks that find objects in images are made of: sampling at positions, regions, boxes.
///
/// Tensors are Float32 or Float64, all arguments of a call alike. No gradients. Functions throw
/// ArgumentError for sizes and settings that do not fit, UnsupportedError for other dtypes. Many
/// threads may call them at once while nobody writes to the arguments.
namespace quanta {

enum class GridMode : std::uint8_t { Linear, Nearest, Cubic };
/// What lies outside of x: 0, the element at the border, or x mirrored at its border.
enum class GridPadding : std::uint8_t { Zeros, Border, Reflection };

std::span<const std::string_view> enumerators(GridMode mode);
std::span<const std::string_view> enumerators(GridPadding padding);

struct GridSampleOptions {
  GridMode mode = GridMode::Linear;
  GridPadding padding = GridPadding::Zeros;
  /// -1 and 1 are the centres of the first and last element, else the outer borders of these.
  bool align_corners = false;
};

/// x [N, C, (D,) H, W] at the positions of `grid` [N, (D_out,) H_out, W_out, 2 or 3], which are
/// (x, y) or (x, y, z) in -1..1: [N, C, (D_out,) H_out, W_out]. Cubic has a = -0.75; Nearest rounds
/// half to even. Same as torch.nn.functional.grid_sample.
Tensor grid_sample(const Tensor& x, const Tensor& grid, const GridSampleOptions& options = {});

/// The positions that theta [N, 2, 3] (or [N, 3, 4]) maps those of an image of `size` [N, C, H, W]
/// (or [N, C, D, H, W]) to: [N, H, W, 2] (or [N, D, H, W, 3]), for grid_sample. Same as
/// torch.nn.functional.affine_grid.
Tensor affine_grid(const Tensor& theta, const Dims& size, bool align_corners = false);

struct RoiAlignOptions {
  std::int64_t output_height = 1;
  std::int64_t output_width = 1;
  std::int64_t sampling_ratio = 0;  ///< points of a bin in each direction; 0: as many as elements
  double spatial_scale = 1.0;       ///< from the coordinates of the regions to those of x
  bool half_pixel = true;           ///< moves regions by -0.5, and lets them be smaller than 1
  bool takes_maximum = false;       ///< of the weighted elements around the points; else the mean
};

/// The regions rois [R, 4] (x1, y1, x2, y2) of x [N, C, H, W], region r of image batch[r]:
/// [R, C, output_height, output_width]. Same as ONNX's RoiAlign, and as torchvision's for the mean.
/// Throws ArgumentError for a sampling_ratio beyond 4096 and regions whose bins have more than 65536
/// points in a direction or 2^24 in all, so that a hostile region cannot take hours.
Tensor roi_align(const Tensor& x, const Tensor& rois, const Tensor& batch,
                 const RoiAlignOptions& options);

struct NmsOptions {
  std::int64_t max_boxes = 0;  ///< of each class of each image
  double iou_threshold = 0.0;  ///< boxes that share more with a better one are dropped
  std::optional<double> score_threshold = {};  ///< only better boxes count
  bool centers = false;  ///< boxes are (x, y, width, height), else two corners (y1, x1, y2, x2)
};

/// The best boxes of boxes [N, B, 4] by scores [N, classes, B]: Int64 [count, 3] with image, class
/// and box, best first. The count depends on values, so that a recording refuses it, and a call on a
/// CUDA device waits for it. Same as ONNX's NonMaxSuppression.
Tensor non_max_suppression(const Tensor& boxes, const Tensor& scores, const NmsOptions& options);

struct FoldOptions {
  Dims image_size{};
  Dims block_size{};
  Dims dilation{};  ///< empty: 1
  Dims padding{};   ///< starts of all dimensions, then ends; empty: 0
  Dims stride{};    ///< empty: 1
};

/// Sums of blocks: column l of x [N, C * block, L] is added where block l of the image lies.
/// [N, C, image...] with any number of dimensions. Same as ONNX's Col2Im and, with two, as
/// torch.nn.functional.fold.
Tensor fold(const Tensor& x, const FoldOptions& options);

}  // namespace quanta
