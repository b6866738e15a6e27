#include "quanta/ops/quantize_affine.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "gradients_support.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/half.h"
#include "support/compare.h"
#include "support/tensors.h"
#include "support/threads.h"

namespace quanta {
namespace {

using test::check_same;
using test::says;
using test::uniform_tensor;

using Function = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const AffineOptions&);

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Shapes {
  Dims x;
  Dims scale;
  Dims block_size;
};

// Each with odd sizes somewhere, so that vectors have a rest.
const std::vector<Shapes> kShapes{
    {{7, 37}, {}, {}},
    {{7, 37}, {7, 1}, {}},
    {{7, 37}, {37}, {}},
    {{3, 5, 19}, {5, 1}, {}},
    {{3, 5, 19}, {3, 1, 19}, {}},
    {{4, 36}, {4, 3}, {1, 12}},
    {{4, 36}, {2, 3}, {2, -1}},
    {{3, 4, 36}, {2, 36}, {2, 1}},
    {{3, 4, 36}, {1, 9}, {-1, 4}},
    {{0, 4}, {4}, {}},
    {{6}, {6}, {1}},
    {{2, 3, 4, 5}, {3, 1, 1}, {}},
    {{1, 40000}, {1, 1}, {}},
    {{5, 4}, {5, 4}, {}},
};

Tensor random_offsets(const Dims& sizes, std::uint64_t seed) {
  Tensor x = uniform_tensor(sizes, seed, -6.0F, 6.0F);
  auto* values = x.mutable_data<float>();
  for (std::int64_t i = 0; i < x.numel(); ++i) values[i] = std::nearbyint(values[i]);
  return x;
}

// The index of the parameter of element `flat`, by the definition: coordinates divided by blocks.
std::int64_t parameter_of(const Shapes& shapes, std::int64_t flat) {
  std::vector<std::int64_t> index(shapes.x.size());
  for (std::size_t d = shapes.x.size(); d-- > 0;) {
    index[d] = flat % shapes.x[d];
    flat /= shapes.x[d];
  }
  const std::size_t skipped = shapes.x.size() - shapes.scale.size();
  std::int64_t parameter = 0;
  for (std::size_t d = 0; d < shapes.scale.size(); ++d) {
    const std::int64_t block = shapes.x[d + skipped] / shapes.scale[d];
    parameter = parameter * shapes.scale[d] + index[d + skipped] / block;
  }
  return parameter;
}

AffineOptions options_of(const Shapes& shapes) {
  AffineOptions options;
  options.qmin = -11;
  options.qmax = 13;
  options.block_size = shapes.block_size;
  options.kernel = AffineKernel::Divide;
  return options;
}

// Values with ties, infinities and NaN among them.
Tensor special_values(const Dims& sizes, std::uint64_t seed) {
  Tensor x = uniform_tensor(sizes, seed, -3.0F, 3.0F);
  auto* values = x.mutable_data<float>();
  const float specials[] = {kInfinity, -kInfinity, NAN, 0.0F, -0.0F, 1e30F, 0.25F, -0.75F};
  for (std::int64_t i = 0; i < x.numel(); i += 5) values[i] = specials[(i / 5) % 8];
  return x;
}

TEST_CASE("quantize_affine and its kin give the scalar arithmetic's numbers for every shape") {
  for (const Shapes& shapes : kShapes) {
    CAPTURE(to_string(shapes.x));
    CAPTURE(to_string(shapes.scale));
    const Tensor x = special_values(shapes.x, 3);
    const Tensor scale = uniform_tensor(shapes.scale, 4, 0.05F, 0.4F);
    const Tensor offset = random_offsets(shapes.scale, 5);
    const auto* from = x.data<float>();
    const auto* s = scale.data<float>();
    const auto* o = offset.data<float>();
    for (const double shift : {0.0, 0.5}) {
      AffineOptions options = options_of(shapes);
      const math::AffineLimits<float> limits{-11.0F, 13.0F, static_cast<float>(shift)};
      std::vector<float> codes;
      std::vector<float> both;
      std::vector<float> back;
      for (std::int64_t i = 0; i < x.numel(); ++i) {
        const std::int64_t p = parameter_of(shapes, i);
        codes.push_back(math::affine_quantize(from[i], s[p], o[p], limits));
        back.push_back(math::affine_dequantize(from[i], s[p], o[p]));
        both.push_back(math::affine_quantize_dequantize(from[i], s[p], o[p], limits));
      }
      if (shift == 0.0) {
        check_same(quantize_affine(x, scale, offset, options), codes);
        check_same(dequantize_affine(x, scale, offset, options), back);
      }
      options.zero_point_shift = shift;
      check_same(quantize_dequantize_affine(x, scale, offset, options), both);
    }
  }
}

TEST_CASE("quantize_dequantize_affine keeps channels-last order and its values") {
  const Tensor x = uniform_tensor({2, 5, 7, 3}, 1, -2.0F, 2.0F);
  const Tensor scale = uniform_tensor({5, 1, 1}, 2, 0.1F, 0.3F);
  const Tensor offset = random_offsets({5, 1, 1}, 3);
  const AffineOptions options = options_of({});
  const Tensor y = quantize_dequantize_affine(x, scale, offset, options);
  const Tensor last =
      quantize_dequantize_affine(x.contiguous(MemoryFormat::ChannelsLast), scale, offset, options);
  CHECK(last.is_contiguous(MemoryFormat::ChannelsLast));
  CHECK(last.equal(y));
}

TEST_CASE(
    "affine quantizers: scales of channels and rows belong to their elements in channels-last") {
  const Tensor x = uniform_tensor({2, 5, 7, 3}, 1, -2.0F, 2.0F);
  for (const Dims& sizes : {Dims{5, 7, 1}, Dims{2, 5, 7, 3}, Dims{5, 1, 3}}) {
    const Tensor scale = uniform_tensor(sizes, 2, 0.1F, 0.3F);
    const Tensor offset = random_offsets(sizes, 3);
    for (const Function function :
         {&quantize_affine, &dequantize_affine, &quantize_dequantize_affine}) {
      const Tensor y = function(x, scale, offset, options_of({}));
      const Tensor last =
          function(x.contiguous(MemoryFormat::ChannelsLast), scale, offset, options_of({}));
      CHECK(last.equal(y));
    }
  }
}

TEST_CASE("quantize_dequantize_affine rounds halves away from zero when asked") {
  AffineOptions options = options_of({});
  options.rounding = AffineRounding::HalfAwayFromZero;
  const Tensor x = Tensor::from_values({0.5F, 1.5F, -0.5F, -2.5F, 2.4F});
  const Tensor y = quantize_dequantize_affine(x, Tensor::scalar(1.0), Tensor::scalar(0.0), options);
  check_same(y, {1.0F, 2.0F, -1.0F, -3.0F, 2.0F});
}

TEST_CASE("quantize_dequantize_affine: the kernels agree but near ties") {
  const Tensor x = uniform_tensor({64, 64}, 9, -2.0F, 2.0F);
  const Tensor scale = uniform_tensor({64, 1}, 10, 0.1F, 0.3F);
  const Tensor offset = Tensor::zeros({64, 1});
  AffineOptions options = options_of({});
  const std::vector<float> divide =
      quantize_dequantize_affine(x, scale, offset, options).to_float_vector();
  options.kernel = AffineKernel::InverseMultiply;
  const std::vector<float> multiply =
      quantize_dequantize_affine(x, scale, offset, options).to_float_vector();
  std::size_t different = 0;
  for (std::size_t i = 0; i < divide.size(); ++i) different += divide[i] != multiply[i] ? 1U : 0U;
  CHECK(different <= divide.size() / 1000);
}

TEST_CASE("quantize_affine calculates half precision in steps of that precision") {
  const Tensor x = uniform_tensor({200}, 1).to(DType::Float16);
  const Tensor scale = Tensor::scalar(0.0301, DType::Float16);
  const Tensor offset = Tensor::scalar(3.0, DType::Float16);
  AffineOptions options;
  const Tensor y = quantize_dequantize_affine(x, scale, offset, options);
  CHECK(y.dtype() == DType::Float16);
  const auto half = [](float value) {
    return math::float16_to_float(math::float_to_float16(value));
  };
  std::vector<float> want;
  options.kernel = AffineKernel::Divide;
  for (const float value : x.to_float_vector()) {
    const float steps = half(value / scale.to_float_vector()[0]);
    const float code = math::clamp(half(std::nearbyint(steps) - 3.0F), -128.0F, 127.0F);
    want.push_back(half(half(code + 3.0F) * scale.to_float_vector()[0]));
  }
  check_same(quantize_dequantize_affine(x, scale, offset, options), want);
}

TEST_CASE("quantize_affine: a grid that float32 cannot calculate runs in float64") {
  AffineOptions options;
  options.qmin = -(std::int64_t{1} << 23);
  options.qmax = (std::int64_t{1} << 23) - 1;
  const Tensor x = uniform_tensor({100}, 1, -1.0F, 1.0F);
  const Tensor scale = Tensor::scalar(1.0 / 8388608.0);
  const Tensor y = quantize_dequantize_affine(x, scale, Tensor::scalar(0.0), options);
  const std::vector<float> in = x.to_float_vector();
  const std::vector<float> out = y.to_float_vector();
  for (std::size_t i = 0; i < in.size(); ++i) CHECK(std::fabs(in[i] - out[i]) <= 6e-8F);
}

// Gradients --------------------------------------------------------------------------------------

TEST_CASE("dequantize_affine: gradients agree with finite differences") {
  for (const Shapes& shapes : kShapes) {
    if (product(shapes.x) > 1000 || product(shapes.x) == 0) continue;
    const AffineOptions options = options_of(shapes);
    test::check_gradients(
        [options](test::Inputs in) { return dequantize_affine(in[0], in[1], in[2], options); },
        {test::leaf(shapes.x, 1), test::leaf(shapes.scale, 2, 0.1, 0.4),
         test::leaf(shapes.scale, 3, -4.0, 4.0)});
  }
}

// What straight-through rounding is the derivative of: the distance to the rounded value is held.
struct Surrogate {
  Shapes shapes;
  Function function;
  std::vector<double> x, scale, offset, residual;

