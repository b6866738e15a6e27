#include "quanta/ops/norm.h"

#include <doctest/doctest.h>

#include <limits>
#include <vector>

#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/device_guide.h"
#include "support/test_device.h"

// Normalizations on the device: the CPU's floats and codes, to the last bit.

namespace quanta {
namespace {

bool same(float a, float b) { return a == b || (a != a && b != b); }

void check_equal(const Tensor& got, const Tensor& expected) {
  REQUIRE(got.sizes() == expected.sizes());
  CHECK(got.strides() == expected.strides());
  CHECK(got.dtype() == expected.dtype());
  const std::vector<float> left = got.to_float_vector();
  const std::vector<float> right = expected.to_float_vector();
  for (std::size_t i = 0; i < left.size(); ++i) {
    CAPTURE(i);
    REQUIRE(same(left[i], right[i]));
  }
}

// call() gives a list of tensors.
template <typename Call>
void check_same(Call&& call) {
  const std::vector<Tensor> expected = call();
  test::DeviceGuide guide(test::test_device());
  const GuideScope scope(&guide);
  const std::vector<Tensor> got = call();
  CHECK(guide.take_count() > 0);
  CHECK(guide.left().empty());
  for (std::size_t i = 0; i < expected.size(); ++i) check_equal(got[i], expected[i]);
}

// [n], or left out.
Tensor maybe(const Dims& sizes, Generator& generator) {
  return generator.integer(0, 2) == 0 ? Tensor() : randn(sizes, generator);
}

Tensor variances(std::int64_t channels, Generator& generator) {
  Tensor result = randn({channels}, generator);
  for (std::int64_t c = 0; c < channels; ++c) {
    float& value = result.mutable_data<float>()[c];
    value = value * value + 0.01F;
  }
  return result;
}

// Rank 3 to 5 with `channels`, in either order of memory.
Tensor random_images(std::int64_t channels, Generator& generator) {
  Dims sizes{generator.integer(1, 3), channels};
  for (std::int64_t d = generator.integer(1, 3); d > 0; --d) {
    sizes.push_back(generator.integer(1, 7));
  }
  const Tensor x = randn(sizes, generator);
  return sizes.size() > 3 && generator.integer(0, 1) == 0 ? x.contiguous(MemoryFormat::ChannelsLast)
                                                          : x;
}

QTensor codes_of(const Tensor& x, Generator& generator) {
  const bool is_signed = generator.integer(0, 1) == 0;
  return QTensor(quantize_per_tensor(x, 0.031,
                                     generator.integer(is_signed ? -128 : 0, is_signed ? 127 : 255),
                                     is_signed ? DType::QInt8 : DType::QUInt8));
}

}  // namespace

TEST_CASE("cuda norm: layer, rms and row statistics over rows of any width") {
  Generator generator(21);
  for (int round = 0; round < 25; ++round) {
    const std::int64_t width = generator.integer(1, 70);
    Dims sizes{generator.integer(1, 5), generator.integer(1, 9), width};
    Tensor x = randn(sizes, generator);
    if (round % 5 == 0) x = randn({width, 4, 3}, generator).permute({2, 1, 0});
    const Tensor weight = maybe({width}, generator);
    const Tensor bias = maybe({width}, generator);
    CAPTURE(width);
    check_same([&] {
      const RowStatistics statistics = row_statistics(x, 1);
      return std::vector<Tensor>{layer_norm(x, {width}, weight, bias),
                                 rms_norm(x, {width}, weight, 1e-6), statistics.mean,
                                 statistics.inv_std};
    });
    const Dims two{x.sizes()[1], width};
    check_same([&] { return std::vector<Tensor>{layer_norm(x, two, {}, {}, 1e-3)}; });
  }
}

TEST_CASE("cuda norm: groups and instances in either order of memory") {
  Generator generator(22);
  for (int round = 0; round < 30; ++round) {
    const std::int64_t groups = generator.integer(1, 6);
    const std::int64_t channels = groups * generator.integer(1, 8);
    const Tensor x = random_images(channels, generator);
    const Tensor weight = maybe({channels}, generator);
    const Tensor bias = maybe({channels}, generator);
    CAPTURE(x.sizes());
    CAPTURE(groups);
    check_same([&] {
      return std::vector<Tensor>{group_norm(x, groups, weight, bias),
                                 instance_norm(x, weight, bias, 1e-3)};
    });
  }
}

TEST_CASE("cuda norm: batches by given statistics") {
  Generator generator(23);
  for (int round = 0; round < 20; ++round) {
    const std::int64_t channels = generator.integer(1, 48);
    const Tensor x = random_images(channels, generator);
    const Tensor mean = randn({channels}, generator);
    const Tensor var = variances(channels, generator);
    const Tensor weight = maybe({channels}, generator);
    const Tensor bias = maybe({channels}, generator);
    CAPTURE(x.sizes());
    check_same([&] { return std::vector<Tensor>{batch_norm(x, mean, var, weight, bias)}; });
  }
}

TEST_CASE("cuda norm: codes into codes") {
  Generator generator(24);
  for (int round = 0; round < 30; ++round) {
    const std::int64_t groups = generator.integer(1, 4);
    const std::int64_t channels = groups * generator.integer(1, 12);
    const QTensor x = codes_of(random_images(channels, generator), generator);
    const std::int64_t zero_point = generator.integer(0, 127);
    const Tensor weight = randn({channels}, generator);
    const Tensor bias = randn({channels}, generator);
    const Tensor mean = randn({channels}, generator);
    const Tensor var = variances(channels, generator);
    const std::int64_t width = x.sizes().back();
    const Tensor row_weight = maybe({width}, generator);
    const Tensor row_bias = maybe({width}, generator);
    CAPTURE(x.sizes());
    CAPTURE(groups);
    check_same([&] {
      return std::vector<Tensor>{
          quantized::group_norm(x, groups, weight, bias, 1e-5, 0.02, zero_point),
          quantized::instance_norm(x, weight, bias, 1e-5, 0.02, zero_point),
          quantized::layer_norm(x, {width}, row_weight, row_bias, 1e-5, 0.02, zero_point),
          quantized::batch_norm(x, weight, bias, mean, var, 1e-5, 0.03, zero_point),
          quantized::batch_norm_relu(x, weight, bias, mean, var, 1e-3, 0.03, zero_point)};
    });
  }
}

TEST_CASE(
    "cuda norm: NaN and infinity stay in their group; a group of equal values has no spread") {
  Generator generator(25);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 3e38F}) {
    Tensor x = randn({2, 6, 5, 3}, generator);
    x.mutable_data<float>()[17] = bad;
    for (const Tensor& each : {x, x.contiguous(MemoryFormat::ChannelsLast)}) {
      check_same([&] {
        return std::vector<Tensor>{group_norm(each, 3, {}, {}), instance_norm(each, {}, {}),
                                   layer_norm(each, {3}, {}, {}), rms_norm(each, {3})};
      });
    }
  }
  const Tensor even = Tensor::full({2, 4, 9}, -3.7);
  check_same([&] {
    return std::vector<Tensor>{group_norm(even, 2, {}, {}), layer_norm(even, {9}, {}, {})};
  });
}

