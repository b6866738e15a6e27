#include "quanta/ops/pooling.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "cuda/check_same.h"
#include "cuda/devices_support.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/elementwise.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"

namespace quanta {
namespace {

using test::check_devices;
using test::check_same;

// Every element of a plane of its own, some of them equal, NaN or infinite.
Tensor odd_floats(const Dims& sizes, Generator& generator) {
  Tensor x = randn(sizes, generator);
  auto* values = x.mutable_data<float>();
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    values[i] = std::nearbyint(values[i] * 4.0F);
    const std::int64_t kind = generator.integer(0, 60);
    if (kind == 0) values[i] = std::numeric_limits<float>::quiet_NaN();
    if (kind == 1) values[i] = std::numeric_limits<float>::infinity();
    if (kind <= 4 && kind >= 2) values[i] = -std::numeric_limits<float>::infinity();
  }
  return x;
}

}  // namespace

TEST_CASE("cuda pooling: as on the CPU, over sizes, strides, paddings and orders") {
  Generator generator(11);
  for (int round = 0; round < 30; ++round) {
    const std::int64_t channels = generator.integer(1, 20);
    const Dims sizes{generator.integer(1, 3), channels, generator.integer(5, 12),
                     generator.integer(5, 12)};
    const DType dtype = generator.integer(0, 1) == 0 ? DType::QUInt8 : DType::QInt8;
    Tensor x = quantize_per_tensor(randn(sizes, generator), 0.02, generator.integer(0, 127), dtype);
    if (generator.integer(0, 1) == 0) x = x.contiguous(MemoryFormat::ChannelsLast);
    const std::int64_t kernel = generator.integer(1, 4);
    const std::int64_t stride = generator.integer(1, 3);
    const std::int64_t padding = generator.integer(0, kernel / 2);
    const bool ceil_mode = generator.integer(0, 1) == 0;
    CAPTURE(sizes);
    CAPTURE(kernel);
    check_same([&] {
      return max_pool2d(x, {.kernel_size = kernel,
                            .stride = stride,
                            .padding = padding,
                            .dilation = generator.integer(1, 1),
                            .ceil_mode = ceil_mode});
    });
    for (const bool counts : {false, true}) {
      check_same([&] {
        return avg_pool2d(x, {.kernel_size = kernel,
                              .stride = stride,
                              .padding = padding,
                              .ceil_mode = ceil_mode,
                              .count_include_pad = counts});
      });
    }
    check_same([&] { return adaptive_avg_pool2d(x, {generator.integer(2, 2), 3}); });
    check_same(
        [&] { return max_pool2d(dequantize(x), {.kernel_size = kernel, .stride = stride}); });
  }
}

TEST_CASE("cuda pooling: three dimensions in either order of memory") {
  Generator generator(12);
  for (const DType dtype : {DType::QUInt8, DType::QInt8}) {
    const Tensor codes = quantize_per_tensor(randn({2, 5, 7, 6, 9}, generator), 0.02, 9, dtype);
    for (const Tensor& x : {codes, codes.contiguous(MemoryFormat::ChannelsLast)}) {
      check_same([&] { return max_pool3d(x, {.kernel_size = {3, 2, 2}, .padding = {1, 0, 1}}); });
      check_same([&] { return avg_pool3d(x, {.kernel_size = {2, 3, 2}, .stride = {2, 1, 3}}); });
      check_same([&] { return adaptive_avg_pool3d(x, {3, 2, 4}); });
    }
  }
}

TEST_CASE("cuda pooling: the largest of codes of 32 bits") {
  Generator generator(13);
  const Tensor x = quantize_per_tensor(randn({2, 3, 6, 7}, generator), 1e-7, -5, DType::QInt32);
  check_same([&] { return max_pool2d(x, {.kernel_size = 2, .stride = 1}); });
}

