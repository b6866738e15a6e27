#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "cuda/devices_support.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/fake_quantize.h"
#include "quanta/ops/reduce.h"
#include "quanta/runtime/error.h"
#include "support/test_device.h"

// The tape on a device: gradients that meet, and gradients of what was broadcast.

namespace quanta {
namespace {

const Device kDevice = test::test_device();

Tensor random(const Dims& sizes, std::uint64_t seed, DType dtype = DType::Float32) {
  Generator generator(seed);
  return randn(sizes, generator).to(dtype);
}

}  // namespace

TEST_CASE("cuda gradients: those that meet are added") {
  for (const DType dtype : {DType::Float32, DType::Float64, DType::BFloat16}) {
    CAPTURE(dtype);
    // The gradients come in different orders in memory.
    test::check_devices({random({3, 7, 5}, 1, dtype)}, 1, [](const std::vector<Tensor>& in) {
      const Tensor turned = in[0].permute({2, 0, 1}).contiguous().permute({1, 2, 0});
      const std::vector<Tensor> parts{
          fake_quantize_per_tensor_affine(in[0], 0.1, 0, -8, 7).to(DType::Float32),
          fake_quantize_per_tensor_affine(in[0], 0.2, 3, -4, 9).to(DType::Float32),
          fake_quantize_per_tensor_affine(turned, 0.3, 1, -4, 9).to(DType::Float32)};
      return add(add(parts[0], parts[1]), parts[2]);
    });
  }
}

TEST_CASE("cuda gradients: sums over broadcast dimensions are the CPU's") {
  const Tensor x = random({4, 3, 33, 2}, 2);
  for (const Dims& sizes : {Dims{}, Dims{1}, Dims{2}, Dims{33, 2}, Dims{3, 1, 1}, Dims{4, 1, 33, 1},
                            Dims{1, 3, 33, 2}, Dims{4, 3, 33, 2}}) {
    CAPTURE(sizes);
    test::check_devices({x, random(sizes, 3)}, 0b11,
                        [](const std::vector<Tensor>& in) { return add(in[0], in[1]); });
    test::check_devices({x, random(sizes, 3)}, 0b11,
                        [](const std::vector<Tensor>& in) { return mul(in[0], in[1]); });
  }
  // Longer than what a block of threads adds at once.
  test::check_devices({random({1, 5000}, 4), random({1}, 5)}, 0b10,
                      [](const std::vector<Tensor>& in) { return add(in[0], in[1]); });
}

TEST_CASE("cuda gradients: backward starts on the tensor's device") {
  const Tensor x = Tensor::from_values({0.3F}).to(kDevice);
  x.set_requires_grad();
  const Tensor y = fake_quantize_per_tensor_affine(x, 0.1, 0, -8, 7);
  y.backward({}, true);
  y.backward({}, true);
  CHECK(x.grad().device() == kDevice);
  CHECK(x.grad().item() == 2.0);
  const std::string expected =
      "gradient: expected one on " + to_string(kDevice) + ", got one on cpu";
  CHECK_THROWS_WITH_AS(y.backward(Tensor::ones({1})), doctest::Contains(expected.c_str()),
                       ArgumentError);
}

TEST_CASE("cuda gradients: those of slices and numbers stay on the device") {
  const Tensor x = random({4, 5, 6}, 7);
  test::check_devices({x}, 1, [](const std::vector<Tensor>& in) {
    return add(in[0].slice(1, 0, 5, 1).select(0, 1).slice(1, 0, 4, 2),
               in[0].select(0, 2).slice(1, 4, 6));
  });
}

TEST_CASE("cuda gradients: one without a kernel names its operation") {
  const Tensor x = random({5, 3}, 6).to(kDevice);
  x.set_requires_grad();
  const Tensor y = std(x, {1});
  CHECK_THROWS_WITH_AS(y.backward(Tensor::ones({5}).to(kDevice)),
                       doctest::Contains("std: x: expected a tensor on cpu"), UnsupportedError);
}

}  // namespace quanta
