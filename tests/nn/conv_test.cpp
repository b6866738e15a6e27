#include "quanta/nn/conv.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <thread>
#include <vector>

#include "quanta/nn/linear.h"
#include "quanta/ops/activation.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/compare.h"

namespace quanta::nn {
namespace {

using test::check_close;

Conv2d small_conv() {
  return Conv2d({.in_channels = 4, .out_channels = 6, .kernel_size = {3}, .padding = {1}});
}

TEST_CASE("Conv2d: new weights lie within one over the square root of the fan-in") {
  manual_seed(3);
  const Conv2d conv({.in_channels = 16, .out_channels = 32, .kernel_size = {3}, .groups = 2});
  const float bound = 1.0F / std::sqrt(8.0F * 9.0F);
  CHECK(conv.weight.sizes() == Dims{32, 8, 3, 3});
  float largest = 0.0F;
  for (const float value : conv.weight.to_float_vector()) {
    largest = std::max(largest, std::abs(value));
  }
  CHECK(largest <= bound);
  CHECK(largest > 0.95F * bound);
  for (const float value : conv.bias.to_float_vector()) CHECK(std::abs(value) <= bound);
}

TEST_CASE("Conv2d: state has torch's names and no bias without one") {
  CHECK(small_conv().state_dict().contains("weight"));
  CHECK(small_conv().state_dict().contains("bias"));
  const Conv2d conv({.in_channels = 1, .out_channels = 1, .kernel_size = {1}, .bias = false});
  CHECK(conv.state_dict().size() == 1);
}

TEST_CASE("Conv2d: printing is torch's") {
  CHECK(to_string(small_conv()) ==
        "Conv2d(4, 6, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))");
  const Conv2d conv({.in_channels = 4,
                     .out_channels = 8,
                     .kernel_size = {1, 3},
                     .stride = {2},
                     .dilation = {1, 2},
                     .groups = 4,
                     .bias = false});
  CHECK(to_string(conv) ==
        "Conv2d(4, 8, kernel_size=(1, 3), stride=(2, 2), dilation=(1, 2), groups=4, bias=False)");
  CHECK(to_string(Conv1d({.in_channels = 2, .out_channels = 2, .kernel_size = {5}})) ==
        "Conv1d(2, 2, kernel_size=(5,), stride=(1,))");
  CHECK(to_string(ConvTranspose2d({.in_channels = 6,
                                   .out_channels = 5,
                                   .kernel_size = {2},
                                   .stride = {2},
                                   .output_padding = {1}})) ==
        "ConvTranspose2d(6, 5, kernel_size=(2, 2), stride=(2, 2), output_padding=(1, 1))");
}

TEST_CASE("Conv2d: wrong options are refused by name") {
  const Conv2dOptions good{.in_channels = 4, .out_channels = 6, .kernel_size = {3}};
  Conv2dOptions options = good;
  options.groups = 4;
  CHECK_THROWS_WITH_AS(
      Conv2d{options},
      doctest::Contains("Conv2d: groups: expected a divisor of in_channels 4 and out_channels 6"),
      ArgumentError);
  options = good;
  options.in_channels = 0;
  CHECK_THROWS_WITH_AS(Conv2d{options}, doctest::Contains("in_channels: expected at least 1"),
                       ArgumentError);
  options = good;
  options.kernel_size = {};
  CHECK_THROWS_WITH_AS(Conv2d{options}, doctest::Contains("kernel_size: expected 1 or 2 numbers"),
                       ArgumentError);
  options = good;
  options.stride = {0};
  CHECK_THROWS_WITH_AS(Conv2d{options}, doctest::Contains("stride: expected at least 1"),
                       ArgumentError);
  options = good;
  options.padding = {1, 1, 1};
  CHECK_THROWS_WITH_AS(Conv2d{options}, doctest::Contains("padding: expected 1 or 2 numbers"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(
      ConvTranspose2d(
          {.in_channels = 1, .out_channels = 1, .kernel_size = {2}, .output_padding = {1}}),
      doctest::Contains("output_padding: expected less than the stride"), ArgumentError);
  CHECK_THROWS_AS(Linear({.in_features = 0, .out_features = 1}), ArgumentError);
}

TEST_CASE("Conv2d: the packed weight of eval mode gives what train mode gives") {
  Conv2d conv = small_conv();
  const Tensor x = randn({2, 4, 9, 7});
  const Tensor want = conv(x);
  conv.eval();
  check_close(conv(x), want);
  check_close(conv.forward(x, Fusion::ReLU), relu(want));
  conv.train();
  check_close(conv.forward(x, Fusion::ReLU), relu(want));
}

TEST_CASE("Conv2d: a changed or replaced weight is packed again") {
  Conv2d conv = small_conv();
  conv.eval();
  const Tensor x = randn({1, 4, 6, 6});
  static_cast<void>(conv(x));

  conv.weight.mutable_data<float>()[5] += 1.0F;
  check_close(conv(x), conv2d(x, conv.weight, conv.bias, {.padding = {1}}));

  conv.bias.fill_(0.5);
  check_close(conv(x), conv2d(x, conv.weight, conv.bias, {.padding = {1}}));

  conv.weight = randn({6, 4, 3, 3});
  check_close(conv(x), conv2d(x, conv.weight, conv.bias, {.padding = {1}}));

  conv.bias = Tensor();
  check_close(conv(x), conv2d(x, conv.weight, Tensor(), {.padding = {1}}));

  const Conv2d other = small_conv();
  conv.bias = randn({6});
  conv.load_state_dict(other.state_dict());
  check_close(conv(x), conv2d(x, other.weight, other.bias, {.padding = {1}}));
}

TEST_CASE("Conv2d: a clone does not follow the original") {
  const auto conv =
      make_module<Conv2d>(Conv2dOptions{.in_channels = 2, .out_channels = 3, .kernel_size = {3}});
  conv->eval();
  const Tensor x = randn({1, 2, 5, 5});
  const Tensor before = (*conv)(x);
  const std::shared_ptr<Module> copy = conv->clone();
  conv->weight.fill_(0.0);
  CHECK((*copy)(x).equal(before));
  CHECK_FALSE((*conv)(x).equal(before));
  CHECK_FALSE(copy->is_training());
}

TEST_CASE("Conv2d: many threads may call one module in eval mode") {
  Conv2d conv = small_conv();
  conv.eval();
  const Tensor x = randn({1, 4, 8, 8});
  const Tensor want = deep_copy(conv)(x);
  std::vector<Tensor> results(8);
  std::vector<std::thread> threads;
  for (Tensor& result : results) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) result = conv(x);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Tensor& result : results) CHECK(result.equal(want));
}

TEST_CASE(
    "Conv1d and Conv3d and transposed convolutions: results have the sizes of their formulas") {
  Conv1d conv1({.in_channels = 3, .out_channels = 4, .kernel_size = {5}, .padding = {2}});
  CHECK(conv1.eval()(randn({2, 3, 11})).sizes() == Dims{2, 4, 11});
  Conv3d conv3({.in_channels = 2,
                .out_channels = 4,
                .kernel_size = {1, 3, 3},
                .stride = {1, 2, 2},
                .groups = 2});
  CHECK(conv3.eval()(randn({1, 2, 3, 7, 7})).sizes() == Dims{1, 4, 3, 3, 3});
  ConvTranspose2d transposed(
      {.in_channels = 6, .out_channels = 4, .kernel_size = {2}, .stride = {2}, .groups = 2});
  CHECK(transposed.weight.sizes() == Dims{6, 2, 2, 2});
  CHECK(transposed.eval()(randn({1, 6, 4, 4})).sizes() == Dims{1, 4, 8, 8});
}

TEST_CASE("Linear: eval mode follows changes of the weight") {
  Linear linear_layer({.in_features = 5, .out_features = 3});
  linear_layer.eval();
  const Tensor x = randn({4, 5});
  check_close(linear_layer(x), linear(x, linear_layer.weight, linear_layer.bias));
  linear_layer.weight.fill_(1.0);
  check_close(linear_layer(x), linear(x, linear_layer.weight, linear_layer.bias));
  check_close(linear_layer.forward(x, Fusion::ReLU),
              relu(linear(x, linear_layer.weight, linear_layer.bias)));
  CHECK(to_string(linear_layer) == "Linear(in_features=5, out_features=3, bias=True)");
}

}  // namespace
}  // namespace quanta::nn
