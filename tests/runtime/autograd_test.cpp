#include "quanta/runtime/autograd.h"

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "quanta/runtime/error.h"
#include "quanta/runtime/gradcheck.h"
#include "support/compare.h"
#include "support/tensors.h"

namespace {

using quanta::test::leaf;
using quanta::test::message_of;

using quanta::ArgumentError;
using quanta::Dims;
using quanta::DType;
using quanta::Tensor;
namespace autograd = quanta::autograd;

// y = factor * x * x, by hand, so that the tape is tested without the library's ops.
Tensor scaled_square(const Tensor& x, double factor) {
  Tensor y = Tensor::empty(x.sizes(), x.dtype());
  const Tensor values = x.detach().to(DType::Float64).contiguous();
  Tensor result = Tensor::empty(x.sizes(), DType::Float64);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const double value = values.data<double>()[i];
    result.mutable_data<double>()[i] = factor * value * value;
  }
  y.copy_(result);
  if (!autograd::needs_grad(x)) return y;
  return autograd::record(
      "scaled_square", {x}, y, {x}, [factor](const autograd::BackwardContext& backward) {
        const Tensor x_saved = backward.saved(0).to(DType::Float64).contiguous();
        const Tensor grad = backward.grad().to(DType::Float64).contiguous();
        Tensor result = Tensor::empty(grad.sizes(), DType::Float64);
        for (std::int64_t i = 0; i < grad.numel(); ++i) {
          result.mutable_data<double>()[i] =
              2.0 * factor * x_saved.data<double>()[i] * grad.data<double>()[i];
        }
        return std::vector<Tensor>{result.to(backward.saved(0).dtype())};
      });
}

}  // namespace

TEST_CASE("backward multiplies the derivatives along the tape") {
  const Tensor x = leaf(Tensor::from_values({1.0F, 2.0F, -3.0F}));
  const Tensor y = scaled_square(scaled_square(x, 1.0), 0.5);
  CHECK(y.requires_grad());
  CHECK_FALSE(y.is_leaf());
  y.backward(Tensor::from_values({1.0F, 1.0F, 10.0F}));
  // d/dx x^4 / 2 = 2 x^3
  CHECK(x.grad().equal(Tensor::from_values({2.0F, 16.0F, -540.0F})));
}

TEST_CASE("gradients are added up over uses and over calls") {
  const Tensor x = leaf(Tensor::from_values({2.0F}));
  for (int call = 1; call <= 2; ++call) {
    scaled_square(x, 1.0).backward();
    scaled_square(x, 3.0).backward();
    CHECK(x.grad().item() == doctest::Approx(16.0 * call));
  }
  x.clear_grad();
  CHECK_FALSE(x.grad().defined());
}

TEST_CASE("a tensor that is used twice gets both gradients before its own op goes back") {
  const Tensor x = leaf(Tensor::from_values({3.0F, 1.0F}));
  const Tensor y = scaled_square(x, 1.0);
  const Tensor both = y.reshape({1, 2}).expand({4, 2});
  both.backward(Tensor::ones({4, 2}));
  CHECK(x.grad().equal(Tensor::from_values({24.0F, 8.0F})));
}

TEST_CASE("nothing is recorded without need or under a guard") {
  const Tensor plain = Tensor::from_values({1.0F});
  CHECK_FALSE(scaled_square(plain, 1.0).requires_grad());
  const Tensor x = leaf(Tensor::from_values({1.0F}));
  {
    const autograd::NoGradGuard off;
    CHECK_FALSE(autograd::is_grad_enabled());
    CHECK_FALSE(scaled_square(x, 1.0).requires_grad());
    CHECK_FALSE(x.view({1, 1}).requires_grad());
    {
      const autograd::EnableGradGuard on;
      CHECK(scaled_square(x, 1.0).requires_grad());
    }
    // Other threads decide for themselves.
    bool enabled = false;
    std::thread([&] { enabled = autograd::is_grad_enabled(); }).join();
    CHECK(enabled);
  }
  CHECK(autograd::is_grad_enabled());
  CHECK_FALSE(x.detach().requires_grad());
}

