#include "quanta/ops/vision.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"

namespace quanta {
namespace {

using Integers = std::vector<std::int64_t>;
using Floats = std::vector<float>;

Tensor random_tensor(const Dims& sizes, std::uint64_t seed) {
  Generator generator(seed);
  Floats values(static_cast<std::size_t>(product(sizes)));
  for (float& value : values) value = generator.normal();
  return Tensor::from_values(values, sizes);
}

void check_close(const Tensor& got, const Tensor& want) {
  REQUIRE(got.sizes() == want.sizes());
  const Floats a = got.to_float_vector();
  const Floats b = want.to_float_vector();
  for (std::size_t i = 0; i < a.size(); ++i) {
    CAPTURE(i);
    CHECK(std::fabs(a[i] - b[i]) <= 1e-4F * (1.0F + std::fabs(b[i])));
  }
}

/// theta of the identity, for each of `count` images.
Tensor identity(std::int64_t count, std::int64_t spatial) {
  const Tensor theta = Tensor::zeros({count, spatial, spatial + 1});
  for (std::int64_t d = 0; d < spatial; ++d) theta.select(1, d).select(1, d).fill_(1.0);
  return theta;
}

}  // namespace

TEST_CASE("grid_sample: the grid of the identity gives the image back") {
  for (const Dims& sizes : {Dims{2, 3, 4, 5}, Dims{1, 2, 3, 4, 5}}) {
    const Tensor x = random_tensor(sizes, 1);
    for (const bool align : {false, true}) {
      const Tensor grid = affine_grid(identity(sizes[0], x.dim() - 2), sizes, align);
      for (const GridMode mode : {GridMode::Linear, GridMode::Nearest, GridMode::Cubic}) {
        for (const GridPadding padding :
             {GridPadding::Zeros, GridPadding::Border, GridPadding::Reflection}) {
          const GridSampleOptions options{mode, padding, align};
          check_close(grid_sample(x, grid, options), x);
          check_close(grid_sample(x.to(DType::Float64), grid.to(DType::Float64), options), x);
        }
      }
    }
  }
}

TEST_CASE("grid_sample: positions outside of the image") {
  const Tensor x = Tensor::from_values({1, 2, 3, 4}, {1, 1, 1, 4});
  // With align_corners false x = -1.5 is position -1.5, x = 1.5 is position 4.5.
  const Tensor grid = Tensor::from_values({-1.5F, 0, -1.25F, 0, 1.5F, 0}, {1, 1, 3, 2});
  const auto at = [&](GridMode mode, GridPadding padding) {
    return grid_sample(x, grid, {mode, padding, false}).to_float_vector();
  };
  CHECK(at(GridMode::Linear, GridPadding::Zeros) == Floats{0, 0, 0});
  CHECK(at(GridMode::Linear, GridPadding::Border) == Floats{1, 1, 4});
  // Mirrored at -0.5 and 3.5: -1.5 is 0.5, -1 is 0, 4.5 is 2.5.
  CHECK(at(GridMode::Linear, GridPadding::Reflection) == Floats{1.5, 1, 3.5});
  CHECK(at(GridMode::Nearest, GridPadding::Reflection) == Floats{1, 1, 3});
  const Tensor nowhere = Tensor::full({1, 1, 1, 2}, NAN);
  CHECK(grid_sample(x, nowhere, {GridMode::Linear, GridPadding::Zeros}).item() == 0.0);
  CHECK(grid_sample(x, nowhere, {GridMode::Nearest, GridPadding::Reflection}).item() == 1.0);
}

TEST_CASE("grid_sample: linear blends the four elements around a position") {
  const Tensor x = random_tensor({1, 2, 3, 3}, 2);
  const Tensor grid = Tensor::from_values({0.25F, -0.5F}, {1, 1, 1, 2});
  const Tensor got = grid_sample(x, grid, {.align_corners = true});
  for (std::int64_t c = 0; c < 2; ++c) {
    const Tensor plane = x[0][c];
    const double want = 0.5 * (0.75 * plane[0][1].item() + 0.25 * plane[0][2].item()) +
                        0.5 * (0.75 * plane[1][1].item() + 0.25 * plane[1][2].item());
    CHECK(got[0][c][0][0].item() == doctest::Approx(want));
  }
}

TEST_CASE("affine_grid: a shifted image in x y order") {
  const Tensor theta = Tensor::from_values({1, 0, 0.5F, 0, 2, 0}, {1, 2, 3});
  const Tensor grid = affine_grid(theta, {1, 1, 2, 3}, true);
  CHECK(grid.to_float_vector() ==
        Floats{-0.5F, -2, 0.5F, -2, 1.5F, -2, -0.5F, 2, 0.5F, 2, 1.5F, 2});
  CHECK_THROWS_WITH_AS(affine_grid(theta, {2, 1, 2, 3}), doctest::Contains("theta"), ArgumentError);
}

TEST_CASE("roi_align: bins of whole elements are means") {
  const Tensor x = Tensor::arange(16).view({1, 1, 4, 4});
  const Tensor rois = Tensor::from_values({0, 0, 4, 4}, {1, 4});
  const Tensor batch = Tensor::zeros({1}, DType::Int64);
  const RoiAlignOptions options{.output_height = 2, .output_width = 2, .sampling_ratio = 2};
  CHECK(roi_align(x, rois, batch, options).to_float_vector() == Floats{2.5, 4.5, 10.5, 12.5});
  const RoiAlignOptions best{
      .output_height = 1, .output_width = 1, .sampling_ratio = 4, .takes_maximum = true};
  CHECK(roi_align(x, rois, batch, best).item() == 15.0);
  CHECK_THROWS_WITH_AS(roi_align(x, rois, Tensor::ones({1}, DType::Int64), options),
                       doctest::Contains("batch: expected 0..0, got 1"), ArgumentError);
}

TEST_CASE("roi_align: a bin has at most as many points as a large image has elements") {
  const Tensor x = Tensor::ones({1, 3, 4, 4});
  const auto align = [&](float right, float bottom, const RoiAlignOptions& options) {
    return roi_align(x, Tensor::from_values({0, 0, right, bottom}, {1, 4}),
                     Tensor::zeros({1}, DType::Int64), options);
  };
  CHECK_THROWS_WITH_AS(align(2, 2, {.sampling_ratio = 4097}),
                       "roi_align: sampling_ratio: expected 0..4096, got 4097", ArgumentError);
  CHECK_THROWS_WITH_AS(align(2, 70000, {}),
                       doctest::Contains("expected regions of at most 65536 elements a bin"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(
      align(60000, 50000, {}),
      "roi_align: rois: expected regions of at most 16777216 points a bin, got 50000 x 60000",
      ArgumentError);
  // A long one is within the bound: two columns and 5 of its rows lie on x.
  for (const float mean : align(2, 60000, {}).to_float_vector()) {
    CHECK(mean == doctest::Approx(10.0 / 120000.0));
  }
}

TEST_CASE("non_max_suppression: drops what shares too much with a better box") {
  const Tensor boxes = Tensor::from_values({0, 0,  1, 1,  0, 0.1F,  1, 1.1F,  0, -0.1F, 1, 0.9F,
                                            0, 10, 1, 11, 0, 10.1F, 1, 11.1F, 0, 100,   1, 101},
                                           {1, 6, 4});
  const Tensor scores = Tensor::from_values({0.9F, 0.75F, 0.6F, 0.95F, 0.5F, 0.3F}, {1, 1, 6});
  const NmsOptions options{.max_boxes = 3, .iou_threshold = 0.5, .score_threshold = 0.0};
  CHECK(non_max_suppression(boxes, scores, options).to_int64_vector() ==
        Integers{0, 0, 3, 0, 0, 0, 0, 0, 5});
  const NmsOptions strict{.max_boxes = 3, .iou_threshold = 0.5, .score_threshold = 0.4};
  CHECK(non_max_suppression(boxes, scores, strict).sizes() == Dims{2, 3});
  CHECK(non_max_suppression(boxes, scores, {.max_boxes = 0}).sizes() == Dims{0, 3});
  CHECK_THROWS_WITH_AS(non_max_suppression(boxes, scores, {.max_boxes = 3, .iou_threshold = 2}),
                       doctest::Contains("iou_threshold"), ArgumentError);
}

TEST_CASE("fold: adds blocks where they lie") {
  const Dims image{5, 6};
  const Dims block{2, 3};
  const Dims stride{2, 1};
  const Dims dilation{1, 2};
  const Dims padding{1, 0, 0, 1};
  const Integers places{(5 + 1 - 1 - 1) / 2 + 1, (6 + 1 - 4 - 1) / 1 + 1};
  const Tensor x = random_tensor({2, 3 * 6, places[0] * places[1]}, 4);
  const Tensor want = Tensor::zeros({2, 3, 5, 6});
  for (std::int64_t n = 0; n < 2; ++n) {
    for (std::int64_t row = 0; row < 18; ++row) {
      for (std::int64_t l = 0; l < places[0] * places[1]; ++l) {
        const std::int64_t h = l / places[1] * stride[0] + row % 6 / 3 * dilation[0] - padding[0];
        const std::int64_t w = l % places[1] * stride[1] + row % 3 * dilation[1] - padding[1];
        if (h < 0 || h >= 5 || w < 0 || w >= 6) continue;
        const Tensor place = want[n][row / 6][h][w];
        place.fill_(place.item() + x[n][row][l].item());
      }
    }
  }
  check_close(fold(x, {image, block, dilation, padding, stride}), want);
  CHECK_THROWS_WITH_AS(fold(x, {image, block}), doctest::Contains("fold: x: expected"),
                       ArgumentError);
}

}  // namespace quanta
