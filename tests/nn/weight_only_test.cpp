#include <doctest/doctest.h>

#include <array>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "quanta/nn/activation.h"
#include "quanta/nn/container.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/weight_only/linear.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/tensors.h"

namespace quanta::nn {
namespace {

const std::vector<WeightOnlyOptions> kOptions{{8, 0, true}, {8, 0, false},  {8, 32, true},
                                              {4, 0, true}, {4, 16, false}, {4, 64, true}};

std::shared_ptr<weight_only::Linear> quantized(const Linear& source,
                                               const WeightOnlyOptions& options) {
  return std::dynamic_pointer_cast<weight_only::Linear>(
      weight_only::Linear::from_float(source, options));
}

StateDict changed(const Module& module, const std::string& name, const Tensor& tensor) {
  StateDict state = module.state_dict();
  tensor.defined() ? state.set(name, tensor) : state.erase(name);
  return state;
}

}  // namespace

TEST_CASE("weight_only Linear: forward is linear_weight_only of the quantized weight") {
  Generator generator(1);
  const Linear source({.in_features = 64, .out_features = 10});
  for (const WeightOnlyOptions& options : kOptions) {
    const auto layer = quantized(source, options);
    const Tensor x = randn({3, 64}, generator);
    const auto packed = quantize_weight_only(source.weight, source.bias, options);
    CHECK((*layer)(x).equal(linear_weight_only(x, packed)));
    CHECK(layer->weight().equal(packed.dequantize()));
    CHECK((*layer)(x.to(DType::BFloat16)).dtype() == DType::BFloat16);
  }
}

TEST_CASE("weight_only Linear: a state loads into a layer of other bits and groups") {
  const Tensor x = test::random_tensor({2, 64}, 3);
  for (const bool bias : {true, false}) {
    const Linear source({.in_features = 64, .out_features = 10, .bias = bias});
    const Linear other({.in_features = 64, .out_features = 10});
    for (const WeightOnlyOptions& options : kOptions) {
      const auto layer = quantized(source, options);
      for (const WeightOnlyOptions& before : kOptions) {
        const auto loaded = quantized(other, before);
        loaded->load_state_dict(layer->state_dict());
        CHECK(loaded->options() == options);
        CHECK((*loaded)(x).equal((*layer)(x)));
        CHECK(to_string(*loaded) == to_string(*layer));
      }
    }
  }
}

TEST_CASE("weight_only Linear: the state has the documented names and dtypes") {
  const Linear source({.in_features = 33, .out_features = 5});
  const StateDict state = quantized(source, {4, 0, false})->state_dict();
  std::vector<std::string> names;
  for (const auto& [name, tensor] : state) names.push_back(name);
  CHECK(names == std::vector<std::string>{"weight_packed", "weight_scale", "weight_zero_point",
                                          "weight_format", "bias"});
  CHECK(state.at("weight_packed").dtype() == DType::UInt8);
  CHECK(state.at("weight_packed").sizes() == Dims{5, 17});
  CHECK(state.at("weight_scale").sizes() == Dims{5, 1});
  CHECK(state.at("weight_zero_point").dtype() == DType::UInt8);
  CHECK(state.at("weight_format").to_int64_vector() == std::vector<std::int64_t>{4, 0, 33, 0});
  CHECK(!quantized(source, {})->state_dict().contains("weight_zero_point"));
}

TEST_CASE("weight_only Linear: a corrupt state is refused whole") {
  const Linear source({.in_features = 64, .out_features = 10});
  const Tensor x = test::random_tensor({2, 64}, 5);
  const auto layer = quantized(source, {4, 16, false});
  const Tensor before = (*layer)(x);
  const auto format = [](std::int64_t bits, std::int64_t group, std::int64_t columns,
                         std::int64_t symmetric) {
    return Tensor::from_int64(std::array<std::int64_t, 4>{bits, group, columns, symmetric});
  };
  const Tensor nan = Tensor::full({10, 4}, std::numeric_limits<double>::quiet_NaN());
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t kLowest = std::numeric_limits<std::int64_t>::min();
  struct Bad {
    std::string name;
    Tensor tensor;
    std::string text;
  };
  const std::vector<Bad> all{
      {"weight_packed", {}, "weight_packed"},
      {"weight_packed", Tensor::zeros({10, 31}, DType::UInt8), "rows of 64 codes"},
      {"weight_packed", Tensor::zeros({9, 32}, DType::UInt8), "expected"},
      {"weight_packed", Tensor::zeros({320}, DType::UInt8), "expected"},
      {"weight_packed", Tensor::zeros({10, 32}, DType::Int8), "expected UInt8, got Int8"},
      {"weight_scale", {}, "weight_scale"},
      {"weight_scale", nan, "expected finite numbers > 0"},
      {"weight_scale", Tensor::full({10, 4}, -1.0), "expected finite numbers > 0"},
      {"weight_scale", Tensor::ones({10, 1}), "expected sizes [10, 4]"},
      {"weight_scale", Tensor::ones({10, 4}, DType::Float64), "expected Float32"},
      {"weight_zero_point", {}, "zero_points: expected a tensor"},
      {"weight_zero_point", Tensor::full({10, 4}, 16, DType::UInt8), "expected 0..15"},
      {"weight_zero_point", Tensor::zeros({4, 10}, DType::UInt8), "expected sizes [10, 4]"},
      {"weight_format", {}, "weight_format"},
      {"weight_format", Tensor::zeros({3}, DType::Int64), "expected Int64 [4]"},
      {"weight_format", Tensor::ones({4}), "expected Int64 [4]"},
      {"weight_format", format(3, 16, 64, 0), "expected 8 or 4 bits, got 3"},
      {"weight_format", format(kHuge, 16, 64, 0), "expected 8 or 4 bits"},
      {"weight_format", format(8, 16, 64, 0), "rows of 64 codes of 8 bits"},
      {"weight_format", format(4, 48, 64, 0), "power of two"},
      {"weight_format", format(4, kLowest, 64, 0), "power of two"},
      {"weight_format", format(4, 128, 64, 0), "divides the 64 input features"},
      {"weight_format", format(4, 32, 64, 0), "expected sizes [10, 2]"},
      {"weight_format", format(4, 16, kHuge, 0), "expected 64 input features"},
      {"weight_format", format(4, 16, 63, 0), "expected 64 input features"},
      {"weight_format", format(4, 16, 64, 2), "expected 0 or 1"},
      {"weight_format", format(4, 16, 64, 1), "expected none for symmetric codes"},
      {"bias", Tensor::zeros({9}), "bias: expected Float32 [10]"},
      {"bias", Tensor::zeros({10}, DType::Float64), "bias: expected Float32 [10]"},
  };
  for (const Bad& bad : all) {
    CAPTURE(bad.name);
    CAPTURE(bad.text);
    CHECK_THROWS_WITH_AS(layer->load_state_dict(changed(*layer, bad.name, bad.tensor)),
                         doctest::Contains(bad.text.c_str()), ArgumentError);
    CHECK((*layer)(x).equal(before));
  }
  const Linear wider({.in_features = 64, .out_features = 11});
  CHECK_THROWS_WITH_AS(layer->load_state_dict(quantized(wider, {})->state_dict()),
                       doctest::Contains("expected 10 rows, got 11"), ArgumentError);
}

TEST_CASE("weight_only Linear: printing tells features and bits and groups") {
  const Linear source({.in_features = 64, .out_features = 10, .bias = false});
  CHECK(to_string(*quantized(source, {4, 32, false})) ==
        "WeightOnlyLinear(in_features=64, out_features=10, bias=False, bits=4, group_size=32, "
        "symmetric=False)");
}

TEST_CASE("weight_only Linear: other modules and empty parameters are refused") {
  CHECK_THROWS_WITH_AS(weight_only::Linear::from_float(ReLU()),
                       doctest::Contains("expected Linear, got ReLU"), ArgumentError);
  CHECK_THROWS_WITH_AS(weight_only::Linear{WeightOnlyPackedParams{}},
                       doctest::Contains("packed: expected packed parameters"), ArgumentError);
  const Linear source({.in_features = 48, .out_features = 10});
  CHECK_THROWS_WITH_AS(weight_only::Linear::from_float(source, {4, 32, true}),
                       doctest::Contains("group_size: expected one that divides the 48"),
                       ArgumentError);
}

}  // namespace quanta::nn
