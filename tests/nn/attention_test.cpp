#include "quanta/nn/attention.h"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/attention.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/parallel.h"
#include "quanta/runtime/random.h"
#include "support/compare.h"
#include "support/threads.h"

namespace quanta::nn {
namespace {

using test::largest_difference;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// Sums of a few hundred products of numbers around 1.
constexpr double kTolerance = 1e-5;

// [batch, heads, ...] tensors, in double, key by key; `added` is [batch, heads, L, S] or undefined.
Tensor reference(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& added,
                 double scale, bool causal) {
  const Dims& q = query.sizes();
  const std::int64_t keys = key.size(2);
  const std::int64_t width = value.size(3);
  const std::vector<float> qs = query.to_float_vector();
  const std::vector<float> ks = key.to_float_vector();
  const std::vector<float> vs = value.to_float_vector();
  const std::vector<float> ms = added.defined() ? added.to_float_vector() : std::vector<float>();
  const auto at = [](const std::vector<float>& values, std::int64_t i) {
    return static_cast<double>(values[static_cast<std::size_t>(i)]);
  };
  std::vector<float> out;
  for (std::int64_t head = 0; head < q[0] * q[1]; ++head) {
    for (std::int64_t i = 0; i < q[2]; ++i) {
      std::vector<double> weights;
      double sum = 0.0;
      for (std::int64_t j = 0; j < keys; ++j) {
        double product = 0.0;
        for (std::int64_t e = 0; e < q[3]; ++e) {
          product += at(qs, (head * q[2] + i) * q[3] + e) * at(ks, (head * keys + j) * q[3] + e);
        }
        product *= scale;
        if (!ms.empty()) product += at(ms, (head * q[2] + i) * keys + j);
        weights.push_back(causal && j > i ? 0.0 : std::exp(product));
        sum += weights.back();
      }
      for (std::int64_t e = 0; e < width; ++e) {
        double total = 0.0;
        for (std::int64_t j = 0; j < keys && sum > 0.0; ++j) {
          total +=
              weights[static_cast<std::size_t>(j)] / sum * at(vs, (head * keys + j) * width + e);
        }
        out.push_back(static_cast<float>(total));
      }
    }
  }
  return Tensor::from_values(out, {q[0], q[1], q[2], width});
}

struct Shape {
  std::int64_t batch, heads, queries, keys, features, value_features;
};

const std::vector<Shape> kShapes{{1, 1, 1, 1, 1, 1},    {2, 3, 5, 7, 4, 6},
                                 {1, 2, 130, 17, 8, 8}, {3, 1, 16, 16, 16, 3},
                                 {2, 2, 1, 40, 5, 5},   {1, 4, 33, 129, 32, 32}};

Tensor random_bools(const Dims& sizes) {
  const Tensor numbers = rand(sizes);
  const Tensor mask = Tensor::empty(sizes, DType::Bool);
  for (std::int64_t i = 0; i < mask.numel(); ++i) {
    mask.mutable_data<bool>()[i] = numbers.data<float>()[i] < 0.6F;
  }
  return mask;
}

// Makes a module's parameters numbers that a test can see.
void randomize(Module& module) {
  for (const Module::NamedTensor& parameter : module.named_parameters()) {
    parameter.tensor.copy_(mul_scalar(randn(parameter.tensor.sizes()), 0.3));
  }
}

MultiheadAttention attention(const MultiheadAttentionOptions& options) {
  MultiheadAttention module(options);
  randomize(module);
  module.eval();
  return module;
}

TEST_CASE("scaled_dot_product_attention: random shapes agree with a plain reference") {
  manual_seed(1);
  for (const Shape& s : kShapes) {
    const Tensor q = randn({s.batch, s.heads, s.queries, s.features});
    const Tensor k = randn({s.batch, s.heads, s.keys, s.features});
    const Tensor v = randn({s.batch, s.heads, s.keys, s.value_features});
    const double scale = 1.0 / std::sqrt(static_cast<double>(s.features));
    CHECK(largest_difference(scaled_dot_product_attention(q, k, v),
                             reference(q, k, v, {}, scale, false)) < kTolerance);
    CHECK(largest_difference(scaled_dot_product_attention(q, k, v, {}, {.is_causal = true}),
                             reference(q, k, v, {}, scale, true)) < kTolerance);
    const Tensor mask = randn({s.batch, s.heads, s.queries, s.keys});
    CHECK(largest_difference(scaled_dot_product_attention(q, k, v, mask, {.scale = 0.3}),
                             reference(q, k, v, mask, 0.3, false)) < kTolerance);
  }
}

TEST_CASE("scaled_dot_product_attention: masks broadcast and truth means taking part") {
  manual_seed(2);
  const Tensor q = randn({2, 3, 4, 8});
  const Tensor k = randn({2, 3, 6, 8});
  const Tensor v = randn({2, 3, 6, 5});
  for (const Dims& sizes :
       {Dims{4, 6}, Dims{6}, Dims{2, 1, 1, 6}, Dims{3, 4, 1}, Dims{1, 3, 4, 6}}) {
    const Tensor mask = random_bools(sizes);
    const Tensor full = mask.expand({2, 3, 4, 6});
    const Tensor added = additive_mask("test", "mask", full.contiguous(), false);
    CHECK(largest_difference(scaled_dot_product_attention(q, k, v, mask),
                             reference(q, k, v, added, 1.0 / std::sqrt(8.0), false)) < kTolerance);
  }
}

TEST_CASE("scaled_dot_product_attention: other ranks and broadcast operands") {
  manual_seed(3);
  const Tensor q = randn({2, 3, 4, 8});
  const Tensor k = randn({1, 3, 6, 8});
  const Tensor v = randn({3, 6, 5});
  const Tensor wide = scaled_dot_product_attention(q, k, v);
  const Tensor expected = scaled_dot_product_attention(q, k.expand({2, 3, 6, 8}).contiguous(),
                                                       v.expand({2, 3, 6, 5}).contiguous());
  CHECK(largest_difference(wide, expected) == 0.0);
  CHECK(largest_difference(scaled_dot_product_attention(q[1], k[0], v), expected[1]) < kTolerance);
  CHECK(largest_difference(scaled_dot_product_attention(q[1][2], k[0][2], v[2]), expected[1][2]) <
        kTolerance);
  const Tensor five = scaled_dot_product_attention(q.unsqueeze(0), k.unsqueeze(0), v);
  CHECK(largest_difference(five, expected.unsqueeze(0)) < kTolerance);
}

TEST_CASE("scaled_dot_product_attention: views of one projection need no copy and keep the order") {
  manual_seed(4);
  const Tensor all = randn({2, 9, 3 * 24});
  const auto part = [&](std::int64_t i) {
    return all.narrow(-1, i * 24, 24).view({2, 9, 3, 8}).transpose(1, 2);
  };
  const Tensor y = scaled_dot_product_attention(part(0), part(1), part(2));
  const Tensor dense = scaled_dot_product_attention(part(0).contiguous(), part(1).contiguous(),
                                                    part(2).contiguous());
  CHECK(largest_difference(y, dense) < kTolerance);
  CHECK(y.transpose(1, 2).is_contiguous());
  CHECK(dense.is_contiguous());
}

TEST_CASE("scaled_dot_product_attention: a query without any key gives zeros") {
  manual_seed(5);
  const Tensor q = randn({1, 2, 3, 4});
  const Tensor mask = Tensor::ones({3, 3}, DType::Bool);
  mask.select(0, 1).fill_(0.0);
  const Tensor y = scaled_dot_product_attention(q, q, q, mask);
  CHECK(largest_difference(y.select(2, 1), Tensor::zeros({1, 2, 4})) == 0.0);
  CHECK(largest_difference(scaled_dot_product_attention(q, q, q, mask).select(2, 0),
                           scaled_dot_product_attention(q, q, q).select(2, 0)) < kTolerance);
  const Tensor none = Tensor::zeros({1, 2, 0, 4});
  CHECK(largest_difference(scaled_dot_product_attention(q, none, none),
                           Tensor::zeros({1, 2, 3, 4})) == 0.0);
  CHECK(scaled_dot_product_attention(none, q, q).numel() == 0);
}

TEST_CASE("scaled_dot_product_attention: the steps for dropout give the same where nothing falls") {
  manual_seed(6);
  const Tensor q = randn({1, 2, 40, 16});
  const Tensor mask = random_bools({40, 40});
  mask.select(0, 3).fill_(0.0);
  // Asking for a gradient takes the same way.
  const Tensor leaf = q.clone();
  leaf.set_requires_grad();
  CHECK(largest_difference(scaled_dot_product_attention(leaf, q, q, mask).detach(),
                           scaled_dot_product_attention(q, q, q, mask)) < kTolerance);
  CHECK(largest_difference(
            scaled_dot_product_attention(leaf, q, q, {}, {.is_causal = true}).detach(),
            scaled_dot_product_attention(q, q, q, {}, {.is_causal = true})) < kTolerance);
  const Tensor all_dropped = scaled_dot_product_attention(q, q, q, {}, {.dropout_p = 1.0});
  CHECK(largest_difference(all_dropped, Tensor::zeros({1, 2, 40, 16})) == 0.0);
}

TEST_CASE("scaled_dot_product_attention: the number of threads does not change the result") {
  manual_seed(7);
  const Tensor q = randn({2, 3, 50, 8});
  const test::Threads guard(1);
  const Tensor one = scaled_dot_product_attention(q, q, q);
  set_num_threads(3);
  const Tensor three = scaled_dot_product_attention(q, q, q);
  CHECK(one.equal(three));
}

TEST_CASE("scaled_dot_product_attention: operands that do not fit are refused by name") {
  const Tensor x = Tensor::ones({2, 3, 4});
  const auto text = [](const char* part) { return doctest::Contains(part); };
  CHECK_THROWS_WITH_AS(scaled_dot_product_attention(x, Tensor::ones({2, 3, 5}), x),
                       text("key: expected 4 features"), ArgumentError);
  CHECK_THROWS_WITH_AS(scaled_dot_product_attention(x, x, Tensor::ones({2, 5, 4})),
                       text("value: expected 3 rows"), ArgumentError);
  CHECK_THROWS_WITH_AS(scaled_dot_product_attention({}, x, x), text("query: expected a Float32"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(scaled_dot_product_attention(x, x, x.to(DType::Float64)),
                       text("value: expected Float32"), UnsupportedError);
  CHECK_THROWS_WITH_AS(scaled_dot_product_attention(x, x, x, Tensor::ones({2, 3, 4})),
                       text("attn_mask: expected sizes that broadcast to [2, 3, 3]"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(scaled_dot_product_attention(x, x, x, Tensor::ones({3, 3}, DType::Int64)),
                       text("attn_mask: expected Bool or Float32"), ArgumentError);
  CHECK_THROWS_WITH_AS(
      scaled_dot_product_attention(x, x, x, Tensor::ones({3, 3}), {.is_causal = true}),
      text("is_causal: expected false together with attn_mask"), ArgumentError);
  CHECK_THROWS_WITH_AS(scaled_dot_product_attention(x, x, x, {}, {.dropout_p = 1.5}),
                       text("dropout_p: expected 0..1"), ArgumentError);
}

TEST_CASE("gelu: vectors agree with erf and tanh for every tail") {
  const Tensor x = mul_scalar(randn({4099}), 3.0);
  for (const auto kind : {GeluApproximation::None, GeluApproximation::Tanh}) {
    for (const std::int64_t count : {1, 15, 17, 4099}) {
      const Tensor part = x.narrow(0, 0, count);
      const Tensor y = gelu(part, kind);
      for (std::int64_t i = 0; i < count; ++i) {
        const auto v = static_cast<double>(part.data<float>()[i]);
        const double share =
            kind == GeluApproximation::None
                ? 0.5 * std::erfc(-v / std::sqrt(2.0))
                : 0.5 * (1.0 + std::tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
        REQUIRE(std::abs(static_cast<double>(y.data<float>()[i]) - v * share) < 1e-6);
      }
    }
  }
  const Tensor ends = gelu(Tensor::from_values({kInfinity, std::nanf(""), -40.0F}));
  CHECK(ends.data<float>()[0] == kInfinity);
  CHECK(std::isnan(ends.data<float>()[1]));
  CHECK(ends.data<float>()[2] == 0.0F);
}

TEST_CASE("MultiheadAttention: parameters have torch's names for each form") {
  const auto names = [](const MultiheadAttentionOptions& options) {
    const MultiheadAttention module(options);
    std::vector<std::string> result;
    for (const auto& [name, tensor] : module.state_dict()) result.push_back(name);
    return result;
  };
  using Names = std::vector<std::string>;
  CHECK(names({.embed_dim = 4, .num_heads = 2}) ==
        Names{"in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"});
  CHECK(names({.embed_dim = 4, .num_heads = 2, .bias = false, .add_bias_kv = true, .kdim = 3}) ==
        Names{"q_proj_weight", "k_proj_weight", "v_proj_weight", "bias_k", "bias_v",
              "out_proj.weight"});
  const MultiheadAttention module({.embed_dim = 4, .num_heads = 2});
  CHECK(module.get_submodule("out_proj")->type_name() == "NonDynamicallyQuantizableLinear");
}

TEST_CASE("MultiheadAttention: orders of batch and steps and a single sequence agree") {
  manual_seed(11);
  MultiheadAttention first = attention({.embed_dim = 12, .num_heads = 3, .batch_first = true});
  MultiheadAttention steps({.embed_dim = 12, .num_heads = 3});
  steps.load_state_dict(first.state_dict());
  steps.eval();
  const Tensor x = randn({2, 5, 12});
  const Tensor memory = randn({2, 7, 12});
  for (const bool weights : {true, false}) {
    const AttentionOutput y = first.forward(x, memory, memory, {.need_weights = weights});
    const AttentionOutput z = steps.forward(x.transpose(0, 1), memory.transpose(0, 1),
                                            memory.transpose(0, 1), {.need_weights = weights});
    CHECK(largest_difference(y.output, z.output.transpose(0, 1)) < kTolerance);
    const AttentionOutput one =
        first.forward(x[1], memory[1], memory[1], {.need_weights = weights});
    CHECK(largest_difference(y.output[1], one.output) < kTolerance);
    CHECK(y.weights.defined() == weights);
    if (!weights) continue;
    CHECK(largest_difference(y.weights, z.weights) < kTolerance);
    CHECK(largest_difference(y.weights[1], one.weights) < kTolerance);
  }
  const AttentionOutput heads = steps.forward(x[0], x[0], x[0], {.average_attn_weights = false});
  CHECK(heads.weights.sizes() == Dims{3, 5, 5});
}

TEST_CASE("MultiheadAttention: joint projections give what separate ones give") {
  manual_seed(12);
  const MultiheadAttention module =
      attention({.embed_dim = 8, .num_heads = 2, .batch_first = true});
  const Tensor x = randn({2, 5, 8});
  const Tensor memory = randn({2, 6, 8});
  CHECK(largest_difference(module.forward(x), module.forward(x, x.clone(), x.clone()).output) <
        kTolerance);
  CHECK(largest_difference(module.forward(x, memory, memory).output,
                           module.forward(x, memory, memory.clone()).output) < kTolerance);
  CHECK(largest_difference(module.forward(x, x, x).output, module(x)) < kTolerance);
}

TEST_CASE("MultiheadAttention: a changed weight takes effect in eval mode") {
  manual_seed(13);
  MultiheadAttention module = attention({.embed_dim = 8, .num_heads = 2});
  const Tensor x = randn({4, 1, 8});
  const Tensor before = module(x);
  module.in_proj_weight.copy_(mul_scalar(module.in_proj_weight, 2.0));
  CHECK(largest_difference(module(x), before) > 1e-3);
  const auto copy = deep_copy(module);
  CHECK(module(x).equal(copy(x)));
}

TEST_CASE("MultiheadAttention: masks of bools and of numbers mean the same") {
  manual_seed(14);
  const MultiheadAttention module =
      attention({.embed_dim = 8, .num_heads = 2, .batch_first = true});
  const Tensor x = randn({3, 5, 8});
  const Tensor padding = Tensor::zeros({3, 5}, DType::Bool);
  padding.mutable_data<bool>()[4] = true;
  padding.mutable_data<bool>()[8] = true;
  const Tensor mask = Tensor::zeros({6, 5, 5}, DType::Bool);
  for (std::int64_t i = 0; i < 6 * 25; i += 7) mask.mutable_data<bool>()[i] = true;
  for (const bool weights : {true, false}) {
    const Tensor y = module.forward(x, x, x, {padding, weights, mask}).output;
    const Tensor z = module
                         .forward(x, x, x,
                                  {additive_mask("test", "mask", padding, true), weights,
                                   additive_mask("test", "mask", mask, true)})
                         .output;
    CHECK(largest_difference(y, z) == 0.0);
    CHECK(largest_difference(y, module(x)) > 1e-3);
    // A padded key is as good as none.
    const Tensor shorter = x.narrow(1, 0, 4).narrow(0, 0, 1);
    const Tensor shown = module
                             .forward(x.narrow(0, 0, 1), x.narrow(0, 0, 1), x.narrow(0, 0, 1),
                                      {padding.narrow(0, 0, 1), weights})
                             .output.narrow(1, 0, 4);
    CHECK(largest_difference(
              shown, module.forward(shorter, shorter, shorter, {{}, weights}).output) < kTolerance);
  }
}

TEST_CASE("MultiheadAttention: is_causal is a hint for the causal mask") {
  manual_seed(15);
  const MultiheadAttention module = attention({.embed_dim = 8, .num_heads = 2});
  const Tensor x = randn({5, 2, 8});
  const Tensor mask = Tensor::zeros({5, 5}, DType::Bool);
  for (std::int64_t i = 0; i < 5; ++i) {
    for (std::int64_t j = i + 1; j < 5; ++j) mask.mutable_data<bool>()[i * 5 + j] = true;
  }
  const AttentionCall call{.need_weights = false, .attn_mask = mask};
  AttentionCall hinted = call;
  hinted.is_causal = true;
  CHECK(largest_difference(module.forward(x, x, x, call).output,
                           module.forward(x, x, x, hinted).output) < kTolerance);
  CHECK_THROWS_WITH_AS(module.forward(x, x, x, {.is_causal = true}),
                       doctest::Contains("attn_mask: expected the causal mask with is_causal"),
                       ArgumentError);
}

TEST_CASE("MultiheadAttention: learned and zero keys are keys that no mask hides") {
  manual_seed(16);
  const MultiheadAttention plain = attention({.embed_dim = 8, .num_heads = 2, .batch_first = true});
  MultiheadAttention more({.embed_dim = 8,
                           .num_heads = 2,
                           .add_bias_kv = true,
                           .add_zero_attn = true,
                           .batch_first = true});
  more.load_state_dict(plain.state_dict(), Strict::No);
  more.eval();
  const Tensor x = randn({2, 3, 8});
  const AttentionOutput y = more.forward(x, x, x, {.average_attn_weights = false});
  CHECK(y.weights.sizes() == Dims{2, 2, 3, 5});
  // By hand: projected, extended, attended.
  const Tensor all = linear(x, more.in_proj_weight, more.in_proj_bias);
  const auto heads = [](const Tensor& t) {
    return t.reshape({2, t.size(1), 2, 4}).transpose(1, 2);
  };
  const auto extended = [&](const Tensor& t, const Tensor& row) {
    const std::array<Tensor, 3> parts{t.contiguous(), row.expand({2, 1, 8}).contiguous(),
                                      Tensor::zeros({2, 1, 8})};
    return heads(cat(parts, 1));
  };
  const Tensor attended = scaled_dot_product_attention(
      heads(all.narrow(-1, 0, 8)), extended(all.narrow(-1, 8, 8), more.bias_k),
      extended(all.narrow(-1, 16, 8), more.bias_v));
  const Tensor expected = more.out_proj(attended.transpose(1, 2).reshape({2, 3, 8}));
  CHECK(largest_difference(y.output, expected) < kTolerance);
  CHECK(largest_difference(more(x), expected) < kTolerance);
  // With everything masked the two rows remain, so that nothing is NaN.
  const Tensor padding = Tensor::ones({2, 3}, DType::Bool);
  const Tensor rest = more.forward(x, x, x, {.key_padding_mask = padding}).output;
  CHECK(largest_difference(rest, rest) == 0.0);
  CHECK(std::isfinite(rest.to_float_vector()[0]));
}

TEST_CASE("MultiheadAttention: a query without any key gives NaN where weights are asked for") {
  manual_seed(17);
  const MultiheadAttention module =
      attention({.embed_dim = 4, .num_heads = 2, .bias = false, .batch_first = true});
  const Tensor x = randn({2, 3, 4});
  const Tensor padding = Tensor::zeros({2, 3}, DType::Bool);
  padding.select(0, 1).fill_(1.0);
  const AttentionOutput y = module.forward(x, x, x, {.key_padding_mask = padding});
  CHECK(std::isfinite(y.output[0].to_float_vector()[0]));
  CHECK(std::isnan(y.output[1].to_float_vector()[0]));
  CHECK(std::isnan(y.weights[1].to_float_vector()[0]));
  const Tensor z =
      module.forward(x, x, x, {.key_padding_mask = padding, .need_weights = false}).output;
  CHECK(largest_difference(z[1], Tensor::zeros({3, 4})) == 0.0);
}

TEST_CASE("MultiheadAttention: dropout acts on weights in train mode only") {
  manual_seed(18);
  MultiheadAttention module =
      attention({.embed_dim = 8, .num_heads = 2, .dropout = 0.5, .batch_first = true});
  const Tensor x = randn({1, 20, 8});
  CHECK(module(x).equal(module(x)));
  module.train();
  const Tensor weights = module.forward(x, x, x, {.average_attn_weights = false}).weights;
  std::int64_t zeros = 0;
  for (const float w : weights.to_float_vector()) zeros += w == 0.0F ? 1 : 0;
  CHECK(zeros > 300);
  CHECK(zeros < 500);
  CHECK_FALSE(module(x).equal(module(x)));
}

TEST_CASE("MultiheadAttention: bad options and inputs are refused by name") {
  const auto make = [](const MultiheadAttentionOptions& options) {
    return MultiheadAttention(options);
  };
  CHECK_THROWS_WITH_AS(make({.embed_dim = 6, .num_heads = 4}),
                       doctest::Contains("num_heads: expected a divisor of embed_dim 6, got 4"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(make({.embed_dim = 0, .num_heads = 1}),
                       doctest::Contains("embed_dim: expected at least 1"), ArgumentError);
  CHECK_THROWS_WITH_AS(make({.embed_dim = 4, .num_heads = 1, .dropout = -1.0}),
                       doctest::Contains("dropout: expected 0..1"), ArgumentError);
  CHECK_THROWS_WITH_AS(make({.embed_dim = 4, .num_heads = 1, .kdim = -1}),
                       doctest::Contains("kdim: expected"), ArgumentError);
  const MultiheadAttention module = attention({.embed_dim = 4, .num_heads = 2});
  const Tensor x = randn({3, 2, 4});
  CHECK_THROWS_WITH_AS(module.forward(x, x, randn({3, 2, 5})),
                       doctest::Contains("value: expected 2 or 3 dimensions"), ArgumentError);
  CHECK_THROWS_WITH_AS(module.forward(x, randn({3, 1, 4}), x),
                       doctest::Contains("key: expected key and value of one length"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(module.forward(x, x[0], x[0]),
                       doctest::Contains("key: expected key and value with 3 dimensions"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(module.forward(x, x, x, {.key_padding_mask = Tensor::ones({3, 2})}),
                       doctest::Contains("key_padding_mask: expected sizes [2, 3], got [3, 2]"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(module.forward(x, x, x, {.attn_mask = Tensor::ones({2, 3, 3})}),
                       doctest::Contains("attn_mask: expected sizes [4, 3, 3], got [2, 3, 3]"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(module.forward(x, x, x, {.attn_mask = Tensor::ones({3, 3}, DType::Int64)}),
                       doctest::Contains("attn_mask: expected Bool or Float32, got Int64"),
                       ArgumentError);
}

}  // namespace
}  // namespace quanta::nn