  double at(std::size_t i) const {
    const auto p = static_cast<std::size_t>(parameter_of(shapes, static_cast<std::int64_t>(i)));
    const double code = x[i] / scale[p] + residual[i] - offset[p];
    const double clamped = std::clamp(code, -11.0, 13.0);
    return function == quantize_affine ? clamped : (clamped + offset[p]) * scale[p];
  }
  double weighted(const std::vector<double>& weights) const {
    double sum = 0.0;
    for (std::size_t i = 0; i < x.size(); ++i) sum += at(i) * weights[i];
    return sum;
  }
};

std::vector<double> doubles(const Tensor& x) {
  const auto* from = x.data<double>();
  return {from, from + x.numel()};
}

void check_against(const Tensor& gradient, Surrogate surrogate, std::vector<double> Surrogate::*of,
                   const std::vector<double>& weights) {
  constexpr double kStep = 1e-6;
  const std::vector<double> got = doubles(gradient.contiguous());
  for (std::size_t i = 0; i < got.size(); ++i) {
    double& value = (surrogate.*of)[i];
    const double before = value;
    value = before + kStep;
    const double above = surrogate.weighted(weights);
    value = before - kStep;
    const double below = surrogate.weighted(weights);
    value = before;
    CHECK(got[i] == doctest::Approx((above - below) / (2 * kStep)).epsilon(1e-4));
  }
}

TEST_CASE("quantize_affine and quantize_dequantize_affine: gradients are straight-through") {
  for (const Function function : {&quantize_affine, &quantize_dequantize_affine}) {
    for (const Shapes& shapes : kShapes) {
      if (product(shapes.x) > 300 || product(shapes.x) == 0) continue;
      CAPTURE(to_string(shapes.x));
      CAPTURE(to_string(shapes.scale));
      const Tensor x = test::leaf(shapes.x, 1, -6.0, 6.0);
      const Tensor scale = test::leaf(shapes.scale, 2, 0.15, 0.4);
      const Tensor offset = test::leaf(shapes.scale, 3, -4.0, 4.0);
      Surrogate surrogate{shapes, function, doubles(x), doubles(scale), doubles(offset), {}};
      for (std::size_t i = 0; i < surrogate.x.size(); ++i) {
        const auto p = static_cast<std::size_t>(parameter_of(shapes, static_cast<std::int64_t>(i)));
        const double steps = surrogate.x[i] / surrogate.scale[p];
        surrogate.residual.push_back(std::nearbyint(steps) - steps);
      }
      const Tensor weights = test::leaf(shapes.x, 4).detach();
      function(x, scale, offset, options_of(shapes)).backward(weights);
      check_against(x.grad(), surrogate, &Surrogate::x, doubles(weights));
      check_against(scale.grad(), surrogate, &Surrogate::scale, doubles(weights));
      check_against(offset.grad(), surrogate, &Surrogate::offset, doubles(weights));
    }
  }
}

TEST_CASE("quantize_dequantize_affine: float32 gradients agree with float64 ones") {
  for (const Shapes& shapes : kShapes) {
    if (product(shapes.x) == 0) continue;
    const AffineOptions options = options_of(shapes);
    // Values that both precisions round alike: a quarter away from every tie.
    const Tensor codes = random_offsets(shapes.x, 8);
    const Tensor scale = Tensor::full(shapes.scale, 0.25, DType::Float64);
    const Tensor offset = Tensor::full(shapes.scale, 2.0, DType::Float64);
    const Tensor x = add_scalar(mul_scalar(codes.to(DType::Float64), 0.75), 0.0625);
    x.set_requires_grad();
    scale.set_requires_grad();
    offset.set_requires_grad();
    test::check_float32(
        [options](test::Inputs in) {
          return quantize_dequantize_affine(in[0], in[1], in[2], options);
        },
        {x, scale, offset});
  }
}

TEST_CASE("quantize_dequantize_affine: sums of gradients do not depend on threads") {
  std::vector<Tensor> sums;
  for (const int threads : {1, 2, 3}) {
    const test::Threads guard(threads);
    const Tensor x = uniform_tensor({300, 700}, 1, -4.0F, 4.0F);
    const Tensor scale = uniform_tensor({300, 1}, 2, 0.1F, 0.2F);
    const Tensor offset = random_offsets({300, 1}, 3);
    x.set_requires_grad();
    scale.set_requires_grad();
    offset.set_requires_grad();
    quantize_dequantize_affine(x, scale, offset, options_of({}))
        .backward(uniform_tensor({300, 700}, 4, -1.0F, 1.0F));
    sums.push_back(scale.grad());
    sums.push_back(offset.grad());
  }
  CHECK(sums[0].equal(sums[2]));
  CHECK(sums[0].equal(sums[4]));
  CHECK(sums[1].equal(sums[3]));
}

TEST_CASE("quantize_dequantize_affine multiplies gradients near ties when asked") {
  AffineOptions options = options_of({});
  options.spike_epsilon = 0.2;
  options.spike_multiplier = 3.0;
  const Tensor x = Tensor::from_values({0.1F, 0.45F, 1.3F, 1.55F, 99.45F});
  x.set_requires_grad();
  const Tensor y = quantize_dequantize_affine(x, Tensor::scalar(1.0), Tensor::scalar(0.0), options);
  y.backward(Tensor::ones({5}));
  check_same(x.grad(), {1.0F, 3.0F, 1.0F, 3.0F, 0.0F});
}

// Bad input --------------------------------------------------------------------------------------

TEST_CASE("quantize_affine names what is wrong with its arguments") {
  const Tensor x = Tensor::ones({4, 12});
  const auto run = [&](const Dims& shape, const Dims& blocks) {
    AffineOptions options;
    options.block_size = blocks;
    return [=] { quantize_affine(x, Tensor::ones(shape), Tensor::zeros(shape), options); };
  };
  says(run({3, 1}, {}), "scale: expected a shape that can be expanded to [4, 12], got [3, 1]");
  says(run({1, 4, 12}, {}), "scale: expected a shape that can be expanded");
  says(run({4, 4}, {3}), "block_size: expected one entry for each of the 2 dimensions");
  says(run({4, 4}, {1, 5}), "to be 12 along dimension 1, got 4 times 5");
  says(run({4, 5}, {1, -1}), "scale: expected a size along dimension 1 that divides 12");
  says(run({4, 4}, {1, 0}), "block_size: expected -1 or entries > 0, got [1, 0]");
  says([&] { quantize_affine(x, Tensor::ones({}), Tensor::zeros({1})); },
       "offset: expected the sizes of scale, [], got [1]");
  says([&] { quantize_affine(x.to(DType::Int32), Tensor::ones({}), Tensor::zeros({})); },
       "x: expected Float32, Float64, Float16 or BFloat16, got Int32");
  says([&] { quantize_affine(Tensor(), Tensor::ones({}), Tensor::zeros({})); },
       "x: expected a tensor, got an undefined one");
}

TEST_CASE("quantize_affine names what is wrong with its options") {
  const Tensor x = Tensor::ones({4, 12});
  const auto run = [&](const AffineOptions& options, Function function, DType dtype) {
    return
        [=] { function(x.to(dtype), Tensor::ones({}, dtype), Tensor::zeros({}, dtype), options); };
  };
  AffineOptions options;
  options.qmin = 9;
  options.qmax = 3;
  says(run(options, quantize_affine, DType::Float32), "qmin: expected qmin <= qmax");
  options = {};
  options.qmax = 65535;
  says(run(options, quantize_affine, DType::Float16),
       "x: expected a dtype that can represent the range -128..65535, got Float16");
  options = {};
  options.zero_point_shift = 0.25;
  says(run(options, quantize_dequantize_affine, DType::Float32),
       "zero_point_shift: expected 0 or 0.5, got 0.25");
  options.zero_point_shift = 0.5;
  says(run(options, quantize_affine, DType::Float32), "zero_point_shift: expected 0");
  options = {};
  options.spike_multiplier = 2.0;
  says(run(options, quantize_dequantize_affine, DType::Float32), "spike_epsilon: expected");
  options = {};
  options.kernel = AffineKernel::InverseMultiply;
  options.zero_point_shift = 0.5;
  says(run(options, quantize_dequantize_affine, DType::Float32),
       "kernel: expected what InverseMultiply can do");
}

}  // namespace
}  // namespace quanta
