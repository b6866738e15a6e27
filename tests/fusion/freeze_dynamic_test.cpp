// freeze: what goes into the pass of a dynamic linear layer, and ranges that are handed on to it.

#include <doctest/doctest.h>

#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "ops/conv_reference.h"
#include "ops/instruction_sets.h"
#include "quanta/fusion/freeze.h"
#include "quanta/fusion/quantize_dynamic.h"
#include "quanta/nn/norm.h"
#include "quanta/nn/transformer.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/linear_dynamic.h"
#include "quanta/ops/norm.h"
#include "quanta/runtime/error.h"
#include "support/compare.h"
#include "support/count_text.h"
#include "support/tensors.h"

namespace quanta {
namespace {

using quantized::linear_dynamic;
using quantized::LinearPackedParams;
using quantized::ReduceRange;

struct Function : nn::Module {
  std::function<Tensor(const Tensor&)> body;

  explicit Function(std::function<Tensor(const Tensor&)> given) : body(std::move(given)) { eval(); }
  Tensor forward(const Tensor& x) const override { return body(x); }
};

LinearPackedParams packed(std::int64_t out, std::int64_t in, Generator& generator) {
  return {testing::random_weight({out, in}, {0}, generator), randn({out}, generator)};
}

/// The plan of `body` gives what it gives, from several inputs.
FrozenModel checked_plan(const Function& net, const Dims& sizes, Generator& generator) {
  FrozenModel frozen = freeze(net, randn(sizes, generator));
  for (const float factor : {1.0F, 30.0F, 0.01F}) {
    const Tensor x = mul_scalar(randn(sizes, generator), factor);
    CHECK(frozen(x).equal(net(x)));
  }
  return frozen;
}

// Rows for each of the kernels, and features that fill no vector, vectors and tiles.
struct Layer {
  std::int64_t rows, features;
};
const std::vector<Layer> kLayers{{1, 20},   {3, 64},  {7, 33},  {13, 64},
                                 {20, 128}, {33, 64}, {70, 100}};

/// body(rows, features, generator) for each layer on each instruction set.
template <typename Body>
void for_each_layer(std::uint64_t seed, const Body& body) {
  test::for_each_instruction_set([&] {
    Generator generator(seed);
    for (const Layer& layer : kLayers) {
      CAPTURE(layer.rows);
      CAPTURE(layer.features);
      body(layer.rows, layer.features, generator);
    }
  });
}

TEST_CASE("freeze: what follows a dynamic linear layer goes into its pass") {
  for_each_layer(11, [](std::int64_t rows, std::int64_t features, Generator& generator) {
    const LinearPackedParams weight = packed(features, features, generator);
    const Tensor other = randn({rows, features}, generator);
    const auto linear = [&](const Tensor& x) { return linear_dynamic(x, weight, ReduceRange::No); };
    const auto steps = [&](std::function<Tensor(const Tensor&)> body) {
      return checked_plan(Function(std::move(body)), {rows, features}, generator).info().steps;
    };
    CHECK(steps([&](const Tensor& x) { return gelu(linear(x)); }) == 1);
    CHECK(steps([&](const Tensor& x) { return relu(linear(x)); }) == 1);
    CHECK(steps([&](const Tensor& x) { return add(x, linear(x)); }) == 1);
    CHECK(steps([&](const Tensor& x) { return add(linear(x), other); }) == 1);
    // Into the later one of two.
    CHECK(steps([&](const Tensor& x) { return add(linear(x), linear(relu(x))); }) == 3);
    // One function is all that fits.
    CHECK(steps([&](const Tensor& x) { return relu(add(x, linear(x))); }) == 2);
    CHECK(steps([&](const Tensor& x) { return gelu(linear(x), GeluApproximation::Tanh); }) == 2);
    // Somebody else wants what is between.
    CHECK(steps([&](const Tensor& x) {
            const Tensor y = linear(x);
            return add(gelu(y), y);
          }) == 3);
    CHECK(steps([&](const Tensor& x) {
            const Tensor y = linear(x);
            return add(y, y);
          }) == 2);
    CHECK(steps([&](const Tensor& x) { return add(linear(x), other.slice(0, 0, 1)); }) ==
          (rows == 1 ? 1 : 2));
  });
}

TEST_CASE("freeze: a dynamic linear layer is given the range of what it reads") {
  for_each_layer(12, [](std::int64_t rows, std::int64_t features, Generator& generator) {
    const LinearPackedParams wide = packed(3 * features, features, generator);
    const LinearPackedParams narrow = packed(features, 3 * features, generator);
    const Tensor weight = randn({features}, generator);
    const Tensor bias = randn({features}, generator);
    const Function net([&](const Tensor& x) {
      const Tensor y = layer_norm(x, {features}, weight, bias);
      const Tensor hidden = gelu(linear_dynamic(y, wide, ReduceRange::Yes));
      const Tensor z = add(y, linear_dynamic(hidden, narrow, ReduceRange::No));
      // What comes from outside has no range that is known.
      return add(z,
                 linear_dynamic(linear_dynamic(x, wide, ReduceRange::No), narrow, ReduceRange::No));
    });
    const FrozenModel frozen = checked_plan(net, {rows, features}, generator);
    const std::string text = frozen.to_string();
    CAPTURE(text);
    CHECK(test::count_text(text, "range_given=true") == 3);
    CHECK(test::count_text(text, "tells_range=true") == 3);
  });
}

TEST_CASE("freeze: numbers that are not finite are refused as without a plan") {
  Generator generator(13);
  const LinearPackedParams wide = packed(192, 64, generator);
  const LinearPackedParams narrow = packed(64, 192, generator);
  const Function net([&](const Tensor& x) {
    return linear_dynamic(relu(linear_dynamic(x, wide, ReduceRange::No)), narrow, ReduceRange::No);
  });
  const Function normalized([&](const Tensor& x) {
    return linear_dynamic(layer_norm(x, {64}, Tensor(), Tensor()), wide, ReduceRange::No);
  });
  for (const std::int64_t rows : {2, 40}) {
    for (const Function* function : {&net, &normalized}) {
      const FrozenModel frozen = freeze(*function, randn({rows, 64}, generator));
      for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                              std::numeric_limits<float>::infinity(), 3e38F}) {
        CAPTURE(bad);
        Tensor x = randn({rows, 64}, generator);
        x.mutable_data<float>()[65] = bad;
        const auto message = [&](const auto& call) -> std::string {
          try {
            return call(x).equal(x) ? "" : "a result";
          } catch (const ArgumentError& error) {
            return error.what();
          }
        };
        const std::string wanted = message(*function);
        CHECK(message(frozen) == wanted);
        if (bad != 3e38F) CHECK(wanted.find("expected finite values") != std::string::npos);
      }
    }
  }
}

