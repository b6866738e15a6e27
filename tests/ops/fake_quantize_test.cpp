#include "quanta/ops/fake_quantize.h"

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "elementwise_support.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/gradcheck.h"
#include "quanta/runtime/quant_math.h"
#include "quanta/runtime/random.h"
#include "support/tensors.h"
#include "support/threads.h"

namespace quanta {
namespace {

using test::for_each_target;
using test::in_layout;
using test::kLayouts;
using test::Layout;
using test::leaf;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Expected {
  std::vector<float> y;
  std::vector<float> mask;
};

math::FakeQuantizeParams params_of(float scale, float zero_point, std::int64_t min,
                                   std::int64_t max, bool float_zero_point) {
  return {scale,
          math::inverse_scale(scale),
          zero_point,
          static_cast<float>(min),
          static_cast<float>(max),
          float_zero_point};
}

/// The scalar function, element by element; `channel` gives the parameters of a logical index.
Expected reference(const Tensor& x,
                   const std::function<math::FakeQuantizeParams(std::int64_t)>& at) {
  Expected expected;
  const std::vector<float> values = x.to_float_vector();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto one = math::fake_quantize(values[i], at(static_cast<std::int64_t>(i)));
    expected.y.push_back(one.value);
    expected.mask.push_back(one.inside ? 1.0F : 0.0F);
  }
  return expected;
}

std::vector<float> times(const std::vector<float>& mask, const Tensor& grad) {
  std::vector<float> product = grad.to_float_vector();
  for (std::size_t i = 0; i < product.size(); ++i) {
    product[i] = mask[i] != 0.0F ? product[i] : 0.0F;
  }
  return product;
}

void set_odd_values(const Tensor& x) {
  const Tensor flat = x.view({-1});
  const float values[] = {kNan, kInfinity, -kInfinity, 1e30F, -0.0F};
  for (std::int64_t i = 0; i < 5 && i < flat.numel(); ++i) {
    flat.mutable_data<float>()[i] = values[i];
  }
}

}  // namespace

TEST_CASE("fake_quantize: a value takes the nearest code and its gradient stays in the range") {
  const Tensor x = leaf(Tensor::from_values({-1.0F, -0.3F, 0.24F, 0.26F, 0.75F, 9.0F}));
  const Tensor y = fake_quantize_per_tensor_affine(x, 0.5, 1, 0, 3);
  CHECK(y.equal(Tensor::from_values({-0.5F, -0.5F, 0.0F, 0.5F, 1.0F, 1.0F})));
  y.backward(Tensor::from_values({1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F}));
  CHECK(x.grad().equal(Tensor::from_values({0.0F, 2.0F, 3.0F, 4.0F, 5.0F, 0.0F})));
}

TEST_CASE("fake_quantize per tensor: every layout and instruction set gives the scalar numbers") {
  Generator generator(71);
  for_each_target([&] {
    for (const Layout layout : kLayouts) {
      for (const std::int64_t width : {1, 5, 33}) {
        const Tensor x = leaf(in_layout(layout, 7, 3, width, [&](const Dims& sizes) {
                                const Tensor values = randn(sizes, generator);
                                set_odd_values(values);
                                return values;
                              }).detach());
        const Tensor grad = randn(x.sizes(), generator);
        const Tensor y = fake_quantize_per_tensor_affine(x, 0.013, 100, 0, 255);
        const auto params = params_of(0.013F, 100.0F, 0, 255, false);
        const Expected expected = reference(x, [&](std::int64_t) { return params; });
        CHECK(y.to_float_vector() == expected.y);
        y.backward(grad);
        CHECK(x.grad().sizes() == x.sizes());
        CHECK(x.grad().to_float_vector() == times(expected.mask, grad));
      }
    }
  });
}

