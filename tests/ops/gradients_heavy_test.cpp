// Gradients of convolutions, matrix products and pooling: proved by finite differences in double
// precision, and the fast Float32 ones compared with those.

#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <vector>

#include "quanta/ops/arithmetic.h"
#include "quanta/ops/conv.h"
#include "quanta/ops/linear.h"
#include "quanta/ops/pooling.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/gradcheck.h"

namespace {

using namespace quanta;
using Function = std::function<Tensor(std::span<const Tensor>)>;

// Distinct values, so that no maximum is a tie that a small step could turn over.
Tensor random(const Dims& sizes, unsigned seed, DType dtype = DType::Float64) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<double> uniform(-1.0, 1.0);
  Tensor result = Tensor::empty(sizes, DType::Float64);
  for (std::int64_t i = 0; i < result.numel(); ++i) {
    result.mutable_data<double>()[i] = uniform(generator);
  }
  return result.to(dtype);
}

std::vector<Tensor> leaves(const std::vector<Dims>& sizes) {
  std::vector<Tensor> result;
  for (const Dims& one : sizes) {
    result.push_back(random(one, static_cast<unsigned>(result.size()) + 1));
    result.back().set_requires_grad();
  }
  return result;
}

double largest_difference(const Tensor& a, const Tensor& b) {
  const std::vector<float> x = a.to(DType::Float64).to_float_vector();
  const std::vector<float> y = b.to(DType::Float64).to_float_vector();
  REQUIRE(x.size() == y.size());
  double worst = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    worst = std::max(worst, static_cast<double>(std::abs(x[i] - y[i])));
  }
  return worst;
}

// Finite differences for Float64, then Float32 in every memory order against Float64.
void check_gradients(const Function& function, const std::vector<Dims>& sizes) {
  const std::vector<Tensor> inputs = leaves(sizes);
  CHECK(autograd::gradcheck(function, inputs));
  for (const MemoryFormat format : {MemoryFormat::Contiguous, MemoryFormat::ChannelsLast}) {
    if (format == MemoryFormat::ChannelsLast && (sizes[0].size() < 3 || sizes[0].size() > 5)) {
      continue;
    }
    for (const Tensor& input : inputs) input.clear_grad();
    std::vector<Tensor> floats;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      Tensor copy = inputs[i].detach().to(DType::Float32);
      if (i == 0) copy = copy.clone(format);
      floats.push_back(copy);
      floats.back().set_requires_grad();
    }
    const Tensor y = function(inputs);
    const Tensor gradient = random(y.sizes(), 99);
    y.backward(gradient);
    const Tensor fast = function(floats);
    CHECK(fast.dtype() == DType::Float32);
    CHECK(largest_difference(fast.detach(), y.detach()) < 1e-4);
    fast.backward(gradient.to(DType::Float32));
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      CHECK(floats[i].grad().sizes() == inputs[i].sizes());
      CHECK(largest_difference(floats[i].grad(), inputs[i].grad()) < 1e-4);
    }
  }
}

}  // namespace

TEST_CASE("convolutions have the gradients that finite differences give") {
  const auto conv = [](const ConvOptions& options, std::int64_t spatial) -> Function {
    return [options, spatial](std::span<const Tensor> in) {
      const Tensor bias = in.size() > 2 ? in[2] : Tensor();
      return spatial == 1   ? conv1d(in[0], in[1], bias, options)
             : spatial == 2 ? conv2d(in[0], in[1], bias, options)
                            : conv3d(in[0], in[1], bias, options);
    };
  };
  check_gradients(conv({}, 1), {{2, 3, 7}, {4, 3, 3}, {4}});
  check_gradients(conv({.stride = {2}, .padding = {1}}, 1), {{3, 6}, {2, 3, 3}});
  check_gradients(conv({.padding = {1}}, 2), {{2, 3, 5, 4}, {4, 3, 3, 3}, {4}});
  check_gradients(conv({.stride = {2}, .padding = {1, 0}, .dilation = {1, 2}}, 2),
                  {{2, 2, 6, 7}, {3, 2, 3, 2}});
  check_gradients(conv({.padding = {1}, .groups = 4}, 2), {{1, 4, 4, 4}, {4, 1, 3, 3}, {4}});
  check_gradients(conv({.stride = {2}, .groups = 2}, 2), {{2, 4, 5, 5}, {6, 2, 1, 1}, {6}});
  check_gradients(conv({.stride = {1, 2, 1}, .padding = {1}}, 3),
                  {{1, 2, 3, 4, 3}, {3, 2, 2, 3, 2}, {3}});
}

TEST_CASE("transposed convolutions have the gradients that finite differences give") {
  const auto conv = [](const ConvTransposeOptions& options, std::int64_t spatial) -> Function {
    return [options, spatial](std::span<const Tensor> in) {
      const Tensor bias = in.size() > 2 ? in[2] : Tensor();
      return spatial == 1   ? conv_transpose1d(in[0], in[1], bias, options)
             : spatial == 2 ? conv_transpose2d(in[0], in[1], bias, options)
                            : conv_transpose3d(in[0], in[1], bias, options);
    };
  };
  check_gradients(conv({}, 1), {{2, 3, 4}, {3, 2, 3}, {2}});
  check_gradients(conv({.stride = {2}, .padding = {1}, .output_padding = {1}}, 2),
                  {{2, 3, 3, 4}, {3, 2, 3, 3}, {2}});
  check_gradients(conv({.stride = {2, 1}, .dilation = {2}, .groups = 2}, 2),
                  {{1, 4, 3, 3}, {4, 3, 2, 2}, {6}});
  check_gradients(conv({.stride = {2}}, 3), {{1, 2, 2, 3, 2}, {2, 2, 2, 2, 2}});
}

