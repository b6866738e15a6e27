// freeze: sums of codes that go into the convolution before them.

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "ops/conv_reference.h"
#include "ops/instruction_sets.h"
#include "quanta/fusion/freeze.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/arithmetic_quantized.h"
#include "quanta/ops/conv.h"
#include "quanta/ops/quantize.h"
#include "support/capture_binding.h"
#include "support/compare.h"
#include "support/count_text.h"
#include "support/tensors.h"

namespace quanta {
namespace {

struct Layer {
  Dims weight;
  ConvOptions options{};
};

/// convolution(x) + x or + another convolution of x, with or without relu; `plain`: to codes from 0.
struct Block : nn::Module {
  quantized::ConvPackedParams first, second;
  bool both = false, relu = false, reused = false, swapped = false, plain = false;

  Tensor forward(const Tensor& x) const override {
    const QTensor codes(quantize_per_tensor(x, 0.04, 121, DType::QUInt8));
    const QTensor left = quantized::conv(codes, first, 0.11, 97);
    const QTensor right = both ? quantized::conv(codes, second, 0.2, 130) : codes;
    const QTensor& a = swapped ? right : left;
    const QTensor& b = swapped ? left : right;
    const QTensor sum = relu ? quantized::add_relu(a, b, 0.13, plain ? 0 : 20)
                             : quantized::add(a, b, 0.17, plain ? 0 : 110);
    if (!reused) return dequantize(sum);
    return dequantize(sum) + dequantize(left);
  }
};

quantized::ConvPackedParams packed(const Layer& layer, Generator& generator) {
  const QTensor weight = testing::random_weight(layer.weight, {0}, generator);
  return {weight, randn({layer.weight[0]}, generator), layer.options,
          static_cast<std::int64_t>(layer.weight.size()) - 2};
}

TEST_CASE("freeze: a sum with the result of a convolution is one step, with the same codes") {
  const std::vector<std::pair<Dims, Layer>> layers{
      {{2, 32, 9, 11}, {{32, 32, 1, 1}}},
      {{1, 64, 7, 7}, {{64, 64, 3, 3}, {.padding = {1}}}},
      {{1, 20, 6, 5}, {{20, 20, 3, 3}, {.padding = {2}, .dilation = {2}}}},
      {{1, 3, 12, 10}, {{3, 3, 3, 3}, {.padding = {1}}}},
      {{2, 24, 8, 9}, {{24, 1, 3, 3}, {.padding = {1}, .groups = 24}}},
      {{1, 16, 8, 8}, {{16, 4, 3, 3}, {.padding = {1}, .groups = 4}}},
      {{1, 16, 40}, {{16, 16, 5}, {.padding = {2}}}},
      {{1, 16, 4, 5, 6}, {{16, 16, 3, 3, 3}, {.padding = {1}}}},
  };
  test::for_each_instruction_set([&] {
    Generator generator(71);
    for (const auto& [sizes, layer] : layers) {
      for (int form = 0; form < 8; ++form) {
        Block block;
        block.first = packed(layer, generator);
        block.second = packed(layer, generator);
        block.both = form % 2 == 1;
        block.relu = form >= 2 && form != 7;
        block.swapped = form >= 4;
        block.plain = form >= 6;
        block.eval();
        Tensor x = randn(sizes, generator);
        // In the order of the convolution's result: a sum of two orders is a step of its own, as is
        // one of conv1d's results, which are copied to another order.
        if (sizes.size() == 4) x = x.contiguous(MemoryFormat::ChannelsLast);
        const bool is_joined = sizes.size() == 4 || (block.both && sizes.size() == 5);
        const FrozenModel frozen = freeze(block, x);
        CAPTURE_BINDING(sizes);
        CAPTURE(form);
        CAPTURE(frozen.to_string());
        const std::string sum = block.relu ? " + quantized::add_relu" : " + quantized::add";
        CHECK(test::count_text(frozen.to_string(), sum) == (is_joined ? 1 : 0));
        const Tensor wanted = static_cast<const nn::Module&>(block)(x);
        for (int run = 0; run < 2; ++run) CHECK(test::same_bits(frozen(x), wanted));
      }
    }
  });
}

TEST_CASE("freeze: a convolution whose result is wanted otherwise too keeps its step") {
  Generator generator(72);
  Block block;
  block.first = packed({{16, 16, 1, 1}}, generator);
  block.reused = true;
  block.eval();
  const Tensor x = randn({1, 16, 5, 5}, generator);
  const FrozenModel frozen = freeze(block, x);
  CHECK(test::count_text(frozen.to_string(), " + quantized::add") == 0);
  CHECK(test::same_bits(frozen(x), static_cast<const nn::Module&>(block)(x)));
}

/// The convolution's codes with other parameters, by two ways, and a sum.
struct Reread : nn::Module {
  quantized::ConvPackedParams conv;
  bool by_view = false;

  Tensor forward(const Tensor& x) const override {
    const QTensor codes(quantize_per_tensor(x, 0.04, 121, DType::QUInt8));
    const QTensor left = quantized::conv(codes, conv, 0.1, 97);
    const QTensor again =
        by_view ? QTensor::from_int_repr(left.int_repr_view(), Quantizer::per_tensor(0.3, 5))
                : QTensor(quantize_per_tensor(dequantize(left), 0.1002, 97, DType::QUInt8));
    return dequantize(quantized::add(again, codes, 0.31, 40));
  }
};

TEST_CASE("freeze: codes that are read with other parameters than a convolution's are not joined") {
  Generator generator(73);
  for (const bool by_view : {false, true}) {
    CAPTURE(by_view);
    Reread net;
    net.conv = packed({{16, 16, 1, 1}}, generator);
    net.by_view = by_view;
    net.eval();
    const Tensor x = randn({1, 16, 6, 6}, generator).contiguous(MemoryFormat::ChannelsLast);
    const FrozenModel frozen = freeze(net, x);
    CHECK(test::count_text(frozen.to_string(), " + quantized::add") == 0);
    CHECK(test::same_bits(frozen(x), static_cast<const nn::Module&>(net)(x)));
  }
}

}  // namespace
}  // namespace quanta
