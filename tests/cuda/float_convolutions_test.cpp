#include "quanta/ops/conv.h"

#include "cuda/float_bounds.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/linear.h"
#include "quanta/runtime/error.h"

namespace quanta {
namespace {

using namespace test;

// What a convolution is tested with.
struct ConvCase {
  std::int64_t spatial = 2;
  bool transposed = false;
  ConvTransposeOptions options;
  Tensor x, weight, bias;

  static ConvCase random(std::int64_t spatial, bool transposed, Generator& generator) {
    ConvCase result;
    result.spatial = spatial;
    result.transposed = transposed;
    const std::int64_t groups = generator.integer(1, 3);
    const std::int64_t in = groups * generator.integer(1, 5);
    const std::int64_t out = groups * generator.integer(1, 5);
    result.options.groups = groups;
    result.options.stride = result.options.padding = result.options.dilation = {};
    result.options.output_padding = {};
    Dims x{generator.integer(1, 2), in};
    Dims weight = transposed ? Dims{in, out / groups} : Dims{out, in / groups};
    for (std::int64_t d = 0; d < spatial; ++d) {
      const std::int64_t stride = generator.integer(1, 3);
      const std::int64_t padding = generator.integer(0, 2);
      x.push_back(generator.integer(5, spatial == 3 ? 6 : 9));
      weight.push_back(generator.integer(1, 3));
      result.options.stride.push_back(stride);
      result.options.padding.push_back(padding);
      result.options.dilation.push_back(generator.integer(1, 2));
      result.options.output_padding.push_back(transposed ? generator.integer(0, stride - 1) : 0);
    }
    result.x = randn(x, generator);
    result.weight = randn(weight, generator);
    if (generator.integer(0, 3) > 0) result.bias = randn({out}, generator);
    return result;
  }

