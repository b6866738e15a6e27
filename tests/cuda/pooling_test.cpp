#include "quanta/ops/pooling.h"

#include <doctest/doctest.h>

#include "quanta/ops/quantize.h"
#include "quanta/runtime/random.h"
#include "support/device_guide.h"
#include "support/test_device.h"

namespace quanta {
namespace {

template <typename Call>
void check_same(Call&& call) {
  const Tensor expected = call();
  test::DeviceGuide guide(test::test_device());
  const GuideScope scope(&guide);
  const Tensor got = call();
  CHECK(guide.take_count() > 0);
  CHECK(got.equal(expected));
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

}  // namespace quanta