TEST_CASE("fake_quantize per tensor: a tensor beyond the caches is done in parts") {
  Generator generator(72);
  const Tensor x = leaf(randn({3, 3000001}, generator));
  const Tensor grad = randn(x.sizes(), generator);
  for_each_target([&] {
    x.clear_grad();
    const Tensor y = fake_quantize_per_tensor_affine(x, 0.01, -3, -128, 127);
    const auto params = params_of(0.01F, -3.0F, -128, 127, false);
    const Expected expected = reference(x, [&](std::int64_t) { return params; });
    CHECK(y.to_float_vector() == expected.y);
    y.backward(grad);
    CHECK(x.grad().to_float_vector() == times(expected.mask, grad));
  });
}

TEST_CASE("fake_quantize per channel: every axis and layout gives the scalar numbers") {
  Generator generator(73);
  for_each_target([&] {
    for (const Layout layout : kLayouts) {
      for (const std::int64_t axis : {0, 1, 2, 3, -1}) {
        for (const bool float_zero_point : {false, true}) {
          const Tensor x = leaf(in_layout(layout, 19, 3, 6, [&](const Dims& sizes) {
                                  const Tensor values = randn(sizes, generator);
                                  set_odd_values(values);
                                  return values;
                                }).detach());
          const std::int64_t channels = x.size(axis);
          const Tensor scale = rand({channels}, generator);
          const Tensor zero_point = float_zero_point
                                        ? randn({channels}, generator)
                                        : randint(-8, 8, {channels}, DType::Int32, generator);
          const Tensor y = fake_quantize_per_channel_affine(x, scale, zero_point, axis, -8, 7);
          const std::vector<float> scales = scale.to_float_vector();
          const std::vector<float> zero_points = zero_point.to_float_vector();
          const std::int64_t positive_axis = axis < 0 ? axis + 4 : axis;
          std::int64_t inner = 1;
          for (std::int64_t d = positive_axis + 1; d < 4; ++d) inner *= x.size(d);
          const Expected expected = reference(x, [&](std::int64_t i) {
            const auto c = static_cast<std::size_t>(i / inner % channels);
            return params_of(scales[c], zero_points[c], -8, 7, float_zero_point);
          });
          CHECK(y.to_float_vector() == expected.y);
          const Tensor grad = randn(x.sizes(), generator);
          y.backward(grad);
          CHECK(x.grad().to_float_vector() == times(expected.mask, grad));
        }
      }
    }
  });
}

TEST_CASE("fake_quantize: infinities saturate and NaN is the lowest code without a gradient") {
  const auto check = [](const std::function<Tensor(const Tensor&)>& function) {
    const Tensor x = leaf(Tensor::from_values({kInfinity, -kInfinity, kNan, 0.3F}, {4, 1}));
    const Tensor y = function(x);
    CHECK(y.to_float_vector() == std::vector<float>{12.7F, -12.8F, -12.8F, 0.3F});
    y.backward(Tensor::ones({4, 1}));
    CHECK(x.grad().to_float_vector() == std::vector<float>{0.0F, 0.0F, 0.0F, 1.0F});
  };
  const Tensor scale = Tensor::full({1}, 0.1);
  const Tensor zero_point = Tensor::zeros({1}, DType::Int32);
  check([](const Tensor& x) { return fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127); });
  check([&](const Tensor& x) {
    return fake_quantize_per_channel_affine(x, scale, zero_point, 1, -128, 127);
  });
}

TEST_CASE("fake_quantize: an infinite gradient outside of the range is no gradient") {
  const Tensor x = leaf(Tensor::from_values({0.5F, 900.0F}));
  fake_quantize_per_tensor_affine(x, 1.0, 0, 0, 255).backward(Tensor::full({2}, kInfinity));
  CHECK(x.grad().equal(Tensor::from_values({kInfinity, 0.0F})));
}

