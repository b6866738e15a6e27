// prelu and clip on a CUDA device, with their gradients: the CPU's numbers and codes.

#include <doctest/doctest.h>

#include <array>
#include <limits>

#include "check_same.h"
#include "devices_support.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/quantize.h"
#include "quanta/ops/tensor_quant.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"

namespace quanta {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// With zeros of both signs and what is not finite among the numbers.
Tensor random_floats(const Dims& sizes, DType dtype, Generator& generator) {
  const Tensor x = randn(sizes, generator);
  constexpr std::array kOdd{0.0F, -0.0F, kNaN, kInfinity, -kInfinity};
  for (std::size_t i = 0; i < kOdd.size() && x.numel() > 0; ++i) {
    if (generator.integer(0, 1) == 0) continue;
    x.mutable_data<float>()[generator.integer(0, x.numel() - 1)] = kOdd[i];
  }
  return x.to(dtype);
}

Dims random_sizes(std::int64_t channels, Generator& generator) {
  Dims sizes{generator.integer(1, 3), channels};
  const std::int64_t spatial = generator.integer(0, 3);
  for (std::int64_t d = 0; d < spatial; ++d) sizes.push_back(generator.integer(1, 5));
  return sizes;
}

Tensor in_random_order(const Tensor& x, Generator& generator) {
  return x.dim() == 4 && generator.integer(0, 1) == 1 ? x.contiguous(MemoryFormat::ChannelsLast)
                                                      : x;
}

}  // namespace

TEST_CASE("cuda prelu: values and gradients of floats are those of the CPU") {
  Generator generator(81);
  for (int round = 0; round < 40; ++round) {
    const DType dtype = round % 3 == 2 ? DType::Float64 : DType::Float32;
    const std::int64_t channels = generator.integer(1, 48);
    const Dims sizes = random_sizes(channels, generator);
    CAPTURE(round);
    const Tensor x = in_random_order(random_floats(sizes, dtype, generator), generator);
    const Tensor weight =
        random_floats(round % 4 == 0 ? Dims{1} : Dims{channels}, dtype, generator);
    const auto call = [](const std::vector<Tensor>& in) { return prelu(in[0], in[1]); };
    test::check_devices({x, weight}, round % 5 == 0 ? 0U : 0b11U, call);
  }
  const auto strided = [](const std::vector<Tensor>& in) {
    return prelu(in[0].transpose(0, 2), in[1]);
  };
  test::check_devices({random_floats({3, 5, 9}, DType::Float32, generator),
                       random_floats({5}, DType::Float32, generator)},
                      0b11, strided);
  const auto call = [](const std::vector<Tensor>& in) { return prelu(in[0], in[1]); };
  test::check_devices({Tensor::empty({0, 4}), Tensor::ones({4})}, 0b11, call);
  test::check_devices({Tensor::scalar(-2.0), Tensor::ones({1})}, 0b11, call);
}

TEST_CASE("cuda prelu: codes are those of the CPU") {
  Generator generator(82);
  const auto codes = [&](const Dims& sizes, DType dtype) {
    const std::int64_t zero_point =
        dtype == DType::QUInt8 ? generator.integer(0, 255) : generator.integer(-128, 127);
    return quantize_per_tensor(randn(sizes, generator), 0.001 + 0.03 * generator.uniform(),
                               zero_point, dtype);
  };
  for (int round = 0; round < 40; ++round) {
    const DType dtype = round % 2 == 0 ? DType::QUInt8 : DType::QInt8;
    const std::int64_t channels = generator.integer(1, 48);
    const QTensor x(in_random_order(codes(random_sizes(channels, generator), dtype), generator));
    const QTensor weight = codes(round % 4 == 0 ? Dims{1} : Dims{channels}, dtype);
    CAPTURE(round);
    test::check_same([&] { return quantized::prelu(x, weight, 0.013, 5); });
    const QTensor part(x.slice(0, 0, 1).transpose(0, 1).transpose(0, 1));
    test::check_same(
        [&] { return quantized::prelu(part, weight, 0.4, -7 + 12 * (round % 2 == 0)); });
  }
  const QTensor x(codes({2, 3}, DType::QInt32).to(test::test_device()));
  const QTensor weight(codes({3}, DType::QInt32).to(test::test_device()));
  CHECK_THROWS_WITH_AS(quantized::prelu(x, weight, 0.1, 0),
                       doctest::Contains("quantized::prelu: x: expected QUInt8, QInt8 on"),
                       UnsupportedError);
}

TEST_CASE("cuda clip: values and the gradients of all arguments are those of the CPU") {
  Generator generator(83);
  const auto call = [](const std::vector<Tensor>& in) { return clip(in[0], in[1], in[2]); };
  for (int round = 0; round < 40; ++round) {
    const DType dtype = round % 3 == 2 ? DType::Float64 : DType::Float32;
    const std::int64_t channels = generator.integer(1, 48);
    const Dims sizes = random_sizes(channels, generator);
    CAPTURE(round);
    const Tensor x = in_random_order(random_floats(sizes, dtype, generator), generator);
    const auto bound = [&] {
      Dims shape(sizes);
      for (std::int64_t& size : shape) size = generator.integer(0, 1) == 0 ? 1 : size;
      return round % 4 == 0 ? random_floats(Dims{1, 1, 1, 1, 1, 1}, dtype, generator)
                            : random_floats(shape, dtype, generator);
    };
    const Tensor low = bound();
    const Tensor high = bound();
    test::check_devices({x, low, high}, round % 5 == 0 ? 0U : 0b111U, call);
    // Equal bounds: the gradient goes to both.
    test::check_devices({x, low, low}, 0b111, call);
    test::check_devices({x, x, high}, 0b111, call);
  }
  test::check_devices({Tensor::empty({0, 4}), Tensor::ones({4}), Tensor::ones({1})}, 0b111, call);
}

}  // namespace quanta
