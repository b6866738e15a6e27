#include "quanta/ops/cuda/float_map.h"

#include <doctest/doctest.h>

#include <functional>
#include <limits>
#include <vector>

#include "library_functions.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/elementwise.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/compare.h"
#include "support/device_guide.h"
#include "support/test_device.h"

// Functions of one float. Some are those of the device's library (float_map.h).

namespace quanta {
namespace {

struct Function {
  const char* name;
  std::function<Tensor(const Tensor&)> call;
  int units = 0;  ///< in the last place, by which a GPU's library may differ from the CPU's
};

std::vector<Function> all_functions() {
  return {
      {"exp", exp},
      {"erf", erf},
      {"gelu", [](const Tensor& x) { return gelu(x); }},
      {"gelu with tanh", [](const Tensor& x) { return gelu(x, GeluApproximation::Tanh); }},
      {"sqrt", sqrt},
      {"reciprocal", reciprocal},
      {"floor", floor},
      {"ceil", ceil},
      {"round", round},
      {"neg", neg},
      {"abs", abs},
      {"sign", sign},
      {"hardsigmoid", hardsigmoid},
      {"hardswish", hardswish},
      {"leaky_relu", [](const Tensor& x) { return leaky_relu(x, 0.3); }},
      {"threshold", [](const Tensor& x) { return threshold(x, -0.4, 7.5); }},
      {"hardshrink", [](const Tensor& x) { return hardshrink(x, 0.7); }},
      {"softsign", softsign},
      {"log", log, 1},
      {"sin", sin, 1},
      {"cos", cos, 1},
      {"tan", tan, 1},
      {"asin", asin, 1},
      {"acos", acos, 1},
      {"atan", atan, 1},
      {"sinh", sinh, 1},
      {"cosh", cosh, 1},
      {"asinh", asinh, 1},
      {"acosh", acosh, 1},
      {"atanh", atanh, 1},
      {"sigmoid", sigmoid, cuda::kMostUnits},
      {"tanh", tanh, cuda::kMostUnits},
      {"silu", silu, cuda::kMostUnits},
      {"elu", [](const Tensor& x) { return elu(x, 0.6); }, cuda::kMostUnits},
      {"celu", [](const Tensor& x) { return celu(x, 1.7); }, cuda::kMostUnits},
      {"selu", selu, cuda::kMostUnits},
      {"softplus", [](const Tensor& x) { return softplus(x, 0.8, 3.0); }, cuda::kMostUnits},
      {"mish", mish, cuda::kMostUnits},
      {"logsigmoid", logsigmoid, cuda::kMostUnits},
  };
}

/// Normal numbers of several sizes, and what is at an edge of some function.
Tensor numbers(const Dims& sizes, Generator& generator) {
  const Tensor x = randn(sizes, generator);
  auto* values = x.mutable_data<float>();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> edges{
      0.0F,       -0.0F, 1.0F,    -1.0F,  3.0F,
      -3.0F,      0.5F,  -1.5F,   2.5F,   -0.4F,
      0.7F,       -0.7F, 90.0F,   -90.0F, kInfinity,
      -kInfinity, 1e30F, -1e-40F, 6.1F,   std::numeric_limits<float>::quiet_NaN()};
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    values[i] *= i % 3 == 0 ? 0.1F : i % 3 == 1 ? 1.0F : 20.0F;
  }
  for (std::size_t i = 0; i < edges.size() && 3 * static_cast<std::int64_t>(i) < x.numel(); ++i) {
    values[3 * i] = edges[i];
  }
  return x;
}

}  // namespace

TEST_CASE("cuda float map: every function is the CPU's for dense floats") {
  Generator generator(31);
  const Device device = test::test_device();
  for (const Function& function : all_functions()) {
    CAPTURE(function.name);
    for (const std::int64_t count : {1, 61, 1023, 1024, 2051}) {
      const Tensor x = numbers({count}, generator);
      test::check_units(function.call(x.to(device)).cpu(), function.call(x), function.units);
    }
  }
}

TEST_CASE("cuda float map: any layout") {
  Generator generator(32);
  const Device device = test::test_device();
  const Tensor image = numbers({2, 5, 7, 3}, generator);
  const Tensor row = numbers({2100}, generator);
  for (const Function& function : all_functions()) {
    CAPTURE(function.name);
    for (const Tensor& x :
         {image.contiguous(MemoryFormat::ChannelsLast), image.permute({3, 1, 0, 2}),
          image.narrow(2, 1, 3), image.narrow(1, 2, 1).expand({2, 4, 7, 3})}) {
      const Tensor got = function.call(x.to(device));
      CHECK(got.suggested_format() == function.call(x).suggested_format());
      test::check_units(got.cpu(), function.call(x), function.units);
    }
    // Dense, but not at an address for four floats at once.
    const Tensor there = row.to(device).narrow(0, 1, 2049);
    test::check_units(function.call(there).cpu(), function.call(row.narrow(0, 1, 2049)),
                      function.units);
    CHECK(function.call(Tensor::zeros({0, 3}).to(device)).sizes() == Dims{0, 3});
    CHECK(function.call(numbers({}, generator).to(device)).numel() == 1);
  }
}

TEST_CASE("cuda float map: doubles are refused by name") {
  const Tensor x = Tensor::zeros({3}, DType::Float64).to(test::test_device());
  test::fails({"gelu", "Float64", "cuda"}, [&] { gelu(x); });
  test::fails({"exp", "Float64", "cuda"}, [&] { exp(x); });
}

}  // namespace quanta