TEST_CASE("freeze: what a layer's bias makes of numbers stays what it is behind it") {
  Generator generator(15);
  for (const std::int64_t rows : {2, 40}) {
    const Tensor bias = randn({40}, generator);
    bias.mutable_data<float>()[3] = std::numeric_limits<float>::quiet_NaN();
    bias.mutable_data<float>()[39] = std::numeric_limits<float>::infinity();
    const LinearPackedParams weight(testing::random_weight({40, 64}, {0}, generator), bias);
    for (const bool is_gelu : {false, true}) {
      CAPTURE(is_gelu);
      const Function net([&](const Tensor& x) {
        const Tensor y = linear_dynamic(x, weight, ReduceRange::No);
        return is_gelu ? gelu(y) : relu(y);
      });
      const Tensor x = randn({rows, 64}, generator);
      CHECK(test::same_bits(freeze(net, x)(x), net(x)));
    }
  }
}

TEST_CASE("freeze: torch's transformer layers, quantized dynamically, are joined") {
  Generator generator(14);
  for (const bool norm_first : {false, true}) {
    for (const auto activation :
         {nn::TransformerActivation::GELU, nn::TransformerActivation::ReLU}) {
      CAPTURE(norm_first);
      nn::TransformerEncoderLayer layer({.d_model = 64,
                                         .nhead = 4,
                                         .dim_feedforward = 128,
                                         .activation = activation,
                                         .batch_first = true,
                                         .norm_first = norm_first});
      layer.eval();
      const auto int8 = quantize_dynamic(layer);
      const FrozenModel frozen = freeze(int8, randn({2, 9, 64}, generator));
      const Tensor x = randn({2, 9, 64}, generator);
      CHECK(frozen(x).equal(int8(x)));
      const std::string text = frozen.to_string();
      CAPTURE(text);
      const bool is_gelu = activation == nn::TransformerActivation::GELU;
      CHECK(test::count_text(text, is_gelu ? "linear_gelu_dynamic" : "linear_relu_dynamic") == 1);
      CHECK(test::count_text(text, "linear_add_dynamic") >= 1);
      CHECK(test::count_text(text, "range_given=true") >= 1);
    }
  }
}

}  // namespace
}  // namespace quanta