TEST_CASE("cuda pooling: floats and their gradients over windows and orders of memory") {
  Generator generator(14);
  for (int round = 0; round < 40; ++round) {
    const Dims sizes{generator.integer(1, 3), generator.integer(1, 9), generator.integer(5, 11),
                     generator.integer(5, 11)};
    Tensor x = odd_floats(sizes, generator);
    if (round % 3 == 0) x = x.contiguous(MemoryFormat::ChannelsLast);
    if (round % 3 == 1) x = x.transpose(2, 3);
    const std::int64_t kernel = generator.integer(1, 4);
    const std::int64_t stride = generator.integer(1, 3);
    const std::int64_t padding = generator.integer(0, kernel / 2);
    const std::int64_t dilation = kernel > 3 ? 1 : generator.integer(1, 2);
    const bool ceil_mode = generator.integer(0, 1) == 0;
    CAPTURE(sizes);
    CAPTURE(kernel);
    CAPTURE(stride);
    CAPTURE(padding);
    CAPTURE(dilation);
    check_devices({x}, 1, [&](const std::vector<Tensor>& in) {
      return max_pool2d(in[0], {.kernel_size = kernel,
                                .stride = stride,
                                .padding = padding,
                                .dilation = dilation,
                                .ceil_mode = ceil_mode});
    });
    for (const bool counts : {false, true}) {
      AvgPoolOptions options{.kernel_size = kernel,
                             .stride = stride,
                             .padding = padding,
                             .ceil_mode = ceil_mode,
                             .count_include_pad = counts};
      options.dilation = dilation;
      if (round % 5 == 0) options.divisor_override = 3;
      check_devices({x}, 1,
                    [&](const std::vector<Tensor>& in) { return avg_pool2d(in[0], options); });
    }
    const Dims output{generator.integer(1, 7), generator.integer(1, 14)};
    CAPTURE(output);
    check_devices(
        {x}, 1, [&](const std::vector<Tensor>& in) { return adaptive_avg_pool2d(in[0], output); });
    check_devices(
        {x}, 1, [&](const std::vector<Tensor>& in) { return adaptive_max_pool2d(in[0], output); });
  }
}

TEST_CASE("cuda pooling: floats of one and three dimensions with and without a batch") {
  Generator generator(15);
  const Tensor volume = odd_floats({2, 5, 7, 6, 9}, generator);
  const Tensor line = odd_floats({3, 7, 40}, generator);
  for (const Tensor& x :
       {volume, volume.contiguous(MemoryFormat::ChannelsLast), volume.select(0, 1)}) {
    check_devices({x}, 1, [&](const std::vector<Tensor>& in) {
      return max_pool3d(in[0], {.kernel_size = {3, 2, 2}, .padding = {1, 0, 1}});
    });
    check_devices({x}, 1, [&](const std::vector<Tensor>& in) {
      return avg_pool3d(in[0], {.kernel_size = {2, 3, 2}, .stride = {2, 1, 3}});
    });
    check_devices({x}, 1, [&](const std::vector<Tensor>& in) {
      return adaptive_avg_pool3d(in[0], {3, 2, 4});
    });
  }
  for (const Tensor& x : {line, line.select(0, 2), line.slice(0, 0, 0)}) {
    check_devices({x}, 1, [&](const std::vector<Tensor>& in) {
      return max_pool1d(in[0], {.kernel_size = 3, .stride = 2, .padding = 1, .dilation = 2});
    });
    check_devices({x}, 1, [&](const std::vector<Tensor>& in) {
      return avg_pool1d(in[0], {.kernel_size = 5, .stride = 2, .padding = 2});
    });
    check_devices({x}, 1,
                  [&](const std::vector<Tensor>& in) { return adaptive_avg_pool1d(in[0], {7}); });
  }
}

TEST_CASE("cuda pooling: positions of the largest of every dtype in either order") {
  Generator generator(16);
  const Tensor floats = odd_floats({2, 3, 5, 6, 7}, generator);
  const Tensor finite = randn({2, 3, 5, 6, 7}, generator);
  const std::vector<Tensor> inputs{floats,
                                   quantize_per_tensor(finite, 0.1, 100, DType::QUInt8),
                                   quantize_per_tensor(finite, 0.1, 3, DType::QInt8),
                                   quantize_per_tensor(finite, 1e-7, -5, DType::QInt32),
                                   add_scalar(finite, 4.0).to(DType::UInt8),
                                   mul_scalar(finite, 30.0).to(DType::Int8)};
  for (const Tensor& x : inputs) {
    CAPTURE(x.dtype());
    for (const IndexOrder order : {IndexOrder::RowMajor, IndexOrder::ColumnMajor}) {
      const MaxPoolOptions options{.kernel_size = 3, .stride = 2, .padding = 1, .dilation = 2};
      check_same([&] { return max_pool_indices(x, options, 3, order); });
      check_same([&] { return max_pool_indices(x.select(0, 1), options, 2, order); });
      // Far dilated windows without any element have no largest one.
      check_same([&] {
        return max_pool_indices(x,
                                {.kernel_size = 2,
                                 .stride = 1,
                                 .padding = {1, 0, 0},
                                 .dilation = {7, 1, 1},
                                 .padding_end = {7, 0, 0}},
                                3, order);
      });
    }
  }
}

TEST_CASE("cuda pooling: Float64 is refused by name") {
  const Tensor x = Tensor::zeros({1, 1, 4, 4}, DType::Float64).to(test::test_device());
  CHECK_THROWS_WITH_AS(avg_pool2d(x, {.kernel_size = 2}), doctest::Contains("avg_pool2d"),
                       UnsupportedError);
}

}  // namespace quanta
