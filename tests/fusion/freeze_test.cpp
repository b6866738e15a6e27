// freeze: a recorded run, played again.

#include "quanta/fusion/freeze.h"

#include <doctest/doctest.h>

#include <thread>
#include <vector>

#include "fusion/int8_copy.h"
#include "quanta/fusion/convert.h"
#include "quanta/fusion/fuse_modules.h"
#include "quanta/fusion/prepare.h"
#include "quanta/fusion/quantize_dynamic.h"
#include "quanta/nn/activation.h"
#include "quanta/nn/container.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/float_functional.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/models/fashion.h"
#include "quanta/nn/models/mobilenet_v2.h"
#include "quanta/nn/models/recurrent.h"
#include "quanta/nn/models/resnet.h"
#include "quanta/nn/stubs.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/conv.h"
#include "quanta/ops/linear.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/allocator.h"
#include "quanta/runtime/detail/sanitizers.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/tensors.h"

namespace quanta {
namespace {

template <typename Net>
void check_network(const Net& net, const Dims& sizes) {
  Generator generator(5);
  const Tensor example = randn(sizes, generator);
  const FrozenModel frozen = freeze(net, example);
  for (int i = 0; i < 3; ++i) {
    const Tensor x = randn(sizes, generator);
    CHECK(frozen(x).equal(net(x)));
    if (x.dim() == 4) CHECK(frozen(x.contiguous(MemoryFormat::ChannelsLast)).equal(net(x)));
  }
  CHECK(frozen.info().steps <= frozen.info().recorded_steps);
  CHECK(frozen.info().arena_bytes < frozen.info().result_bytes);
}

TEST_CASE("freeze: converted networks give the eager run's results to the last bit") {
  Generator generator(3);
  const Tensor image = randn({2, 1, 28, 28}, generator);
  check_network(test::int8_copy(nn::models::FashionResNet(), image), {2, 1, 28, 28});
  check_network(test::int8_copy(nn::models::FashionMobileNet(), image), {1, 1, 28, 28});
  const Tensor photo = randn({1, 3, 64, 64}, generator);
  check_network(test::int8_copy(nn::models::resnet18(), photo), {1, 3, 64, 64});
  check_network(test::int8_copy(nn::models::MobileNetV2(), photo), {2, 3, 64, 64});
  check_network(test::int8_copy(nn::models::Mlp(), randn({4, 784}, generator)), {4, 784});
}

struct Functions : nn::Module {
  using Function = std::function<Tensor(const Tensor&)>;
  Function function;
  explicit Functions(Function given) : function(std::move(given)) { eval(); }
  Tensor forward(const Tensor& x) const override { return function(x); }
};

std::size_t steps_of(const Functions::Function& function, const Tensor& x) {
  const Functions net(function);
  const FrozenModel frozen = freeze(net, x);
  CHECK(frozen(x).equal(net(x)));
  return frozen.info().steps;
}

TEST_CASE("freeze: what cancels is left out and tables are joined") {
  const Tensor x = test::random_tensor({3, 40}, 7);
  const auto codes = [](const Tensor& t) {
    return quantize_per_tensor(t, 0.05, 120, DType::QUInt8);
  };
  SUBCASE("quantize after dequantize of the same parameters") {
    CHECK(steps_of([&](const Tensor& t) { return dequantize(codes(dequantize(codes(t)))); }, x) ==
          2);
  }
  SUBCASE("quantize after dequantize of other parameters is a table") {
    CHECK(steps_of(
              [&](const Tensor& t) {
                const Tensor y = dequantize(codes(t));
                return dequantize(quantize_per_tensor(y, 0.07, 3, DType::QInt8));
              },
              x) == 3);
  }
  SUBCASE("two tables in a row are one") {
    CHECK(steps_of(
              [&](const Tensor& t) {
                const QTensor y = quantized::hardswish(QTensor(codes(t)), 0.03, 20);
                return dequantize(quantized::sigmoid(y, 1.0 / 256, 0));
              },
              x) == 3);
  }
  SUBCASE("a table whose input others need stays") {
    CHECK(steps_of(
              [&](const Tensor& t) {
                const QTensor y = quantized::hardswish(QTensor(codes(t)), 0.03, 20);
                const QTensor z = quantized::leaky_relu(y, 0.1, 0.05, 100);
                return dequantize(quantized::add(y, z, 0.1, 128));
              },
              x) == 5);
  }
  SUBCASE("equal steps are done once and unused ones not at all") {
    CHECK(steps_of(
              [&](const Tensor& t) {
                codes(mul(t, t));
                return add(dequantize(codes(t)), dequantize(codes(t)));
              },
              x) == 3);
  }
}

TEST_CASE("freeze: a convolution looks its codes up while it writes them") {
  Generator generator(8);
  const Tensor x = randn({2, 16, 11, 9}, generator).contiguous(MemoryFormat::ChannelsLast);
  const auto layer = [&](std::int64_t from, std::int64_t to, std::int64_t kernel,
                         std::int64_t groups) {
    const Tensor weight = randn({to, from / groups, kernel, kernel}, generator);
    return quantized::ConvPackedParams(quantize_per_tensor(weight, 0.02, 0, DType::QInt8),
                                       randn({to}, generator),
                                       {.padding = {kernel / 2}, .groups = groups}, 2);
  };
  const auto codes = [](const Tensor& t) {
    return quantize_per_tensor(t, 0.04, 110, DType::QUInt8);
  };
  // A product of matrices, oneDNN's, depthwise, grouped.
  for (const auto& packed :
       {layer(16, 40, 1, 1), layer(16, 24, 3, 1), layer(16, 16, 3, 16), layer(16, 32, 3, 4)}) {
    CHECK(steps_of(
              [&](const Tensor& t) {
                const QTensor y = quantized::conv(codes(t), packed, 0.1, 90);
                return dequantize(
                    quantized::sigmoid(quantized::hardswish(y, 0.05, 20), 1.0 / 256, 0));
              },
              x) == 3);
    CHECK(steps_of(
              [&](const Tensor& t) {
                const QTensor y = quantized::conv_relu(codes(t), packed, 0.1, 90);
                return dequantize(quantized::add(y, quantized::hardswish(y, 0.05, 20), 0.3, 70));
              },
              x) == 5);
  }
}

TEST_CASE("freeze: linear layers and sums of convolutions look their codes up too") {
  Generator generator(10);
  const auto codes = [](const Tensor& t) {
    return quantize_per_tensor(t, 0.04, 110, DType::QUInt8);
  };
  const auto weight = [&](const Dims& sizes) {
    return quantize_per_tensor(randn(sizes, generator), 0.02, 0, DType::QInt8);
  };
  const quantized::LinearPackedParams linear(weight({20, 16}), randn({20}, generator));
  const Tensor rows = randn({3, 16}, generator);
  CHECK(steps_of(
            [&](const Tensor& t) {
              const QTensor y = quantized::linear(codes(t), linear, 0.1, 90);
              return dequantize(quantized::hardswish(y, 0.05, 20));
            },
            rows) == 3);
  CHECK(steps_of(
            [&](const Tensor& t) {
              const QTensor y = quantized::linear_tanh(codes(t), linear, 0.008, 128);
              return dequantize(quantized::hardswish(y, 0.05, 20));
            },
            rows) == 3);
  const quantized::ConvPackedParams conv(weight({4, 4, 3, 3}), {}, {.padding = {1}}, 2);
  const Tensor image = randn({2, 4, 6, 5}, generator).contiguous(MemoryFormat::ChannelsLast);
  CHECK(steps_of(
            [&](const Tensor& t) {
              const QTensor x = codes(t);
              return dequantize(
                  quantized::hardswish(quantized::conv_add(x, x, conv, 0.1, 90), 0.05, 20));
            },
            image) == 3);
}

TEST_CASE("freeze: a view of the input, the input itself and a constant are results too") {
  const Tensor x = test::random_tensor({4, 6}, 9);
  CHECK(steps_of([](const Tensor& t) { return t; }, x) == 0);
  CHECK(steps_of([](const Tensor& t) { return t.slice(0, 1, 3); }, x) == 0);
  CHECK(steps_of([](const Tensor&) { return Tensor::ones({3}); }, x) == 0);
  CHECK(steps_of([](const Tensor& t) { return add(t, t).t().slice(0, 2, 4); }, x) == 1);
}

TEST_CASE("freeze: bad input is told with what to do") {
  Generator generator(11);
  const Tensor x = randn({2, 3}, generator);
  nn::Sequential net(nn::Linear(nn::LinearOptions{.in_features = 3, .out_features = 4}));
  CHECK_THROWS_WITH_AS(freeze(net, x), doctest::Contains("eval mode"), ArgumentError);
  net.eval();
  CHECK_THROWS_AS(freeze(net, Tensor()), ArgumentError);
  CHECK_THROWS_AS(FrozenModel()(x), ArgumentError);
  const Functions doubled([](const Tensor& t) { return add(t, t); });
  const FrozenModel frozen = freeze(doubled, x);
  CHECK_THROWS_WITH_AS(frozen(randn({3, 3}, generator)),
                       doctest::Contains("expected Float32 [2, 3]"), ArgumentError);
  CHECK_THROWS_AS(frozen(Tensor()), ArgumentError);
  CHECK_THROWS_AS(frozen(Tensor::zeros({2, 3}, DType::Int64)), ArgumentError);
}

TEST_CASE("freeze: steps that depend on calculated values are refused") {
  const Tensor x = test::random_tensor({2, 3}, 13);
  const auto refuse = [&](const Functions::Function& function) {
    CHECK_THROWS_AS(freeze(Functions(function), x), Error);
  };
  refuse([](const Tensor& t) { return mul_scalar(t, add(t, t).select(0, 0).select(0, 0).item()); });
  refuse([](const Tensor& t) { return t.item() > 0 ? t : add(t, t); });
  refuse([](const Tensor& t) {
    return dequantize(quantize_per_tensor_dynamic(t, DType::QUInt8, false));
  });
  refuse([](const Tensor& t) {  // reads behind the recorder's back
    return add_scalar(t, static_cast<double>(t.data<float>()[0]));
  });
}

TEST_CASE("freeze: debug builds compare each call with an eager run") {
  const Tensor x = test::random_tensor({2, 3}, 14);
  const auto factor = std::make_shared<double>(2.0);
  const FrozenModel frozen =
      freeze(Functions([factor](const Tensor& t) { return mul_scalar(t, *factor); }), x);
  const Tensor doubled = mul_scalar(x, 2.0);
  CHECK(frozen(x).equal(doubled));
  *factor = 3.0;
#ifdef NDEBUG
  CHECK(frozen(x).equal(doubled));
#else
  CHECK_THROWS_WITH_AS(frozen(x), doctest::Contains("what the eager run gives"), Error);
#endif
}

TEST_CASE(
    "freeze: many threads run one plan at once, and steady state asks the system for nothing") {
  Generator generator(15);
  const Tensor image = randn({1, 1, 28, 28}, generator);
  const auto net = test::int8_copy(nn::models::FashionMobileNet(), image);
  const FrozenModel frozen = freeze(net, image);
  std::vector<Tensor> inputs, expected, results(8);
  for (int i = 0; i < 8; ++i) {
    inputs.push_back(randn({1, 1, 28, 28}, generator));
    expected.push_back(net(inputs.back()));
  }
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      for (int repeat = 0; repeat < 5; ++repeat) results[i] = frozen(inputs[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < 8; ++i) CHECK(results[i].equal(expected[i]));

#if !QUANTA_ADDRESS_SANITIZER  // with it nothing is cached
  frozen(image);
  const std::uint64_t before = allocator_stats().system_allocations;
  for (int i = 0; i < 20; ++i) frozen(image);
  CHECK(allocator_stats().system_allocations == before);
#endif
}

}  // namespace
}  // namespace quanta