TEST_CASE("fake_quantize: a step of one scale has the straight-through derivative") {
  Tensor x = Tensor::empty({3, 5}, DType::Float64);
  // On the grid, so that a finite difference over one step meets no rounding; the ends of the range
  // and what lies beyond are at least a step apart from it.
  for (std::int64_t i = 0; i < 15; ++i) {
    x.mutable_data<double>()[i] = 0.5 * static_cast<double>(i % 11 < 5 ? i % 11 - 2 : 2 * i - 40);
  }
  x.set_requires_grad();
  const autograd::GradcheckOptions step{.eps = 0.5, .atol = 1e-6, .rtol = 1e-6};
  CHECK(autograd::gradcheck(
      [](std::span<const Tensor> inputs) {
        return fake_quantize_per_tensor_affine(inputs[0], 0.5, 0, -4, 4);
      },
      {x}, step));
  const Tensor scale = Tensor::full({5}, 0.5);
  const Tensor zero_point = Tensor::zeros({5}, DType::Int32);
  CHECK(autograd::gradcheck(
      [&](std::span<const Tensor> inputs) {
        return fake_quantize_per_channel_affine(inputs[0], scale, zero_point, 1, -4, 4);
      },
      {x}, step));
  CHECK(autograd::gradcheck(
      [&](std::span<const Tensor> inputs) {
        return fake_quantize_learnable_per_channel_affine(inputs[0], scale, Tensor::zeros({5}), 1,
                                                          -4, 4);
      },
      {x}, step));
}

TEST_CASE("fake_quantize: other dtypes give the float numbers and gradients of their own dtype") {
  Generator generator(74);
  for (const DType dtype : {DType::Float64, DType::Float16, DType::BFloat16}) {
    CAPTURE(to_string(dtype));
    const Tensor x = leaf(randn({4, 9}, generator).to(dtype));
    const Tensor same = leaf(x.detach().to(DType::Float32));
    const Tensor y = fake_quantize_per_tensor_affine(x, 0.05, 7, 0, 50);
    const Tensor expected = fake_quantize_per_tensor_affine(same, 0.05, 7, 0, 50);
    CHECK(y.dtype() == dtype);
    CHECK(y.equal(expected.detach().to(dtype)));
    y.backward(Tensor::ones(x.sizes(), dtype));
    expected.backward(Tensor::ones(x.sizes()));
    CHECK(x.grad().dtype() == dtype);
    CHECK(x.grad().to(DType::Float32).equal(same.grad()));
  }
}

TEST_CASE("fake_quantize: tensors as parameters and the switch") {
  const Tensor x = leaf(Tensor::from_values({-1.0F, 0.3F, 5.0F}));
  const Tensor scale = Tensor::full({1}, 0.25);
  const Tensor zero_point = Tensor::full({1}, 2.0, DType::Int32);
  const Tensor expected = fake_quantize_per_tensor_affine(x.detach(), 0.25, 2, 0, 15);
  CHECK(fake_quantize_per_tensor_affine(x, scale, zero_point, 0, 15).detach().equal(expected));
  const Tensor on = Tensor::ones({1}, DType::UInt8);
  CHECK(fake_quantize_per_tensor_affine(x, scale, zero_point, on, 0, 15).detach().equal(expected));
  const Tensor off = Tensor::zeros({1}, DType::UInt8);
  const Tensor through = fake_quantize_per_tensor_affine(x, scale, zero_point, off, 0, 15);
  CHECK(through.equal(x));
  through.backward(Tensor::ones({3}));
  CHECK(x.grad().equal(Tensor::ones({3})));
  // A scale that has gone to NaN shows in the result.
  const Tensor lost = Tensor::full({1}, static_cast<double>(kNan));
  CHECK(std::isnan(
      fake_quantize_per_tensor_affine(x.detach(), lost, zero_point, 0, 15).to_float_vector()[0]));
}

TEST_CASE("fake_quantize: without a need nothing is recorded and empty tensors pass") {
  const Tensor x = Tensor::from_values({0.1F, 0.2F});
  CHECK_FALSE(fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 255).requires_grad());
  const Tensor scale = Tensor::ones({3});
  const Tensor zero_point = Tensor::zeros({3}, DType::Int32);
  const Tensor empty = leaf(Tensor::empty({0, 3}));
  CHECK(fake_quantize_per_channel_affine(empty, scale, zero_point, 1, 0, 255).sizes() ==
        Dims{0, 3});
  const Tensor y = fake_quantize_per_tensor_affine(empty, 1.0, 0, 0, 255);
  y.backward(Tensor::empty({0, 3}));
  CHECK(empty.grad().sizes() == Dims{0, 3});
}