TEST_CASE("views, copies and conversions pass gradients on") {
  const auto check = [](const std::function<Tensor(const Tensor&)>& function, const Dims& sizes) {
    Tensor x = Tensor::empty(sizes, DType::Float64);
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      x.mutable_data<double>()[i] = 0.3 * static_cast<double>(i % 7) - 0.8;
    }
    x.set_requires_grad();
    CHECK(autograd::gradcheck(
        [&](std::span<const Tensor> inputs) { return scaled_square(function(inputs[0]), 1.5); },
        {x}));
  };
  check([](const Tensor& x) { return x.view({6, 4}); }, {2, 3, 4});
  check([](const Tensor& x) { return x.permute({2, 0, 1}); }, {2, 3, 4});
  check([](const Tensor& x) { return x.permute({-1, 0, 1}).reshape({4, 6}); }, {2, 3, 4});
  check([](const Tensor& x) { return x.transpose(0, 2).flatten(1); }, {2, 3, 4});
  check([](const Tensor& x) { return x.select(1, -1); }, {2, 3, 4});
  check([](const Tensor& x) { return x.slice(2, 1, 4, 2); }, {2, 3, 4});
  check([](const Tensor& x) { return x.narrow(0, 1, 1); }, {2, 3, 4});
  check([](const Tensor& x) { return x.unsqueeze(1).expand({2, 5, 3}); }, {2, 3});
  check([](const Tensor& x) { return x.expand({4, 2, 3}); }, {2, 1});
  check([](const Tensor& x) { return x.expand({4, 2, 3}).select(2, 1); }, {2, 1});
  check([](const Tensor& x) { return x.squeeze().unsqueeze(0); }, {2, 1, 3});
  check([](const Tensor& x) { return x.t().contiguous(); }, {2, 3});
  check([](const Tensor& x) { return x.clone(); }, {2, 3});
  check([](const Tensor& x) { return x[1]; }, {2, 3});
}

TEST_CASE("sum_to_size adds up what broadcasting repeated") {
  const Tensor gradient = Tensor::arange(24).view({2, 3, 4});
  CHECK(autograd::sum_to_size(gradient, {2, 3, 4}).is_same(gradient));
  CHECK(autograd::sum_to_size(gradient, {4})
            .equal(Tensor::from_values({60.0F, 66.0F, 72.0F, 78.0F})));
  CHECK(autograd::sum_to_size(gradient, {3, 1})
            .equal(Tensor::from_values({60.0F, 92.0F, 124.0F}, {3, 1})));
  CHECK(autograd::sum_to_size(gradient, {}).item() == 276.0);
  CHECK(autograd::sum_to_size(gradient, {2, 1, 4}).sizes() == Dims{2, 1, 4});
  CHECK_THROWS_AS(autograd::sum_to_size(gradient, {5}), ArgumentError);
}

TEST_CASE("hooks see complete gradients and may change them") {
  const Tensor x = leaf(Tensor::from_values({3.0F}));
  const Tensor y = scaled_square(x, 1.0);
  std::vector<double> seen;
  const auto id = y.register_hook([&](const Tensor& grad) {
    seen.push_back(grad.item());
    return Tensor::full({1}, 10.0);
  });
  x.register_hook([&](const Tensor& grad) {
    seen.push_back(grad.item());
    return Tensor();
  });
  y.backward({}, true);
  CHECK(seen == std::vector<double>{1.0, 60.0});
  y.remove_hook(id);
  y.backward();
  CHECK(seen == std::vector<double>{1.0, 60.0, 6.0});
  CHECK(x.grad().item() == 66.0);
}

TEST_CASE("retain_grad keeps the gradient of a tensor that is no leaf") {
  const Tensor x = leaf(Tensor::from_values({3.0F}));
  const Tensor y = scaled_square(x, 1.0);
  y.retain_grad();
  scaled_square(y, 1.0).backward();
  CHECK(y.grad().item() == 18.0);
  {
    const Tensor lost = scaled_square(x, 1.0);
    lost.retain_grad();
  }
  // A retained tensor that is gone takes its gradient along and harms nobody.
  Tensor end;
  {
    const Tensor middle = scaled_square(x, 1.0);
    middle.retain_grad();
    end = scaled_square(middle, 1.0);
  }
  end.backward();
  CHECK(x.grad().item() == doctest::Approx(108.0 + 108.0));
}