  Tensor run(const Tensor& input, const Tensor& w, const Tensor& b) const {
    const ConvOptions plain{options.stride, options.padding, options.dilation, options.groups};
    switch (spatial) {
      case 1:
        return transposed ? conv_transpose1d(input, w, b, options) : conv1d(input, w, b, plain);
      case 2:
        return transposed ? conv_transpose2d(input, w, b, options) : conv2d(input, w, b, plain);
      default:
        return transposed ? conv_transpose3d(input, w, b, options) : conv3d(input, w, b, plain);
    }
  }
  // Of any sum: more than all taps of a group's channels or all positions there are not.
  std::int64_t terms() const { return weight.numel() + 1; }
};

}  // namespace

TEST_CASE("cuda float convolutions: one to three dimensions and transposed and their gradients") {
  Generator generator(7);
  for (int round = 0; round < 60; ++round) {
    const ConvCase test = ConvCase::random(1 + round % 3, generator.integer(0, 1) == 0, generator);
    CAPTURE(round);
    const std::int64_t positions = test.x.numel() * 27;
    std::vector<Tensor> arguments{test.x, test.weight};
    if (test.bias.defined()) arguments.push_back(test.bias);
    check_call(
        [&](const std::vector<Tensor>& in) {
          return test.run(in[0], in[1], in.size() > 2 ? in[2] : Tensor());
        },
        arguments, {test.terms(), test.terms(), positions, positions});
  }
}

TEST_CASE("cuda float convolutions: floats of 16 bits in one to three dimensions") {
  Generator generator(14);
  for (int round = 0; round < 36; ++round) {
    const ConvCase test = ConvCase::random(1 + round % 3, generator.integer(0, 1) == 0, generator);
    CAPTURE(round);
    const DType dtype = round / 3 % 2 == 0 ? DType::Float16 : DType::BFloat16;
    const std::int64_t positions = test.x.numel() * 27;
    std::vector<Tensor> arguments{test.x.to(dtype), test.weight.to(dtype)};
    if (test.bias.defined()) arguments.push_back(test.bias.to(dtype));
    check_call(
        [&](const std::vector<Tensor>& in) {
          return test.run(in[0], in[1], in.size() > 2 ? in[2] : Tensor());
        },
        arguments, {test.terms(), test.terms(), positions, positions});
  }
}

TEST_CASE("cuda float convolutions: gradients of 16 bits go through relu") {
  Generator generator(15);
  for (const DType dtype : {DType::Float16, DType::BFloat16}) {
    const auto leaf = [&](const Dims& sizes) {
      return on_device(randn(sizes, generator).to(dtype)).set_requires_grad();
    };
    const Tensor x = leaf({2, 4, 6, 6});
    const Tensor weight = leaf({5, 4, 3, 3});
    const Tensor y = PackedConv(weight, {}, {}, 2, Fusion::ReLU)(x, weight, {});
    y.backward(on_device(Tensor::ones(y.sizes()).to(dtype)));
    const std::vector<float> results = y.cpu().contiguous().to_float_vector();
    std::vector<float> passed;
    for (const float result : results) passed.push_back(result > 0.0F ? 1.0F : 0.0F);
    const Tensor plain_weight = weight.detach().clone().set_requires_grad();
    const Tensor plain_x = x.detach().clone().set_requires_grad();
    conv2d(plain_x, plain_weight, {})
        .backward(on_device(Tensor::from_values(passed, y.sizes()).to(dtype)));
    CHECK(x.grad().cpu().equal(plain_x.grad().cpu()));
    CHECK(weight.grad().cpu().equal(plain_weight.grad().cpu()));
  }
}

TEST_CASE("cuda float convolutions: floats of 16 bits are refused by name on the CPU") {
  const Tensor image = Tensor::zeros({1, 3, 4, 4}).to(DType::BFloat16);
  CHECK_THROWS_WITH_AS(conv2d(image, image, {}), doctest::Contains("which a CUDA device takes"),
                       UnsupportedError);
  CHECK_THROWS_WITH_AS(conv2d(on_device(Tensor::zeros({1, 3, 4, 4})), on_device(image), {}),
                       doctest::Contains("x: expected BFloat16 as the weight has, got Float32"),
                       ArgumentError);
}

TEST_CASE("cuda float convolutions: results are channels-last whatever the input's order") {
  Generator generator(8);
  const Tensor x = randn({2, 6, 7, 5}, generator);
  const Tensor weight = on_device(randn({8, 3, 3, 2}, generator));
  const ConvOptions options{.padding = {1}, .groups = 2};
  const Tensor first = conv2d(on_device(x), weight, {}, options);
  CHECK(first.is_contiguous(MemoryFormat::ChannelsLast));
  const Tensor last = on_device(x).contiguous(MemoryFormat::ChannelsLast);
  CHECK(conv2d(last, weight, {}, options).cpu().equal(first.cpu()));
  const Tensor other = weight.contiguous(MemoryFormat::ChannelsLast);
  CHECK(conv2d(last, other, {}, options).cpu().equal(first.cpu()));
  CHECK(conv2d(last.select(0, 1), weight, {}, options).cpu().equal(first.select(0, 1).cpu()));
}

TEST_CASE("cuda float convolutions: an empty batch gives an empty result and zeros as gradients") {
  const Tensor x = on_device(Tensor::zeros({0, 4, 5, 5})).set_requires_grad();
  const Tensor weight = on_device(Tensor::ones({6, 4, 3, 3})).set_requires_grad();
  const Tensor y = conv2d(x, weight, {});
  CHECK(y.sizes() == Dims{0, 6, 3, 3});
  y.backward(on_device(Tensor::zeros(y.sizes())));
  CHECK(weight.grad().cpu().equal(Tensor::zeros({6, 4, 3, 3})));
  CHECK(weight.grad().device() == kDevice);
}

TEST_CASE("cuda float convolutions: float modules run where their parameters are") {
  Generator generator(9);
  const Tensor x = randn({2, 4, 6, 6}, generator);
  nn::Conv2d conv(4, 5, 3, {.padding = {1}});
  nn::Linear layer(6, 3);
  conv.eval();
  layer.eval();
  const Tensor expected = layer(conv(x));
  conv.to(kDevice);
  layer.to(kDevice);
  const Tensor got = layer(conv(on_device(x)));
  CHECK(got.device() == kDevice);
  const std::vector<float> a = got.cpu().to_float_vector();
  const std::vector<float> b = expected.to_float_vector();
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(a[i] == doctest::Approx(b[i]).epsilon(1e-4));
}

TEST_CASE("cuda float convolutions: modules with parameters of 16 bits run on the device") {
  Generator generator(16);
  const Tensor x = on_device(randn({2, 4, 6, 6}, generator).to(DType::BFloat16));
  nn::Conv2d conv(4, 5, 3, {.padding = {1}});
  nn::Linear layer(6, 3);
  for (Tensor* parameter : {&conv.weight, &conv.bias, &layer.weight, &layer.bias}) {
    *parameter = on_device(parameter->detach()).to(DType::BFloat16).set_requires_grad();
  }
  const Tensor trained = layer(conv(x));
  CHECK(trained.dtype() == DType::BFloat16);
  trained.backward(on_device(Tensor::ones(trained.sizes()).to(DType::BFloat16)));
  CHECK(conv.weight.grad().dtype() == DType::BFloat16);
  CHECK(layer.bias.grad().cpu().to_float_vector() == std::vector<float>(3, 60.0F));
  conv.eval();
  layer.eval();
  CHECK(layer(conv(x)).cpu().equal(trained.cpu()));
}

TEST_CASE("cuda float convolutions: gradients go through relu where the result is positive") {
  Generator generator(10);
  const Tensor x = randn({2, 4, 6, 6}, generator);
  const Tensor weight = randn({5, 4, 3, 3}, generator);
  const Tensor bias = randn({5}, generator);
  const auto differentiated = [&](const auto& prepare) {
    const Tensor a = prepare(x).detach().set_requires_grad();
    const Tensor w = prepare(weight).detach().set_requires_grad();
    const Tensor b = prepare(bias).detach().set_requires_grad();
    const Tensor y = PackedConv(w, b, {}, 2, Fusion::ReLU)(a, w, b);
    y.backward(prepare(Tensor::ones(y.sizes())));
    return std::vector<Tensor>{y.detach(), a.grad(), w.grad(), b.grad()};
  };
  const auto exact = differentiated(doubles);
  const auto got = differentiated(on_device);
  const Tensor sums = conv2d(magnitudes(x), magnitudes(weight), magnitudes(bias));
  check_within(got[0], exact[0], sums, 37);
  // No sum is so near to zero that its sign is not known.
  const std::int64_t terms[] = {0, 5 * 9, 2 * 16, 2 * 16};
  const auto all = [](const Tensor& t, double value) {
    return Tensor::full(t.sizes(), value, DType::Float64);
  };
  check_within(got[1], exact[1], all(got[1], weight.abs().sum().item()), terms[1]);
  check_within(got[2], exact[2], all(got[2], x.abs().sum().item()), terms[2]);
  check_within(got[3], exact[3], all(got[3], 32.0), terms[3]);
}

TEST_CASE("cuda float convolutions: other dtypes are refused by name") {
  const Tensor image = on_device(Tensor::zeros({1, 3, 4, 4}, DType::Float64));
  CHECK_THROWS_WITH_AS(conv2d(image, image, {}),
                       doctest::Contains("conv2d: x: expected Float32, Float16, BFloat16 on cuda"),
                       UnsupportedError);
}

}  // namespace quanta