// Learned parameters -----------------------------------------------------------------------------

TEST_CASE("fake_quantize_learnable: torch's example") {
  const Tensor x = leaf(Tensor::from_values({-3.0F, -0.4F, 0.2F, 5.0F, 2.6F}));
  const Tensor scale = leaf(Tensor::full({1}, 0.5));
  const Tensor zero_point = leaf(Tensor::from_values({1.3F}));
  const Tensor y = fake_quantize_learnable_per_tensor_affine(x, scale, zero_point, -2, 3, 0.25);
  CHECK(y.detach().equal(Tensor::from_values({-1.5F, -0.5F, 0.0F, 1.0F, 1.0F})));
  y.backward(Tensor::ones({5}));
  CHECK(x.grad().equal(Tensor::from_values({0.0F, 1.0F, 1.0F, 0.0F, 0.0F})));
  CHECK(scale.grad().item() == doctest::Approx(0.1));
  CHECK(zero_point.grad().item() == doctest::Approx(-0.375));
}

TEST_CASE("fake_quantize_learnable: gradients of a channel are those of the channel alone") {
  Generator generator(75);
  for (const Layout layout : kLayouts) {
    for (const std::int64_t axis : {0, 1, 3}) {
      const Tensor x = leaf(in_layout(layout, 5, 4, 6, [&](const Dims& sizes) {
                              return randn(sizes, generator);
                            }).detach());
      const std::int64_t channels = x.size(axis);
      const Tensor scale = leaf(rand({channels}, generator));
      // Not negative: there torch's two forms differ.
      const Tensor zero_point = leaf(randint(0, 4, {channels}, DType::Float32, generator));
      const Tensor grad = randn(x.sizes(), generator);
      const Tensor y =
          fake_quantize_learnable_per_channel_affine(x, scale, zero_point, axis, -8, 7, 0.5);
      y.backward(grad);
      for (std::int64_t c = 0; c < channels; ++c) {
        const Tensor one_x = leaf(x.detach().select(axis, c).contiguous());
        const Tensor one_scale = leaf(scale.detach().slice(0, c, c + 1).clone());
        const Tensor one_zero_point = leaf(zero_point.detach().slice(0, c, c + 1).clone());
        const Tensor one_y =
            fake_quantize_learnable_per_tensor_affine(one_x, one_scale, one_zero_point, -8, 7, 0.5);
        CHECK(one_y.detach().equal(y.detach().select(axis, c)));
        one_y.backward(grad.select(axis, c));
        CHECK(one_x.grad().equal(x.grad().select(axis, c)));
        const auto at = static_cast<std::size_t>(c);
        CHECK(scale.grad().to_float_vector()[at] == doctest::Approx(one_scale.grad().item()));
        CHECK(zero_point.grad().to_float_vector()[at] ==
              doctest::Approx(one_zero_point.grad().item()));
      }
    }
  }
}

TEST_CASE("fake_quantize_learnable: sums do not depend on the threads and double agrees") {
  Generator generator(76);
  const Tensor values = randn({300, 1111}, generator);
  const Tensor grad = randn(values.sizes(), generator);
  const auto gradients = [&](DType dtype) {
    const Tensor x = leaf(values.to(dtype).clone());
    const Tensor scale = leaf(Tensor::full({1}, 0.015625));
    const Tensor zero_point = leaf(Tensor::from_values({20.2F}));
    fake_quantize_learnable_per_tensor_affine(x, scale, zero_point, 0, 127, 1e-3)
        .backward(grad.to(dtype));
    return std::pair{scale.grad().item(), zero_point.grad().item()};
  };
  const test::Threads guard(1);
  const auto one = gradients(DType::Float32);
  set_num_threads(3);
  const auto three = gradients(DType::Float32);
  CHECK(one == three);
  for_each_target([&] { CHECK(gradients(DType::Float32) == one); });
  const auto exact = gradients(DType::Float64);
  CHECK(one.first == doctest::Approx(exact.first).epsilon(1e-5));
  CHECK(one.second == doctest::Approx(exact.second).epsilon(1e-5));
}