TEST_CASE("grad() gives gradients without keeping them") {
  const Tensor x = leaf(Tensor::from_values({3.0F}));
  const Tensor unused = leaf(Tensor::from_values({1.0F}));
  const Tensor y = scaled_square(x, 1.0);
  const Tensor z = scaled_square(y, 1.0);
  const std::vector<Tensor> outputs{z};
  const std::vector<Tensor> inputs{x, y};
  const auto gradients = autograd::grad(outputs, inputs, {.retain_graph = true});
  CHECK(gradients[0].item() == 108.0);
  CHECK(gradients[1].item() == 18.0);
  CHECK_FALSE(x.grad().defined());
  const std::vector<Tensor> with_unused{unused};
  CHECK_THROWS_AS(autograd::grad(outputs, with_unused, {.retain_graph = true}), ArgumentError);
  const auto allowed = autograd::grad(outputs, with_unused, {.allow_unused = true});
  CHECK_FALSE(allowed[0].defined());
}

namespace {

struct RoundStraightThrough : autograd::Function<RoundStraightThrough> {
  static Tensor forward(autograd::Context& context, const Tensor& x, double step) {
    CHECK_FALSE(autograd::is_grad_enabled());
    context.values = {step};
    context.save_for_backward({x});
    Tensor y = Tensor::empty(x.sizes());
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      y.mutable_data<float>()[i] =
          static_cast<float>(step * std::nearbyint(x.data<float>()[i] / step));
    }
    return y;
  }
  static std::vector<Tensor> backward(const autograd::Context& context,
                                      const autograd::BackwardContext& backward) {
    CHECK(context.values.at(0) == 0.5);
    CHECK(backward.saved(0).sizes() == backward.grad().sizes());
    return {backward.grad()};
  }
};

}  // namespace

TEST_CASE("a custom function brings its own backward") {
  const Tensor x = leaf(Tensor::from_values({0.3F, 1.1F}));
  const Tensor y = RoundStraightThrough::apply(x, 0.5);
  CHECK(y.equal(Tensor::from_values({0.5F, 1.0F})));
  y.backward(Tensor::from_values({7.0F, 8.0F}));
  CHECK(x.grad().equal(Tensor::from_values({7.0F, 8.0F})));
}

TEST_CASE("wrong calls of backward say what to do") {
  const Tensor x = leaf(Tensor::from_values({1.0F, 2.0F}));
  const Tensor y = scaled_square(x, 1.0);
  CHECK(message_of([&] { y.backward(); }).find("gradient: expected one for a tensor") !=
        std::string::npos);
  CHECK_THROWS_AS(y.backward(Tensor::ones({3})), ArgumentError);
  CHECK_THROWS_AS(y.backward(Tensor::ones({2}, DType::Float64)), ArgumentError);
  CHECK_THROWS_AS(Tensor::ones({1}).backward(), ArgumentError);
  y.backward(Tensor::ones({2}));
  CHECK(message_of([&] { y.backward(Tensor::ones({2})); }).find("retain_graph") !=
        std::string::npos);
  CHECK_THROWS_AS(y.set_requires_grad(false), ArgumentError);
  CHECK_THROWS_AS(Tensor::arange(3, DType::Int64).set_requires_grad(), ArgumentError);
  CHECK_THROWS_AS(x.fill_(1.0), ArgumentError);
  CHECK_THROWS_AS(x.copy_(Tensor::ones({2})), ArgumentError);
}

TEST_CASE("a saved tensor that was changed in place is noticed and nothing is lost") {
  const Tensor x = leaf(Tensor::from_values({1.0F, 2.0F}));
  const Tensor y = scaled_square(x, 1.0);
  {
    const autograd::NoGradGuard guard;
    x.fill_(5.0);
  }
  CHECK(message_of([&] { y.backward(Tensor::ones({2})); }).find("changed in place") !=
        std::string::npos);
  CHECK_FALSE(x.grad().defined());
}

TEST_CASE("a long tape is freed without deep recursion") {
  Tensor x = leaf(Tensor::from_values({1.0F}));
  Tensor y = x;
  for (int i = 0; i < 200000; ++i) y = y.view({1});
  y.backward({}, true);
  CHECK(x.grad().item() == 1.0);
  y = Tensor();
}
