// GridSample, RoiAlign, NonMaxSuppression and their like: positions, regions and boxes in images.

#include <cstdint>
#include <string>
#include <vector>

#include "quanta/fusion/graph/op_table.h"
#include "quanta/fusion/graph/ops/arguments.h"
#include "quanta/fusion/graph/ops/families.h"
#include "quanta/ops/indexing.h"
#include "quanta/ops/pad.h"
#include "quanta/ops/vision.h"
#include "quanta/runtime/check.h"

namespace quanta::graph {
namespace {

using Integers = std::vector<std::int64_t>;

Outputs sample_grid(const NodeCall& call) {
  GridSampleOptions options;
  const std::string mode = call.text("mode", call.opset() < 20 ? "bilinear" : "linear");
  if (mode == "linear" || mode == "bilinear") {
    options.mode = GridMode::Linear;
  } else if (mode == "cubic" || mode == "bicubic") {
    options.mode = GridMode::Cubic;
  } else if (mode == "nearest") {
    options.mode = GridMode::Nearest;
  } else {
    call.fail("mode: expected linear, nearest or cubic, got " + mode);
  }
  const std::string padding = call.text("padding_mode", "zeros");
  if (padding == "border") {
    options.padding = GridPadding::Border;
  } else if (padding == "reflection") {
    options.padding = GridPadding::Reflection;
  } else if (padding != "zeros") {
    call.fail("padding_mode: expected zeros, border or reflection, got " + padding);
  }
  options.align_corners = call.flag("align_corners", false);
  const Tensor& x = call.input(0, "X");
  // Other dtypes only for the nearest element, which a Float64 holds.
  if (x.dtype() == DType::Float32 || x.dtype() == DType::Float64) {
    return {grid_sample(x, call.input(1, "grid").to(x.dtype()), options)};
  }
  if (options.mode != GridMode::Nearest || x.dtype() == DType::Int64) {
    call.unsupported(fmt::format("X: expected Float32 or Float64, got {}", x.dtype()));
  }
  return {grid_sample(x.to(DType::Float64), call.input(1, "grid").to(DType::Float64), options)
              .to(x.dtype())};
}

Outputs grid_of(const NodeCall& call) {
  const Dims size = checked_sizes(call, "size", call.integers(1, "size"));
  return {affine_grid(call.input(0, "theta"), size, call.flag("align_corners", false))};
}

Outputs align_regions(const NodeCall& call) {
  RoiAlignOptions options;
  options.output_height = call.integer("output_height", 1);
  options.output_width = call.integer("output_width", 1);
  options.sampling_ratio = call.integer("sampling_ratio", 0);
  options.spatial_scale = call.number("spatial_scale", 1.0);
  const std::string position = call.text("coordinate_transformation_mode",
                                         call.opset() < 16 ? "output_half_pixel" : "half_pixel");
  options.half_pixel = position == "half_pixel";
  if (!options.half_pixel && position != "output_half_pixel") {
    call.fail("coordinate_transformation_mode: expected half_pixel or output_half_pixel, got " +
              position);
  }
  const std::string mode = call.text("mode", "avg");
  options.takes_maximum = mode == "max";
  if (!options.takes_maximum && mode != "avg") call.fail("mode: expected avg or max, got " + mode);
  return {roi_align(call.input(0, "X"), call.input(1, "rois"), call.input(2, "batch_indices"),
                    options)};
}

Outputs suppress(const NodeCall& call) {
  const auto single = [&](std::size_t i, std::string_view name, double otherwise) {
    if (!call.has(i)) return otherwise;
    const std::vector<double> values = call.numbers(i, name);
    if (values.size() != 1) {
      call.fail(fmt::format("{}: expected one number, got {}", name, values.size()));
    }
    return values[0];
  };
  NmsOptions options;
  options.max_boxes = call.has(2) ? single_integer(call, 2, "max_output_boxes_per_class") : 0;
  options.iou_threshold = single(3, "iou_threshold", 0.0);
  if (call.has(4)) options.score_threshold = single(4, "score_threshold", 0.0);
  options.centers = call.flag("center_point_box", false);
  return {non_max_suppression(call.input(0, "boxes"), call.input(1, "scores"), options)};
}

Outputs fold_columns(const NodeCall& call) {
  FoldOptions options;
  options.image_size = checked_sizes(call, "image_shape", call.integers(1, "image_shape"));
  options.block_size = checked_sizes(call, "block_shape", call.integers(2, "block_shape"));
  options.dilation = Dims(call.integer_list("dilations", {}));
  options.padding = Dims(call.integer_list("pads", {}));
  options.stride = Dims(call.integer_list("strides", {}));
  return {fold(call.input(0, "input"), options)};
}

// The indices are those of the tensor that was pooled; a larger output has it in its first corner.
Outputs unpool(const NodeCall& call) {
  const Tensor& x = call.input(0, "X");
  const Tensor& indices = call.input(1, "I");
  const Integers kernel = call.integer_list("kernel_shape");
  const std::size_t spatial = kernel.size();
  const Integers strides = call.integer_list("strides", Integers(spatial, 1));
  const Integers pads = call.integer_list("pads", Integers(2 * spatial, 0));
  if (x.sizes().size() != spatial + 2 || strides.size() != spatial || pads.size() != 2 * spatial ||
      indices.sizes() != x.sizes()) {
    call.fail(fmt::format("X: expected {} dimensions, and I, strides and pads that fit, got {}",
                          spatial + 2, x.sizes()));
  }
  Integers sizes = x.sizes().to_vector();
  for (std::size_t d = 0; d < spatial; ++d) {
    constexpr std::int64_t kLimit = std::int64_t{1} << 31;
    for (const std::int64_t number :
         {kernel[d], strides[d], pads[d], pads[spatial + d], sizes[d + 2]}) {
      if (number < 0 || number > kLimit) {
        call.fail(fmt::format("kernel_shape: expected numbers in 0..{}, got {}", kLimit, number));
      }
    }
    if (sizes[d + 2] == 0) continue;
    __extension__ using Wide = __int128;
    const Wide size =
        static_cast<Wide>(sizes[d + 2] - 1) * strides[d] + kernel[d] - pads[d] - pads[spatial + d];
    sizes[d + 2] = size > kLimit ? kLimit + 1 : static_cast<std::int64_t>(size);
  }
  const Dims pooled = checked_sizes(call, "X", sizes);
  const Tensor flat = scatter(Tensor::zeros({product(pooled)}, x.dtype()), 0,
                              indices.reshape({indices.numel()}), x.reshape({x.numel()}));
  Tensor result = flat.reshape(pooled);
  if (!call.has(2)) return {result};
  const Dims wanted = checked_sizes(call, "output_shape", call.integers(2, "output_shape"));
  if (wanted.size() != pooled.size()) {
    call.fail(fmt::format("output_shape: expected {} sizes, got {}", pooled.size(), wanted));
  }
  Dims added;
  for (std::size_t d = pooled.size(); d-- > 0;) {
    if (wanted[d] < pooled[d]) {
      call.fail(fmt::format("output_shape: expected at least {}, got {}", pooled, wanted));
    }
    added.push_back(0);
    added.push_back(wanted[d] - pooled[d]);
  }
  return {pad(result, added)};
}

}  // namespace

void add_vision_ops(OpTable& table) {
  const auto add = [&table](std::string_view name, Outputs (*evaluate)(const NodeCall&)) {
    table.add({.name = name, .evaluate = evaluate});
  };
  add("AffineGrid", grid_of);
  add("Col2Im", fold_columns);
  add("GridSample", sample_grid);
  add("MaxUnpool", unpool);
  add("NonMaxSuppression", suppress);
  add("RoiAlign", align_regions);
}

}  // namespace quanta::graph
