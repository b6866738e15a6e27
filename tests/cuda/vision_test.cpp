// Sampling, regions, boxes and sums of blocks on a CUDA device: the CPU's numbers, to the last bit.

#include "quanta/ops/vision.h"

#include <doctest/doctest.h>

#include <array>
#include <limits>
#include <vector>

#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "schedule_scope.h"
#include "support/on_device.h"

namespace quanta {
namespace {

const Device kDevice = test::test_device();

constexpr std::array kOdd{std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity(),
                          1e30F,
                          -0.0F,
                          1.0F,
                          -1.0F};

Tensor with_odd_numbers(Tensor x, Generator& generator) {
  for (const float odd : kOdd) {
    if (generator.integer(0, 2) == 0) {
      x.mutable_data<float>()[generator.integer(0, x.numel() - 1)] = odd;
    }
  }
  return x;
}

DType random_dtype(Generator& generator) {
  return generator.integer(0, 2) == 0 ? DType::Float64 : DType::Float32;
}

}  // namespace

TEST_CASE("cuda vision: samples of images and volumes are those of the CPU") {
  Generator generator(101);
  for (int round = 0; round < 54; ++round) {
    GridSampleOptions options;
    options.mode = std::array{GridMode::Linear, GridMode::Nearest, GridMode::Cubic}.at(
        static_cast<std::size_t>(round % 3));
    options.padding =
        std::array{GridPadding::Zeros, GridPadding::Border, GridPadding::Reflection}.at(
            static_cast<std::size_t>(round / 3 % 3));
    options.align_corners = round / 9 % 2 == 1;
    const bool is_volume = generator.integer(0, 1) == 1;
    const DType dtype = random_dtype(generator);
    Dims sizes{generator.integer(1, 3), generator.integer(1, round % 5 == 0 ? 33 : 5)};
    Dims grid_sizes{sizes[0]};
    for (int d = 0; d < (is_volume ? 3 : 2); ++d) {
      sizes.push_back(generator.integer(1, 6));
      grid_sizes.push_back(generator.integer(1, 7));
    }
    grid_sizes.push_back(is_volume ? 3 : 2);
    const Tensor x = randn(sizes, generator).to(dtype);
    const Tensor grid = with_odd_numbers(randn(grid_sizes, generator), generator).to(dtype);
    CAPTURE(round);
    const auto call = [&](const Tensor& image, const Tensor& places) {
      return grid_sample(image, places, options);
    };
    test::check_on_device(call, x, grid);
    const auto turned = [&](const Tensor& image, const Tensor& places) {
      return grid_sample(image.transpose(-1, -2), places, options);
    };
    test::check_on_device(turned, x, grid);
  }
  // More channels than the parts that share them out.
  const auto call = [](const Tensor& x, const Tensor& grid) { return grid_sample(x, grid); };
  test::check_on_device(call, randn({1, 8201, 2, 1}, generator), randn({1, 1, 2, 2}, generator));
  test::check_on_device(call, Tensor::empty({0, 2, 3, 3}), Tensor::empty({0, 2, 2, 2}));
}

TEST_CASE("cuda vision: grids of affine maps are those of the CPU") {
  Generator generator(102);
  for (int round = 0; round < 20; ++round) {
    const bool is_volume = round % 2 == 1;
    Dims size{generator.integer(1, 3), 1};
    for (int d = 0; d < (is_volume ? 3 : 2); ++d) size.push_back(generator.integer(1, 7));
    const auto spatial = static_cast<std::int64_t>(size.size()) - 2;
    const Tensor theta = randn({size[0], spatial, spatial + 1}, generator);
    for (const bool corners : {false, true}) {
      const auto call = [&](const Tensor& matrix) { return affine_grid(matrix, size, corners); };
      test::check_on_device(call, theta.to(random_dtype(generator)));
    }
  }
  test::check_on_device(
      [](const Tensor& theta) {
        return affine_grid(theta, {2, 1, 0, 3});
      },
      Tensor::ones({2, 2, 3}));
}

TEST_CASE("cuda vision: regions of images are those of the CPU") {
  Generator generator(103);
  for (int round = 0; round < 40; ++round) {
    const DType dtype = random_dtype(generator);
    const std::int64_t images = generator.integer(1, 3);
    const std::int64_t regions = generator.integer(1, 6);
    const Tensor x = with_odd_numbers(randn({images, generator.integer(1, 9),
                                             generator.integer(1, 8), generator.integer(1, 8)},
                                            generator),
                                      generator)
                         .to(dtype);
    const Tensor rois = Tensor::empty({regions, 4});
    for (std::int64_t i = 0; i < rois.numel(); ++i) {
      rois.mutable_data<float>()[i] = static_cast<float>(12.0 * generator.uniform() - 3.0);
    }
    std::vector<std::int64_t> of;
    for (std::int64_t r = 0; r < regions; ++r) of.push_back(generator.integer(0, images - 1));
    const Tensor batch = Tensor::from_int64(of).to(round % 2 == 0 ? DType::Int64 : DType::Int32);
    const RoiAlignOptions options{.output_height = generator.integer(1, 4),
                                  .output_width = generator.integer(1, 4),
                                  .sampling_ratio = generator.integer(0, 3),
                                  .spatial_scale = 0.25 * static_cast<double>(round % 4 + 1),
                                  .half_pixel = round % 3 != 0,
                                  .takes_maximum = round % 5 == 0};
    CAPTURE(round);
    const auto call = [&](const Tensor& image, const Tensor& places, const Tensor& numbers) {
      return roi_align(image, places, numbers, options);
    };
    test::check_on_device(call, x, rois.to(dtype), batch);
  }
}

TEST_CASE("cuda vision: regions that do not fit are refused as on the CPU") {
  const Tensor x = Tensor::ones({2, 1, 4, 4}).to(kDevice);
  const Tensor rois = Tensor::from_values({0, 0, 2, 2}, {1, 4}).to(kDevice);
  const auto batch = [](std::int64_t image) {
    return Tensor::from_int64(std::vector<std::int64_t>{image}).to(kDevice);
  };
  for (const std::int64_t image : {-1, 2}) {
    CHECK_THROWS_WITH_AS(roi_align(x, rois, batch(image), {}),
                         doctest::Contains("roi_align: batch: expected 0..1, got"), ArgumentError);
  }
  for (const float far : {1e9F, std::numeric_limits<float>::quiet_NaN()}) {
    const Tensor large = Tensor::from_values({0, 0, 2, far}, {1, 4}).to(kDevice);
    CHECK_THROWS_WITH_AS(
        roi_align(x, large, batch(1), {}),
        doctest::Contains("roi_align: rois: expected regions of at most 65536 elements a bin"),
        ArgumentError);
  }
  const Tensor wide = Tensor::from_values({0, 0, 60000, 50000}, {1, 4}).to(kDevice);
  CHECK_THROWS_WITH_AS(
      roi_align(x, wide, batch(1), {}),
      "roi_align: rois: expected regions of at most 16777216 points a bin, got 50000 x 60000",
      ArgumentError);
}

TEST_CASE("cuda vision: the best boxes are those of the CPU") {
  Generator generator(104);
  for (int round = 0; round < 40; ++round) {
    const DType dtype = random_dtype(generator);
    const std::int64_t images = generator.integer(1, 3);
    const std::int64_t count = round % 7 == 0 ? 300 : generator.integer(1, 40);
    const std::int64_t labels = generator.integer(1, 3);
    const Tensor boxes = randn({images, count, 4}, generator);
    // Few levels, so that scores are equal.
    const Tensor scores = Tensor::empty({images, labels, count});
    for (std::int64_t i = 0; i < scores.numel(); ++i) {
      scores.mutable_data<float>()[i] = 0.25F * static_cast<float>(generator.integer(-3, 6));
    }
    NmsOptions options{.max_boxes = generator.integer(0, 12),
                       .iou_threshold = 0.1 * static_cast<double>(generator.integer(0, 9)),
                       .score_threshold = {},
                       .centers = round % 2 == 0};
    if (round % 3 == 0) options.score_threshold = 0.0;
    CAPTURE(round);
    const test::ScheduleScope order(
        round % 4 == 3 ? cuda::emulation::Schedule::Greedy : cuda::emulation::Schedule::Lockstep,
        static_cast<std::uint64_t>(round));
    const auto call = [&](const Tensor& corners, const Tensor& numbers) {
      return non_max_suppression(corners, numbers, options);
    };
    test::check_on_device(call, with_odd_numbers(boxes, generator).to(dtype),
                          with_odd_numbers(scores, generator).to(dtype));
    const auto turned = [&](const Tensor& corners, const Tensor& numbers) {
      return non_max_suppression(corners.transpose(0, 1), numbers.transpose(0, 2), options);
    };
    test::check_on_device(turned, boxes.to(dtype).transpose(0, 1).contiguous(),
                          scores.to(dtype).transpose(0, 2).contiguous());
  }
  const auto call = [](const Tensor& boxes, const Tensor& scores) {
    return non_max_suppression(boxes, scores, {.max_boxes = 3, .iou_threshold = 0.5});
  };
  test::check_on_device(call, Tensor::empty({2, 0, 4}), Tensor::empty({2, 3, 0}));
  test::check_on_device(call, Tensor::ones({2, 3, 4}), Tensor::empty({2, 0, 3}));
  CHECK_THROWS_WITH_AS(
      call(Tensor::ones({1, 2, 4}).to(kDevice), Tensor::ones({1, 1, 2})),
      doctest::Contains("non_max_suppression: arguments: expected all on one device"),
      ArgumentError);
}

TEST_CASE("cuda vision: sums of blocks are those of the CPU") {
  Generator generator(105);
  for (int round = 0; round < 40; ++round) {
    const auto rank = static_cast<std::size_t>(generator.integer(1, 3));
    FoldOptions options;
    std::int64_t places = 1;
    std::int64_t block = 1;
    for (std::size_t d = 0; d < rank; ++d) {
      options.image_size.push_back(generator.integer(3, 7));
      options.block_size.push_back(generator.integer(1, 3));
      options.dilation.push_back(generator.integer(1, 2));
      options.stride.push_back(generator.integer(1, 3));
    }
    for (std::size_t d = 0; d < 2 * rank; ++d) options.padding.push_back(generator.integer(1, 2));
    for (std::size_t d = 0; d < rank; ++d) {
      const std::int64_t room = options.image_size[d] + options.padding[d] +
                                options.padding[rank + d] -
                                options.dilation[d] * (options.block_size[d] - 1) - 1;
      places *= room / options.stride[d] + 1;
      block *= options.block_size[d];
    }
    const Dims sizes{generator.integer(1, 3), generator.integer(1, 5) * block, places};
    CAPTURE(round);
    test::check_on_device(
        [&](const Tensor& x) { return fold(x, options); },
        with_odd_numbers(randn(sizes, generator), generator).to(random_dtype(generator)));
  }
  const FoldOptions options{.image_size = {4, 5}, .block_size = {2, 2}};
  test::check_on_device([&](const Tensor& x) { return fold(x.transpose(1, 2), options); },
                        randn({2, 12, 8}, generator));
  test::check_on_device([&](const Tensor& x) { return fold(x, options); },
                        Tensor::empty({0, 8, 12}));
}

}  // namespace quanta