TEST_CASE("linear and matmul have the gradients that finite differences give") {
  const Function linear_function = [](std::span<const Tensor> in) {
    return linear(in[0], in[1], in.size() > 2 ? in[2] : Tensor());
  };
  check_gradients(linear_function, {{3, 5}, {4, 5}, {4}});
  check_gradients(linear_function, {{2, 3, 5}, {4, 5}});
  check_gradients(linear_function, {{5}, {1, 5}, {1}});
  const Function matmul_function = [](std::span<const Tensor> in) { return matmul(in[0], in[1]); };
  check_gradients(matmul_function, {{3, 5}, {5, 4}});
  check_gradients(matmul_function, {{2, 3, 5}, {5, 4}});
  check_gradients(matmul_function, {{2, 1, 3, 5}, {4, 5, 2}});
  check_gradients(matmul_function, {{5}, {5}});
  check_gradients(matmul_function, {{3, 5}, {5}});
  check_gradients(matmul_function, {{5}, {2, 5, 3}});
  const Function turned = [](std::span<const Tensor> in) {
    return matmul(in[0].t(), in[1].transpose(-2, -1));
  };
  check_gradients(turned, {{5, 3}, {4, 5}});
}

TEST_CASE("pooling has the gradients that finite differences give") {
  const auto pool = [](auto function, auto options) -> Function {
    return [function, options](std::span<const Tensor> in) { return function(in[0], options); };
  };
  check_gradients(pool(max_pool1d, MaxPoolOptions{.kernel_size = {3}, .stride = {2}}), {{2, 3, 8}});
  check_gradients(pool(max_pool2d, MaxPoolOptions{.kernel_size = {3, 2},
                                                  .stride = {2},
                                                  .padding = {1},
                                                  .dilation = {1, 2},
                                                  .ceil_mode = true}),
                  {{2, 3, 6, 7}});
  check_gradients(pool(max_pool2d, MaxPoolOptions{.kernel_size = {2}}), {{3, 4, 4}});
  check_gradients(pool(max_pool3d, MaxPoolOptions{.kernel_size = {2}, .stride = {1}}),
                  {{1, 2, 3, 3, 4}});
  check_gradients(pool(avg_pool1d, AvgPoolOptions{.kernel_size = {2}, .padding = {1}}),
                  {{2, 3, 8}});
  check_gradients(pool(avg_pool2d, AvgPoolOptions{.kernel_size = {3},
                                                  .stride = {2},
                                                  .padding = {1},
                                                  .ceil_mode = true,
                                                  .count_include_pad = false}),
                  {{2, 3, 6, 7}});
  check_gradients(
      pool(avg_pool3d, AvgPoolOptions{.kernel_size = {2}, .stride = {1}, .divisor_override = 3}),
      {{1, 2, 3, 3, 4}});
  check_gradients(pool(adaptive_avg_pool1d, Dims{3}), {{2, 3, 8}});
  check_gradients(pool(adaptive_avg_pool2d, Dims{2, 3}), {{2, 3, 5, 7}});
  check_gradients(pool(adaptive_avg_pool3d, Dims{1}), {{2, 2, 3, 2, 2}});
  check_gradients(pool(adaptive_max_pool1d, Dims{3}), {{2, 3, 8}});
  check_gradients(pool(adaptive_max_pool2d, Dims{2, 3}), {{3, 5, 7}});
  check_gradients(pool(adaptive_max_pool3d, Dims{2}), {{1, 2, 3, 4, 5}});
}

TEST_CASE("Float32 gradients of larger convolutions agree with Float64") {
  struct Case {
    Dims x, weight;
    ConvOptions options;
  };
  for (const Case& c :
       {Case{{2, 32, 14, 14}, {32, 32, 3, 3}, {.padding = {1}}},
        Case{{2, 32, 14, 14}, {64, 32, 1, 1}, {.stride = {2}}},
        Case{{2, 32, 13, 14}, {32, 1, 3, 3}, {.stride = {2}, .padding = {1}, .groups = 32}},
        Case{{1, 1, 28, 28}, {16, 1, 3, 3}, {.padding = {1}}}}) {
    std::vector<std::vector<Tensor>> gradients;
    for (const DType dtype : {DType::Float64, DType::Float32}) {
      const Tensor x = random(c.x, 1, dtype);
      const Tensor weight = random(c.weight, 2, dtype);
      const Tensor bias = random({c.weight[0]}, 3, dtype);
      for (const Tensor* tensor : {&x, &weight, &bias}) tensor->set_requires_grad();
      const Tensor y = conv2d(x, weight, bias, c.options);
      y.backward(random(y.sizes(), 4, dtype));
      gradients.push_back({x.grad(), weight.grad(), bias.grad()});
    }
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK(largest_difference(gradients[0][i], gradients[1][i]) < 1e-3);
    }
  }
}

TEST_CASE("a frozen weight gets no gradient and an empty batch gives zeros") {
  const Tensor x = random({2, 3, 4, 4}, 1, DType::Float32);
  const Tensor weight = random({2, 3, 3, 3}, 2, DType::Float32);
  x.set_requires_grad();
  const Tensor y = conv2d(x, weight, Tensor());
  y.backward(Tensor::ones(y.sizes()));
  CHECK(x.grad().defined());
  CHECK_FALSE(weight.grad().defined());

  weight.set_requires_grad();
  const Tensor none = conv2d(Tensor::empty({0, 3, 4, 4}), weight, Tensor());
  none.backward(Tensor::empty(none.sizes()));
  CHECK(largest_difference(weight.grad(), Tensor::zeros(weight.sizes())) == 0.0);
}