TEST_CASE("fake_quantize_learnable: one scale has torch's rounding of zero points in backward") {
  // The forward uses -1, so that the last code stands for 4; the gradients take 0, and -1.6 steps
  // as code -2 instead of -3, which is in the range.
  const Tensor x = leaf(Tensor::from_values({-1.6F, 4.0F}));
  const Tensor scale = leaf(Tensor::ones({1}));
  const Tensor zero_point = leaf(Tensor::from_values({-1.3F}));
  const Tensor y = fake_quantize_learnable_per_tensor_affine(x, scale, zero_point, -2, 3);
  CHECK(y.detach().equal(Tensor::from_values({-1.0F, 4.0F})));
  y.backward(Tensor::ones({2}));
  CHECK(x.grad().equal(Tensor::from_values({1.0F, 0.0F})));
  CHECK(scale.grad().item() == doctest::Approx((-2.0 + 1.6) + (3.0 - 0.0)));
}

TEST_CASE("fake_quantize_learnable: only what asks for a gradient gets one") {
  const Tensor x = Tensor::from_values({0.1F, 9.0F});
  const Tensor scale = leaf(Tensor::full({1}, 0.5));
  const Tensor zero_point = Tensor::zeros({1});
  fake_quantize_learnable_per_tensor_affine(x, scale, zero_point, 0, 7).backward(Tensor::ones({2}));
  CHECK(scale.grad().item() == doctest::Approx((0.0 - 0.1) / 0.5 + 7.0));
  CHECK_FALSE(zero_point.grad().defined());
}

// Bad input --------------------------------------------------------------------------------------

TEST_CASE("fake_quantize: wrong arguments are refused by name") {
  const Tensor x = Tensor::ones({2, 3});
  const Tensor scale = Tensor::ones({3});
  const Tensor zero_point = Tensor::zeros({3}, DType::Int32);
  const auto says = [](const std::function<void()>& call, const char* text) {
    CHECK_THROWS_WITH_AS(call(), doctest::Contains(text), ArgumentError);
  };
  says([&] { fake_quantize_per_tensor_affine(x, 0.1, 0, 5, 4); },
       "fake_quantize_per_tensor_affine: quant_min: expected quant_min <= quant_max, got 5 and 4");
  says([&] { fake_quantize_per_tensor_affine(x, 0.1, 300, 0, 255); },
       "zero_point: expected 0..255, got 300");
  says([&] { fake_quantize_per_tensor_affine(x, 0.0, 0, 0, 255); },
       "scale: expected a finite number > 0, got 0");
  says([&] { fake_quantize_per_tensor_affine(Tensor(), 0.1, 0, 0, 255); },
       "x: expected a tensor, got an undefined one");
  says([&] { fake_quantize_per_tensor_affine(x.to(DType::Int32), 0.1, 0, 0, 255); },
       "x: expected Float32, Float64, Float16 or BFloat16, got Int32");
  says([&] { fake_quantize_per_tensor_affine(x, scale, zero_point, 0, 255); },
       "scale: expected one value");
  says([&] { fake_quantize_per_channel_affine(x, scale, zero_point, 2, 0, 255); }, "axis");
  says([&] { fake_quantize_per_channel_affine(x, scale, zero_point, 0, 0, 255); },
       "fake_quantize_per_channel_affine: scale: expected one value for each index along axis in "
       "[2], got [3]");
  says([&] { fake_quantize_per_channel_affine(x, scale, Tensor::zeros({2}), 1, 0, 255); },
       "zero_point: expected one value for each index along axis");
  says([&] { fake_quantize_per_channel_affine(x, scale, zero_point, 1, 1, 255); },
       "zero_point: expected 1..255, got 0");
  says([&] { fake_quantize_per_channel_affine(x, zero_point, zero_point, 1, 0, 255); },
       "scale: expected a floating tensor, got Int32");
  says([&] { fake_quantize_learnable_per_channel_affine(x, scale, zero_point, 1, 0, 255); },
       "fake_quantize_learnable_per_channel_affine: zero_point: expected a floating tensor");
}

}  // namespace quanta
