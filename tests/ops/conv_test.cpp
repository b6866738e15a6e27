#include "quanta/ops/conv.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "conv_reference.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/error.h"
#include "support/threads.h"

namespace quanta {
namespace {

using testing::Codes;
using testing::OutputQParams;
using testing::WeightKind;

struct Case {
  std::int64_t spatial = 2;
  bool transposed = false;
  ConvTransposeOptions options;
  QTensor x, weight;
  Tensor bias;
  OutputQParams out;

  quantized::ConvPackedParams pack() const {
    if (transposed) return quantized::ConvPackedParams::transposed(weight, bias, options, spatial);
    return {weight, bias,
            ConvOptions{options.stride, options.padding, options.dilation, options.groups},
            spatial};
  }
  QTensor run(const quantized::ConvPackedParams& packed) const {
    return out.relu ? quantized::conv_relu(x, packed, out.scale, out.zero_point)
                    : quantized::conv(x, packed, out.scale, out.zero_point);
  }
  std::vector<std::int64_t> expected() const {
    return testing::reference_codes(x, weight, bias, options, transposed, out);
  }
};

Tensor random_bias(std::int64_t channels, Generator& generator) {
  const Tensor bias = Tensor::empty({channels});
  for (std::int64_t n = 0; n < channels; ++n) bias.mutable_data<float>()[n] = generator.normal();
  return bias;
}

template <typename T, std::size_t kCount>
T pick(Generator& generator, const T (&values)[kCount]) {
  return values[static_cast<std::size_t>(
      generator.integer(0, static_cast<std::int64_t>(kCount) - 1))];
}

/// Anything: odd sizes, groups, strides, zero points of all tensors, both ends of the range.
Case random_case(Generator& generator) {
  Case result;
  result.spatial = pick(generator, {1, 2, 2, 2, 2, 3});
  result.transposed = generator.integer(0, 5) == 0;
  const std::int64_t channels[] = {1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 24, 31, 32, 33, 40, 64, 65, 96};
  std::int64_t in = pick(generator, channels);
  std::int64_t out = pick(generator, channels);
  std::int64_t groups = 1;
  switch (generator.integer(0, 4)) {
    case 0:  // depthwise
      groups = out = in;
      break;
    case 1:
      groups = generator.integer(2, 5);
      in = groups * generator.integer(1, 9);
      out = groups * generator.integer(1, 9);
      break;
    default:
      break;
  }
  ConvTransposeOptions& options = result.options;
  options.groups = groups;
  options.stride = options.padding = options.output_padding = options.dilation = {};
  Dims x{generator.integer(1, 3), in};
  Dims weight = result.transposed ? Dims{in, out / groups} : Dims{out, in / groups};
  std::int64_t terms = in / groups;
  for (std::int64_t i = 0; i < result.spatial; ++i) {
    const std::int64_t kernel = pick(generator, {1, 1, 2, 3, 3, 3, 4, 5});
    const std::int64_t stride = pick(generator, {1, 1, 2, 3});
    const std::int64_t dilation = pick(generator, {1, 1, 1, 2});
    const std::int64_t padding = generator.integer(0, (kernel - 1) * dilation);
    options.stride.push_back(stride);
    options.dilation.push_back(dilation);
    options.padding.push_back(padding);
    options.output_padding.push_back(result.transposed ? generator.integer(0, stride - 1) : 0);
    // Large enough for an output in either direction.
    x.push_back(generator.integer(1, result.spatial == 3 ? 4 : 9) + (kernel - 1) * dilation);
    weight.push_back(kernel);
    terms *= kernel;
  }
  const Codes codes = generator.integer(0, 3) == 0 ? Codes::Extreme : Codes::Uniform;
  const std::int64_t zero_point = pick(generator, {0, 0, 1, 77, 128, 255});
  result.x = testing::random_activation(x, 0.021, zero_point, generator, codes);
  const bool per_channel = generator.integer(0, 1) == 0 && (!result.transposed || groups == 1);
  result.weight = testing::random_weight(weight,
                                         WeightKind{per_channel ? (result.transposed ? 1 : 0) : -1,
                                                    generator.integer(0, 4) == 0, codes},
                                         generator);
  if (generator.integer(0, 3) > 0) result.bias = random_bias(out, generator);
  // Some outputs that saturate, some with hardly any code.
  result.out.scale = testing::spreading_scale(result.x, result.weight, terms) *
                     pick(generator, {1.0, 1.0, 1.0, 1e-3, 1e3});
  result.out.zero_point = pick(generator, {0, 0, 3, 128, 255});
  result.out.relu = generator.integer(0, 1) == 0;
  return result;
}

std::string describe(const Case& tested) {
  return std::string(tested.transposed ? "transposed " : "") + "x " + to_string(tested.x.sizes()) +
         " zero point " + std::to_string(tested.x.quantizer().zero_point) + " weight " +
         to_string(tested.weight.sizes()) + " stride " + to_string(tested.options.stride) +
         " padding " + to_string(tested.options.padding) + " dilation " +
         to_string(tested.options.dilation) + " groups " + std::to_string(tested.options.groups) +
         " out " + std::to_string(tested.out.zero_point) + (tested.out.relu ? " relu" : "");
}

}  // namespace

TEST_CASE("quantized::conv: random convolutions give the integers of the scalar reference") {
  Generator generator(7);
  for (int i = 0; i < 250; ++i) {
    const Case tested = random_case(generator);
    CAPTURE(i);
    CAPTURE(describe(tested));
    const std::vector<std::int64_t> expected = tested.expected();
    for (const int threads : {1, 2}) {
      const test::Threads scope(threads);
      const quantized::ConvPackedParams packed = tested.pack();
      const QTensor out = tested.run(packed);
      CHECK(out.to_int64_vector() == expected);
      CHECK(out.q_scale() == tested.out.scale);
      CHECK(out.q_zero_point() == tested.out.zero_point);
      // The second call finds the plan of the first.
      CHECK(tested.run(packed).to_int64_vector() == expected);
    }
  }
}

TEST_CASE("quantized::conv: first layers of any border give the integers of the scalar reference") {
  Generator generator(43);
  for (int i = 0; i < 90; ++i) {
    Case tested;
    tested.spatial = 2;
    // Output lines two input lines apart, under a large kernel, are made of pairs of lines.
    const bool in_pairs = i % 3 == 2;
    const std::int64_t channels = generator.integer(1, 4);
    Dims x{generator.integer(1, 2), channels};
    Dims weight{generator.integer(1, 80), channels};
    tested.options.stride = tested.options.padding = tested.options.dilation = {};
    for (int d = 0; d < 2; ++d) {
      const std::int64_t kernel = in_pairs ? generator.integer(4, 9) : generator.integer(1, 7);
      const std::int64_t dilation = d == 0 && !in_pairs ? generator.integer(1, 2) : 1;
      const std::int64_t padding = generator.integer(0, 4);
      tested.options.stride.push_back(d == 0 && in_pairs ? 2 : generator.integer(1, 3));
      tested.options.dilation.push_back(dilation);
      tested.options.padding.push_back(padding);
      x.push_back(std::max<std::int64_t>((kernel - 1) * dilation + 1 - 2 * padding, 1) +
                  generator.integer(0, i % 8 == 0 ? 120 : 12));
      weight.push_back(kernel);
    }
    const Codes codes = i % 4 == 0 ? Codes::Extreme : Codes::Uniform;
    const std::int64_t zero_point = pick(generator, {0, 1, 77, 128, 255});
    tested.x = testing::random_activation(x, 0.02, zero_point, generator, codes);
    tested.weight = testing::random_weight(weight, {0, false, codes}, generator);
    if (i % 3 != 0) tested.bias = random_bias(weight[0], generator);
    tested.out = {
        testing::spreading_scale(tested.x, tested.weight, tested.weight.numel() / weight[0]),
        pick(generator, {0, 3, 128}), i % 2 == 0};
    CAPTURE(describe(tested));
    const std::vector<std::int64_t> expected = tested.expected();
    const quantized::ConvPackedParams packed = tested.pack();
    for (const int threads : {1, 2}) {
      const test::Threads scope(threads);
      CHECK(tested.run(packed).to_int64_vector() == expected);
    }
  }
}

TEST_CASE("quantized::conv: 1x1 layers of any channels change kernels with their size") {
  Generator generator(47);
  for (const std::int64_t in : {1, 2, 3, 5, 6, 10, 17, 58, 130, 1023, 1025}) {
    for (const std::int64_t out : {1, 16, 36, 150}) {
      Case tested;
      tested.options.stride = {in % 3 == 0 ? 2 : 1};
      tested.weight = testing::random_weight({out, in, 1, 1}, {0}, generator);
      tested.bias = random_bias(out, generator);
      const quantized::ConvPackedParams packed = tested.pack();
      // Kernels change with the number of pixels, back and forth.
      for (const std::int64_t side : {1, 9, 34, 17, 16}) {
        tested.x = testing::random_activation({1, in, side, side}, 0.02, side, generator);
        tested.out = {testing::spreading_scale(tested.x, tested.weight, in), 10, out == 16};
        CAPTURE(describe(tested));
        for (const int threads : {1, 2}) {
          const test::Threads scope(threads);
          CHECK(tested.run(packed).to_int64_vector() == tested.expected());
        }
      }
    }
  }
}

TEST_CASE("quantized::conv: layers large enough for two threads give the reference's integers") {
  struct Layer {
    Dims x, weight;
    ConvTransposeOptions options;
  };
  const std::vector<Layer> layers{
      {{1, 64, 14, 14}, {64, 64, 3, 3}, {.padding = {1}}},
      {{1, 192, 14, 14}, {96, 192, 1, 1}, {}},
      {{3, 100, 13, 15}, {72, 100, 1, 1}, {.stride = {2}}},
      {{1, 3, 65, 66}, {32, 3, 7, 7}, {.stride = {2}, .padding = {3}}},
      {{2, 64, 20, 20}, {128, 16, 3, 3}, {.stride = {2}, .padding = {1}, .groups = 4}},
      {{2, 72, 30, 31}, {72, 1, 5, 5}, {.padding = {2}, .groups = 72}},
      {{1, 96, 12, 17}, {80, 96, 4, 2}, {.stride = {2, 1}, .padding = {1}}},
      {{1, 24, 9, 9, 9}, {32, 24, 3, 3, 3}, {.padding = {1}}},
      {{4, 48, 100}, {64, 48, 5}, {.padding = {2}}},
      // Weights beyond a megabyte, which small images take together.
      {{5, 128, 5, 6}, {936, 128, 3, 3}, {.padding = {1}}},
      {{19, 256, 5, 3}, {480, 256, 3, 3}, {.stride = {2}, .padding = {1}}},
  };
  Generator generator(31);
  for (const Layer& layer : layers) {
    for (const std::int64_t zero_point : {0, 120}) {
      Case tested;
      tested.spatial = static_cast<std::int64_t>(layer.x.size()) - 2;
      tested.options = layer.options;
      tested.x = testing::random_activation(layer.x, 0.02, zero_point, generator);
      tested.weight = testing::random_weight(layer.weight, {0}, generator);
      tested.bias = random_bias(layer.weight[0], generator);
      tested.out = {testing::spreading_scale(tested.x, tested.weight,
                                             tested.weight.numel() / layer.weight[0]),
                    zero_point / 2, zero_point != 0};
      CAPTURE(describe(tested));
      const std::vector<std::int64_t> expected = tested.expected();
      const quantized::ConvPackedParams packed = tested.pack();
      for (const int threads : {1, 2, 1}) {
        const test::Threads scope(threads);
        CHECK(tested.run(packed).to_int64_vector() == expected);
      }
    }
  }
}

TEST_CASE("quantized::conv: one packing serves many sizes and parameters in any order") {
  Generator generator(11);
  const QTensor weight = testing::random_weight({20, 12, 3, 3}, {0}, generator);
  const Tensor bias = random_bias(20, generator);
  const ConvOptions options{.padding = {1}};
  const quantized::ConvPackedParams packed(weight, bias, options, 2);
  // More of them than the cache holds, and every one twice.
  for (int round = 0; round < 2; ++round) {
    for (std::int64_t size = 3; size < 15; ++size) {
      for (const std::int64_t zero_point : {0, 100}) {
        const QTensor x =
            testing::random_activation({2, 12, size, size + 1}, 0.02, zero_point, generator);
        const OutputQParams out{0.9, zero_point, size % 2 == 0};
        const QTensor got = out.relu ? quantized::conv_relu(x, packed, 0.9, zero_point)
                                     : quantized::conv(x, packed, 0.9, zero_point);
        CHECK(got.to_int64_vector() ==
              testing::reference_codes(x, weight, bias, {.padding = {1}}, false, out));
      }
    }
  }
}

TEST_CASE("quantized::conv: sums beyond 2^24 with a zero point keep the reference's rounding") {
  Generator generator(3);
  // 9 * 1024 weights of 127: sums of x * w reach 2.9e8.
  const QTensor weight =
      testing::random_weight({4, 1024, 3, 3}, {-1, false, Codes::Extreme}, generator);
  const QTensor x = testing::random_activation({1, 1024, 4, 4}, 0.1, 3, generator);
  const OutputQParams out{9000.0, 7, false};
  const quantized::ConvPackedParams packed(weight, {}, {.padding = {1}}, 2);
  CHECK(quantized::conv(x, packed, out.scale, out.zero_point).to_int64_vector() ==
        testing::reference_codes(x, weight, {}, {.padding = {1}}, false, out));
}

TEST_CASE("quantized::conv: the input's memory order changes neither values nor result order") {
  Generator generator(5);
  const QTensor x = testing::random_activation({2, 6, 7, 5}, 0.02, 9, generator);
  const QTensor weight = testing::random_weight({8, 6, 3, 3}, {0}, generator);
  const quantized::ConvPackedParams packed(weight, {}, {}, 2);
  const QTensor first = quantized::conv(x, packed, 0.5, 10);
  CHECK(first.is_contiguous(MemoryFormat::ChannelsLast));
  const QTensor last(x.contiguous(MemoryFormat::ChannelsLast));
  CHECK(quantized::conv(last, packed, 0.5, 10).equal(first));
  const QTensor view(x.transpose(2, 3).contiguous().transpose(2, 3));
  CHECK(quantized::conv(view, packed, 0.5, 10).equal(first));
}

TEST_CASE("quantized::conv: an image without a batch gives the result without a batch") {
  Generator generator(5);
  const QTensor weight = testing::random_weight({8, 6, 3}, {0}, generator);
  const quantized::ConvPackedParams packed(weight, {}, {.padding = {1}}, 1);
  const QTensor x = testing::random_activation({1, 6, 9}, 0.02, 9, generator);
  const QTensor batched = quantized::conv(x, packed, 0.5, 10);
  const QTensor single = quantized::conv(QTensor(x.squeeze(0)), packed, 0.5, 10);
  CHECK(batched.strides() == Dims{72, 1, 8});  // channels last, as torch's
  CHECK(single.sizes() == Dims{8, 9});
  CHECK(single.to_int64_vector() == batched.to_int64_vector());
}

TEST_CASE("quantized::conv: an empty batch gives an empty result") {
  Generator generator(5);
  const QTensor weight = testing::random_weight({8, 6, 3, 3}, {0}, generator);
  const quantized::ConvPackedParams packed(weight, {}, {}, 2);
  const QTensor x = QTensor::empty({0, 6, 5, 5}, 0.1, 3, DType::QUInt8);
  CHECK(quantized::conv(x, packed, 0.5, 10).sizes() == Dims{0, 8, 3, 3});
}

TEST_CASE("quantized::conv: what was packed comes back and is not shared with the caller") {
  Generator generator(5);
  const QTensor weight = testing::random_weight({8, 6, 3, 3}, {0}, generator);
  const Tensor bias = random_bias(8, generator);
  const quantized::ConvPackedParams packed(weight, bias, {.stride = {2}, .groups = 1}, 2);
  CHECK(packed.weight().equal(weight));
  CHECK(packed.bias().equal(bias));
  CHECK(packed.options().stride == Dims{2, 2});
  CHECK(packed.spatial() == 2);
  CHECK_FALSE(packed.is_transposed());
  const std::vector<std::int64_t> before = packed.weight().to_int64_vector();
  weight.fill_(0.0);
  CHECK(packed.weight().to_int64_vector() == before);
}

TEST_CASE("quantized::conv: one packed weight serves several threads at once") {
  Generator generator(13);
  std::vector<Case> cases;
  std::vector<std::vector<std::int64_t>> expected;
  const QTensor weight = testing::random_weight({64, 64, 3, 3}, {0}, generator);
  for (int i = 0; i < 4; ++i) {
    Case tested;
    tested.options.padding = {1};
    tested.weight = weight;
    tested.x = testing::random_activation({1, 64, 8 + i, 9}, 0.02, i * 40, generator);
    tested.out = {0.7, 3, i % 2 == 0};
    expected.push_back(tested.expected());
    cases.push_back(std::move(tested));
  }
  const quantized::ConvPackedParams packed = cases[0].pack();
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> workers;
  for (std::size_t w = 0; w < 4; ++w) {
    workers.emplace_back([&, w] {
      for (std::size_t i = 0; i < 60; ++i) {
        const std::size_t k = (w + i) % 4;
        if (cases[k].run(packed).to_int64_vector() != expected[k]) ++wrong[w];
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  CHECK(wrong == std::vector<int>(4, 0));
}

TEST_CASE("quantized::conv: threads begin with one packed weight at sizes of different kernels") {
  Generator generator(53);
  const QTensor weight = testing::random_weight({40, 10, 1, 1}, {0}, generator);
  const Tensor bias = random_bias(40, generator);
  std::vector<QTensor> images;
  std::vector<std::vector<std::int64_t>> wanted;
  const OutputQParams out{0.7, 30, false};
  for (const std::int64_t side : {1, 12, 16, 17, 40}) {
    images.push_back(testing::random_activation({1, 10, side, side}, 0.02, 90, generator));
    wanted.push_back(testing::reference_codes(images.back(), weight, bias, {}, false, out));
  }
  for (int round = 0; round < 5; ++round) {
    const quantized::ConvPackedParams packed(weight, bias, {}, 2);
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < images.size(); ++i) {
      threads.emplace_back([&, i] {
        const QTensor got = quantized::conv(images[i], packed, out.scale, out.zero_point);
        if (got.to_int64_vector() != wanted[i]) ++wrong;
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(wrong == 0);
  }
}

TEST_CASE("quantized::conv_add: the sum in float then quantize") {
  Generator generator(17);
  for (const std::int64_t zero_point : {0, 31}) {
    const QTensor x = testing::random_activation({2, 10, 6, 5}, 0.03, zero_point, generator);
    const QTensor weight = testing::random_weight({12, 10, 3, 3}, {0}, generator);
    const Tensor bias = random_bias(12, generator);
    const QTensor accum = testing::random_activation({2, 12, 6, 5}, 0.3, 100, generator);
    const quantized::ConvPackedParams packed(weight, bias, {.padding = {1}}, 2);
    const testing::ReferenceSums sums =
        testing::reference_conv(testing::centred(x), x.sizes(), testing::centred(weight),
                                weight.sizes(), {.padding = {1}}, false);
    const std::vector<float> terms = accum.to_float_vector();
    for (const bool relu : {false, true}) {
      const QTensor out = relu ? quantized::conv_add_relu(x, accum, packed, 0.5, 40)
                               : quantized::conv_add(x, accum, packed, 0.5, 40);
      const std::vector<std::int64_t> got = out.to_int64_vector();
      int wrong = 0;
      for (std::size_t i = 0; i < got.size(); ++i) {
        const std::size_t n = i / 30 % 12;
        const float scale = 0.03F * static_cast<float>(weight.quantizer().channel->scales[n]);
        float value = static_cast<float>(sums.values[i]) * scale;
        value += bias.data<float>()[n];
        value += terms[i];
        if (relu && value < 0.0F) value = 0.0F;
        wrong += got[i] != math::quantize(value, 1.0F / 0.5F, 40, 0, 255);
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("conv2d: float convolutions are near the sum in double") {
  Generator generator(23);
  for (int i = 0; i < 60; ++i) {
    const Case tested = random_case(generator);
    CAPTURE(describe(tested));
    const Tensor x = randn(tested.x.sizes(), generator);
    const Tensor weight = randn(tested.weight.sizes(), generator);
    const ConvTransposeOptions& options = tested.options;
    const ConvOptions plain{options.stride, options.padding, options.dilation, options.groups};
    Tensor out;
    switch (tested.spatial) {
      case 1:
        out = tested.transposed ? conv_transpose1d(x, weight, {}, options)
                                : conv1d(x, weight, {}, plain);
        CHECK(out.is_contiguous());
        break;
      case 2:
        out = tested.transposed ? conv_transpose2d(x, weight, {}, options)
                                : conv2d(x, weight, {}, plain);
        break;
      default:
        out = tested.transposed ? conv_transpose3d(x, weight, {}, options)
                                : conv3d(x, weight, {}, plain);
        break;
    }
    const auto doubles = [](const Tensor& values) {
      const std::vector<float> floats = values.to_float_vector();
      return std::vector<double>(floats.begin(), floats.end());
    };
    const testing::ReferenceSums sums = testing::reference_conv(
        doubles(x), x.sizes(), doubles(weight), weight.sizes(), options, tested.transposed);
    REQUIRE(out.sizes() == sums.sizes);
    const std::vector<float> got = out.to_float_vector();
    double worst = 0.0;
    for (std::size_t k = 0; k < got.size(); ++k) {
      worst = std::max(worst, std::abs(static_cast<double>(got[k]) - sums.values[k]));
    }
    CHECK(worst < 1e-3);
  }
}

TEST_CASE("PackedConv: bias and relu are fused") {
  Generator generator(29);
  const Tensor x = randn({2, 5, 9, 8}, generator);
  const Tensor weight = randn({7, 5, 3, 3}, generator);
  const Tensor bias = randn({7}, generator);
  const ConvOptions options{.stride = {2}, .padding = {1}};
  const Tensor plain = conv2d(x, weight, bias, options);
  const PackedConv packed(weight, bias, options, 2, Fusion::ReLU);
  const std::vector<float> got = packed(x).to_float_vector();
  const std::vector<float> want = plain.to_float_vector();
  REQUIRE(got.size() == want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    CHECK(got[i] == doctest::Approx(std::max(want[i], 0.0F)).epsilon(1e-4));
  }
  CHECK(packed(x).is_contiguous(MemoryFormat::ChannelsLast));
}

TEST_CASE("PackedConv: the tensors that were packed get their gradients") {
  Generator generator(31);
  for (const DType dtype : {DType::Float32, DType::Float64}) {
    for (const bool is_batch : {true, false}) {
      const Dims sizes = is_batch ? Dims{2, 4, 7, 6} : Dims{4, 7, 6};
      const Tensor values[] = {randn(sizes, generator).to(dtype),
                               randn({6, 2, 3, 3}, generator).to(dtype),
                               randn({6}, generator).to(dtype)};
      const ConvOptions options{.stride = {2}, .padding = {1}, .dilation = {1}, .groups = 2};
      const auto gradients = [&](auto&& call) {
        std::vector<Tensor> leaves;
        for (const Tensor& value : values) leaves.push_back(value.clone().set_requires_grad());
        const Tensor y = call(leaves);
        y.backward(Tensor::ones(y.sizes(), dtype));
        std::vector<std::vector<float>> result;
        for (const Tensor& leaf : leaves) result.push_back(leaf.grad().to_float_vector());
        return result;
      };
      const auto wanted = gradients([&](const std::vector<Tensor>& leaves) {
        return relu(conv2d(leaves[0], leaves[1], leaves[2], options));
      });
      const auto got = gradients([&](const std::vector<Tensor>& leaves) {
        const PackedConv packed(leaves[1], leaves[2], options, 2, Fusion::ReLU);
        return packed(leaves[0], leaves[1], leaves[2]);
      });
      CHECK(got == wanted);
    }
  }
}

TEST_CASE("conv2d: many threads at once get the gradients that one gets") {
  Generator generator(8);
  const Tensor x = randn({2, 16, 14, 14}, generator), weight = randn({16, 16, 3, 3}, generator);
  const auto gradient = [&] {
    const Tensor leaf = weight.clone().set_requires_grad();
    const Tensor y = conv2d(x, leaf, Tensor(), {.padding = {1}});
    y.backward(Tensor::ones(y.sizes()));
    return leaf.grad();
  };
  const test::Threads both(2);
  const Tensor expected = gradient();  // makes the primitives that all share
  std::atomic<int> different{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      set_num_threads(2);
      for (int i = 0; i < 50; ++i) different += gradient().equal(expected) ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(different == 0);
}

TEST_CASE("quantized::conv: bad arguments are refused by name") {
  Generator generator(1);
  const QTensor weight = testing::random_weight({8, 6, 3, 3}, {0}, generator);
  const Tensor bias = random_bias(8, generator);
  const quantized::ConvPackedParams packed(weight, bias, {}, 2);
  const QTensor x = testing::random_activation({1, 6, 5, 5}, 0.1, 3, generator);
  const auto refused = [](auto&& call, const char* text) {
    CHECK_THROWS_WITH_AS(call(), doctest::Contains(text), ArgumentError);
  };
  const auto pack = [&](const QTensor& w, const Tensor& b, const ConvOptions& options,
                        std::int64_t spatial = 2) {
    return [=] { quantized::ConvPackedParams(w, b, options, spatial); };
  };
  const auto run = [&](const QTensor& input, double scale, std::int64_t zero_point) {
    return [=] { quantized::conv(input, packed, scale, zero_point); };
  };

  refused(run(QTensor::empty({1, 6, 5, 5}, 0.1, 0, DType::QInt8), 1.0, 0),
          "conv2d: x: expected QUInt8, got QInt8");
  refused(run(testing::random_activation({1, 5, 5, 5}, 0.1, 3, generator), 1.0, 0),
          "conv2d: x: expected 6 channels, got sizes [1, 5, 5, 5]");
  refused(run(testing::random_activation({6, 5}, 0.1, 3, generator), 1.0, 0),
          "conv2d: x: expected 4 dimensions (or 3 without a batch), got sizes [6, 5]");
  refused(run(testing::random_activation({1, 6, 2, 5}, 0.1, 3, generator), 1.0, 0),
          "conv2d: x: expected an input (with padding [0, 0]) no smaller than the kernel");
  refused(run(x, 0.0, 0), "conv2d: scale");
  refused(run(x, std::nan(""), 0), "conv2d: scale");
  refused(run(x, 1.0, 256), "conv2d: zero_point: expected 0..255 for QUInt8, got 256");
  refused(run(x, 1.0, -1), "conv2d: zero_point");
  refused(run(QTensor(), 1.0, 0), "conv2d: x: expected a tensor, got an undefined one");
  refused([&] { quantized::conv(x, quantized::ConvPackedParams(), 1.0, 0); },
          "conv: packed: expected packed parameters");

  refused(pack(x, bias, {}), "conv2d: weight: expected QInt8, got QUInt8");
  refused(pack(testing::random_weight({8, 6, 3, 3}, {1}, generator), bias, {}),
          "conv2d: weight: expected QInt8 quantized along axis 0, got QInt8 along axis 1");
  refused(pack(weight, bias, {}, 3), "conv3d: weight: expected 5 dimensions");
  refused(pack(weight, bias, {}, 4), "conv: spatial: expected 1, 2 or 3, got 4");
  refused(pack(weight, random_bias(7, generator), {}),
          "conv2d: bias: expected one number for each of 8 output channels, got sizes [7]");
  refused(pack(weight, Tensor::zeros({8}, DType::Float64), {}),
          "conv2d: bias: expected Float32, got Float64");
  refused(pack(weight, bias, {.stride = {0}}), "conv2d: stride: expected 1..");
  refused(pack(weight, bias, {.stride = {1, 1, 1}}), "conv2d: stride: expected 1 or 2 numbers");
  refused(pack(weight, bias, {.padding = {-1}}), "conv2d: padding: expected 0..");
  refused(pack(weight, bias, {.dilation = {0}}), "conv2d: dilation: expected 1..");
  refused(pack(weight, bias, {.groups = 3}),
          "conv2d: groups: expected a divisor of the weight's first size 8, got 3");
  refused(pack(weight, bias, {.groups = 0}), "conv2d: groups");
  const QTensor accum = testing::random_activation({1, 8, 3, 4}, 0.1, 3, generator);
  refused([&] { quantized::conv_add(x, accum, packed, 1.0, 0); },
          "conv2d: accum: expected sizes [1, 8, 3, 3], got [1, 8, 3, 4]");
}

TEST_CASE("quantized::conv: transposed weights are quantized per tensor or along axis 1") {
  Generator generator(1);
  const QTensor along0 = testing::random_weight({8, 6, 3, 3}, {0}, generator);
  CHECK_THROWS_WITH_AS(quantized::ConvPackedParams::transposed(along0, {}, {}, 2),
                       doctest::Contains("conv_transpose2d: weight: expected QInt8 quantized along "
                                         "axis 1, got QInt8 along axis 0"),
                       ArgumentError);
  const QTensor along1 = testing::random_weight({8, 6, 3, 3}, {1}, generator);
  CHECK_THROWS_AS(quantized::ConvPackedParams::transposed(along1, {}, {.groups = 2}, 2),
                  UnsupportedError);
  CHECK_THROWS_WITH_AS(
      quantized::ConvPackedParams::transposed(along1, {}, {.output_padding = {1}}, 2),
      doctest::Contains("conv_transpose2d: output_padding: expected less than stride or dilation"),
      ArgumentError);
}

TEST_CASE("conv2d: bad arguments are refused by name") {
  Generator generator(1);
  const Tensor weight = randn({8, 6, 3, 3}, generator);
  const QTensor codes = testing::random_activation({1, 6, 5, 5}, 0.1, 3, generator);
  CHECK_THROWS_WITH_AS(conv2d(codes, weight, {}, {}),
                       doctest::Contains("conv2d: x: expected Float32, got QUInt8 (is a "
                                         "DeQuantStub missing?)"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(conv2d(randn({1, 6, 5, 5}, generator), Tensor(), {}, {}),
                       doctest::Contains("conv2d: weight: expected a tensor"), ArgumentError);
  CHECK_THROWS_AS(PackedConv()(randn({1, 6, 5, 5}, generator)), ArgumentError);
}

TEST_CASE("quantized conv2d: a padding far beyond the input needs no memory for its border") {
  const QTensor weight = QTensor::empty({2, 4, 1, 1}, 0.1, 0, DType::QInt8);
  weight.fill_(0.3);
  const QTensor x = QTensor::empty({1, 4, 3, 3}, 0.1, 10, DType::QUInt8);
  x.fill_(0.5);
  for (const std::int64_t padding : {std::int64_t{70000}, std::int64_t{1} << 30}) {
    CAPTURE(padding);
    const quantized::ConvPackedParams packed(weight, {},
                                             {.stride = {padding}, .padding = {padding}}, 2);
    const QTensor y = quantized::conv(x, packed, 0.1, 3);
    REQUIRE(y.sizes() == Dims{1, 2, 3, 3});
    // Only the middle one meets the input: 4 * 0.5 * 0.3 = 0.6.
    std::vector<std::int64_t> want(18, 3);
    want[4] = want[13] = 9;
    CHECK(y.to_int64_vector() == want);
  }
}

TEST_CASE("quantized conv: depthwise layers with huge padding and steps need no memory for it") {
  constexpr std::int64_t kFar = std::int64_t{1} << 30U;
  const QTensor x = quantize_per_tensor(Tensor::full({1, 3, 4, 4}, 1.0), 0.1, 3, DType::QUInt8);
  const QTensor weight = quantize_per_tensor(Tensor::ones({3, 1, 3, 3}), 0.1, 0, DType::QInt8);
  for (const std::int64_t stride : {kFar / 2, kFar}) {
    for (const std::int64_t dilation : {std::int64_t{1}, kFar}) {
      CAPTURE(stride);
      CAPTURE(dilation);
      const ConvOptions options{
          .stride = stride, .padding = kFar, .dilation = dilation, .groups = 3};
      const quantized::ConvPackedParams packed(weight, Tensor(), options, 2);
      const Tensor got = dequantize(quantized::conv(x, packed, 0.1, 0));
      const std::int64_t count = got.size(3);
      CHECK(got.sizes() == Dims{1, 3, count, count});
      // Taps of an output along one dimension that fall into the input, all of them 1.
      const auto taps_of = [&](std::int64_t out) {
        double taps = 0.0;
        for (std::int64_t k = 0; k < 3; ++k) {
          const std::int64_t at = out * stride - kFar + k * dilation;
          if (at >= 0 && at < 4) ++taps;
        }
        return taps;
      };
      for (std::int64_t row = 0; row < count; ++row) {
        for (std::int64_t column = 0; column < count; ++column) {
          const double want = taps_of(row) * taps_of(column);
          for (std::int64_t channel = 0; channel < 3; ++channel) {
            const double value = got.select(1, channel).select(1, row).select(1, column).item();
            CHECK(value == doctest::Approx(want));
          }
        }
      }
    }
  }
}

}  // namespace quanta
