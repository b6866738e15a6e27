#include <array>
#include <string>
#include <utility>
#include <vector>

#include "gradients_support.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/reduce.h"
#include "quanta/runtime/error.h"
#include "support/capture_binding.h"

namespace quanta {
namespace {

using test::check_float32;
using test::check_gradient;
using test::check_gradients;
using test::Inputs;
using test::leaf;
using test::Order;

using Activation = std::function<Tensor(const Tensor&)>;

const std::vector<std::pair<std::string, Activation>>& activations() {
  static const std::vector<std::pair<std::string, Activation>> all{
      {"relu", [](const Tensor& x) { return relu(x); }},
      {"relu6", [](const Tensor& x) { return relu6(x); }},
      {"clamp", [](const Tensor& x) { return clamp(x, -1.0, 2.5); }},
      {"clamp from below", [](const Tensor& x) { return clamp(x, -1.0, {}); }},
      {"clamp from above", [](const Tensor& x) { return clamp(x, {}, 0.5); }},
      {"hardtanh", [](const Tensor& x) { return hardtanh(x, -0.7, 1.5); }},
      {"threshold", [](const Tensor& x) { return threshold(x, 0.3, -2.0); }},
      {"leaky_relu", [](const Tensor& x) { return leaky_relu(x, 0.2); }},
      {"hardsigmoid", [](const Tensor& x) { return hardsigmoid(x); }},
      {"hardswish", [](const Tensor& x) { return hardswish(x); }},
      {"sigmoid", [](const Tensor& x) { return sigmoid(x); }},
      {"tanh", [](const Tensor& x) { return tanh(x); }},
      {"gelu", [](const Tensor& x) { return gelu(x); }},
      {"gelu with tanh", [](const Tensor& x) { return gelu(x, GeluApproximation::Tanh); }},
      {"silu", [](const Tensor& x) { return silu(x); }},
      {"elu", [](const Tensor& x) { return elu(x, 0.8); }},
      {"celu", [](const Tensor& x) { return celu(x, 1.3); }},
      {"selu", [](const Tensor& x) { return selu(x); }},
      {"softplus", [](const Tensor& x) { return softplus(x, 1.5, 4.0); }},
      {"mish", [](const Tensor& x) { return mish(x); }},
      {"logsigmoid", [](const Tensor& x) { return logsigmoid(x); }},
      {"softsign", [](const Tensor& x) { return softsign(x); }},
      {"softmax over channels", [](const Tensor& x) { return softmax(x, 1); }},
      {"softmax over the last dimension", [](const Tensor& x) { return softmax(x, -1); }},
      {"log_softmax over channels", [](const Tensor& x) { return log_softmax(x, 1); }},
      {"log_softmax over the last dimension", [](const Tensor& x) { return log_softmax(x, -1); }},
  };
  return all;
}

}  // namespace

TEST_CASE("gradients of activations agree with finite differences") {
  for (const auto& [name, activation] : activations()) {
    CAPTURE_BINDING(name);
    for (const Dims& sizes : {Dims{7, 5}, Dims{2, 3, 4}, Dims{2, 3, 3, 2}}) {
      check_gradient(activation, leaf(sizes, 3, -5.0, 7.0));
    }
    // Through a view whose elements do not lie side by side.
    check_gradient([&activation = activation](
                       const Tensor& x) { return activation(x.transpose(0, 1).slice(1, 0, 5, 2)); },
                   leaf({5, 4}, 4, -5.0, 7.0));
  }
}

TEST_CASE("gradients of activations are the same in float32") {
  for (const auto& [name, activation] : activations()) {
    CAPTURE_BINDING(name);
    for (const Order order : {Order::Contiguous, Order::ChannelsLast}) {
      check_float32([&activation = activation](Inputs inputs) { return activation(inputs[0]); },
                    {leaf({3, 17, 5, 7}, 5, -5.0, 7.0)}, order, 4e-6);
    }
  }
}

TEST_CASE("gradients of prelu reach x and the weight") {
  const auto op = [](Inputs inputs) { return prelu(inputs[0], inputs[1]); };
  check_gradients(op, {leaf({3, 4, 5}), leaf({4}, 9)});
  check_gradients(op, {leaf({3, 4}), leaf({1}, 9)});
  check_gradients(op, {leaf({6}), leaf({1}, 9)});
  check_float32(op, {leaf({2, 5, 4, 3}), leaf({5}, 9)}, Order::ChannelsLast);
}

TEST_CASE("dropout: elements that were kept pass the gradient on scaled") {
  manual_seed(7);
  const Tensor x = leaf({40, 50});
  const Tensor y = dropout(x, 0.25);
  y.backward(Tensor::ones(y.sizes(), DType::Float64));
  std::int64_t dropped = 0;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const double gradient = x.grad().data<double>()[i];
    CHECK((gradient == 0.0 || gradient == 1.0 / 0.75));
    CHECK(y.data<double>()[i] == x.data<double>()[i] * gradient);
    dropped += gradient == 0.0 ? 1 : 0;
  }
  CHECK(dropped > 400);
  CHECK(dropped < 600);
}

TEST_CASE("gradients at kinks take torch's side") {
  struct Kink {
    Activation activation;
    float x;
    float gradient;
  };
  const std::array kinks{
      Kink{[](const Tensor& x) { return relu(x); }, 0.0F, 0.0F},
      Kink{[](const Tensor& x) { return relu6(x); }, 6.0F, 0.0F},
      Kink{[](const Tensor& x) { return clamp(x, 0.0, 1.0); }, 0.0F, 1.0F},
      Kink{[](const Tensor& x) { return clamp(x, 0.0, 1.0); }, 1.0F, 1.0F},
      Kink{[](const Tensor& x) { return hardtanh(x); }, 1.0F, 0.0F},
      Kink{[](const Tensor& x) { return hardsigmoid(x); }, -3.0F, 0.0F},
      Kink{[](const Tensor& x) { return leaky_relu(x, 0.5); }, 0.0F, 0.5F},
      Kink{[](const Tensor& x) { return elu(x, 2.0); }, 0.0F, 2.0F},
  };
  for (const Kink& kink : kinks) {
    const Tensor x = Tensor::full({3}, static_cast<double>(kink.x));
    x.set_requires_grad();
    kink.activation(x).backward(Tensor::ones({3}));
    CHECK(x.grad().to_float_vector() == std::vector<float>(3, kink.gradient));
  }
}

TEST_CASE("relu_: a tensor that requires a gradient is refused") {
  const Tensor x = leaf({3});
  CHECK_THROWS_WITH_AS(relu_(x), doctest::Contains("relu_: x: expected a tensor that requires no"),
                       ArgumentError);
  const autograd::NoGradGuard guard;
  CHECK_NOTHROW(relu_(x));
}

TEST_CASE("relu: a result that was changed in place is noticed by backward") {
  const Tensor x = leaf({3});
  const Tensor y = relu(x);
  {
    const autograd::NoGradGuard guard;
    y.fill_(1.0);
  }
  CHECK_THROWS_WITH_AS(sum(y).backward(), doctest::Contains("backward: relu: expected saved"),
                       ArgumentError);
}

}  // namespace quanta