TEST_CASE("cuda norm: sums that cancel are added up in the CPU's order") {
  Generator generator(26);
  for (int round = 0; round < 20; ++round) {
    const std::int64_t width = generator.integer(9, 60);
    Tensor x = randn({4, width}, generator);
    for (std::int64_t row = 0; row < 4; ++row) {
      // Each value has its opposite in the row. A double that holds the large ones has no digits
      // left for the small ones.
      float* const values = x.mutable_data<float>() + row * width;
      for (std::int64_t i = 0; i < width / 2; ++i) {
        for (std::int64_t power = generator.integer(0, 8); power > 0; --power) values[i] *= 100.0F;
        values[width - 1 - i] = -values[i];
      }
    }
    check_same([&] {
      const RowStatistics statistics = row_statistics(x, 1);
      return std::vector<Tensor>{layer_norm(x, {width}, {}, {}), statistics.mean,
                                 statistics.inv_std};
    });
  }
}

TEST_CASE("cuda norm: no samples give none, and float64 is refused by name") {
  const Device device = test::test_device();
  const Tensor none = Tensor::empty({0, 4, 3}).to(device);
  CHECK(group_norm(none, 2, {}, {}).sizes() == Dims{0, 4, 3});
  CHECK(layer_norm(none, {3}, {}, {}).device() == device);
  const Tensor doubles = Tensor::zeros({2, 4, 3}, DType::Float64).to(device);
  CHECK_THROWS_WITH_AS(layer_norm(doubles, {3}, {}, {}), doctest::Contains("layer_norm"),
                       UnsupportedError);
}

}  // namespace quanta
