// Attention as com.microsoft has it.

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "fusion/graph/net_builder.h"
#include "quanta/fusion/graph/frozen.h"
#include "quanta/fusion/graph/model.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/attention.h"
#include "quanta/ops/cat.h"
#include "quanta/ops/matmul.h"
#include "quanta/ops/shape.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/compare.h"

namespace quanta::graph {
namespace {

using test::NetBuilder;

constexpr std::int64_t kHeads = 4;

/// A node of com.microsoft on these inputs, undefined ones left out; as a plan as well.
std::vector<Tensor> run(const std::string& op, const std::vector<Tensor>& inputs,
                        OnnxAttributes attributes, std::size_t outputs = 1) {
  NetBuilder builder;
  std::vector<std::string> names;
  std::vector<Tensor> given;
  for (const Tensor& x : inputs) {
    names.emplace_back();
    if (!x.defined()) continue;
    names.back() = builder.input("x" + std::to_string(names.size()), onnx_type_of(x.dtype()));
    given.push_back(x);
  }
  const std::string first =
      builder.node(op, names, std::move(attributes), "com.microsoft", outputs);
  std::vector<std::string> results;
  for (std::size_t i = 0; i < outputs; ++i) {
    results.push_back(first.substr(0, first.size() - 1) + std::to_string(i));
  }
  const Model net = from_onnx(builder.finish(results));
  std::vector<Tensor> got = net.run(given);
  const std::vector<Tensor> again = FrozenGraph(net).run(given);
  for (std::size_t i = 0; i < got.size(); ++i) CHECK(again[i].equal(got[i]));
  return got;
}

Tensor by_head(const Tensor& x, std::int64_t heads) {
  return x.reshape({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
}

Tensor attended(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask = {}) {
  const Tensor y = scaled_dot_product_attention(by_head(q, kHeads), by_head(k, kHeads),
                                                by_head(v, kHeads), mask);
  return y.transpose(1, 2).reshape({y.size(0), y.size(2), y.size(1) * y.size(3)});
}

OnnxAttributes heads() { return {{"num_heads", kHeads}}; }

Tensor int32(std::vector<std::int64_t> values, const Dims& sizes) {
  return Tensor::from_int64(values).view(sizes).to(DType::Int32);
}

TEST_CASE("microsoft attention: one product makes queries and keys and values") {
  Generator generator(1);
  const Tensor x = randn({2, 5, 16}, generator);
  const Tensor weight = randn({16, 48}, generator);
  const Tensor bias = randn({48}, generator);
  const Tensor columns = add(matmul(x, weight), bias);
  const Tensor q = columns.slice(2, 0, 16);
  const Tensor k = columns.slice(2, 16, 32);
  const Tensor v = columns.slice(2, 32, 48);
  test::check_close(run("Attention", {x, weight, bias}, heads())[0], attended(q, k, v));

  // Keys that do not count, in each of the forms.
  const Tensor short_result = attended(q, k.slice(1, 0, 3), v.slice(1, 0, 3));
  const Tensor ends = int32({3, 3}, {2});
  const Tensor each = int32({1, 1, 1, 0, 0, 1, 1, 1, 0, 0}, {2, 5});
  const Tensor queries = each.unsqueeze(1).expand({2, 5, 5}).contiguous();
  for (const Tensor& mask : {ends, each, queries}) {
    test::check_close(run("Attention", {x, weight, bias, mask}, heads())[0], short_result);
  }
  const Tensor from_one = int32({3, 3, 1, 1}, {4});
  test::check_close(run("Attention", {x, weight, bias, from_one}, heads())[0],
                    attended(q, k.slice(1, 1, 3), v.slice(1, 1, 3)));
}

TEST_CASE("microsoft attention: a step behind its past is the last step of the whole") {
  Generator generator(2);
  const Tensor x = randn({1, 5, 16}, generator);
  const Tensor weight = randn({16, 48}, generator);
  const Tensor bias = randn({48}, generator);
  OnnxAttributes causal = heads();
  causal["unidirectional"] = std::int64_t{1};
  const std::vector<Tensor> whole = run("Attention", {x, weight, bias}, causal, 2);
  const std::vector<Tensor> before = run("Attention", {x.slice(1, 0, 4), weight, bias}, causal, 2);
  const std::vector<Tensor> last =
      run("Attention", {x.slice(1, 4, 5), weight, bias, {}, before[1]}, causal, 2);
  test::check_close(last[0], whole[0].slice(1, 4, 5));
  test::check_close(last[1], whole[1]);
}

TEST_CASE("microsoft attention: codes are multiplied as integers") {
  Generator generator(3);
  const Tensor x = int32({7, 200, 3, 90, 120, 255, 0, 40}, {1, 2, 4}).to(DType::UInt8);
  const Tensor weight = mul_scalar(randn({4, 12}, generator), 30.0).to(DType::Int8);
  const Tensor bias = randn({12}, generator);
  const Tensor floats = mul_scalar(add_scalar(x.to(DType::Float32), -100.0), 0.01);
  const Tensor result = run("QAttention",
                            {x,
                             weight,
                             bias,
                             Tensor::scalar(0.01),
                             Tensor::scalar(0.02),
                             {},
                             Tensor::full({}, 100.0, DType::UInt8),
                             Tensor::zeros({}, DType::Int8)},
                            heads())[0];
  test::check_close(
      result,
      run("Attention", {floats, mul_scalar(weight.to(DType::Float32), 0.02), bias}, heads())[0]);
}

TEST_CASE("microsoft attention: queries and keys and values of their own") {
  Generator generator(4);
  const Tensor q = randn({2, 5, 16}, generator);
  const Tensor k = randn({2, 7, 16}, generator);
  const Tensor v = randn({2, 7, 32}, generator);
  const Tensor bias = randn({64}, generator);
  test::check_close(run("MultiHeadAttention", {q, k, v}, heads())[0], attended(q, k, v));
  test::check_close(run("MultiHeadAttention", {q, k, v, bias}, heads())[0],
                    attended(add(q, bias.slice(0, 0, 16)), add(k, bias.slice(0, 16, 32)),
                             add(v, bias.slice(0, 32, 64))));
  const Tensor added = randn({1, kHeads, 5, 7}, generator);
  test::check_close(run("MultiHeadAttention", {q, k, v, {}, int32({7, 7}, {2}), added}, heads())[0],
                    attended(q, k, v, added));
}

TEST_CASE("microsoft attention: groups of queries share keys and steps go on from the past") {
  Generator generator(5);
  const Tensor q = randn({1, 5, 64}, generator);
  const Tensor k = randn({1, 5, 32}, generator);
  const Tensor v = randn({1, 5, 32}, generator);
  const Tensor cosine = randn({16, 8}, generator);
  const Tensor sine = randn({16, 8}, generator);
  const OnnxAttributes attributes{{"num_heads", kHeads},
                                  {"kv_num_heads", std::int64_t{2}},
                                  {"do_rotary", std::int64_t{1}},
                                  {"local_window_size", std::int64_t{3}}};
  const auto step = [&](std::int64_t begin, std::int64_t end, const Tensor& past_key,
                        const Tensor& past_value) {
    return run("GroupQueryAttention",
               {q.slice(1, begin, end), k.slice(1, begin, end), v.slice(1, begin, end), past_key,
                past_value, int32({end - 1}, {1}), int32({end}, {}), cosine, sine},
               attributes, 3);
  };
  const std::vector<Tensor> whole = step(0, 5, {}, {});
  const std::vector<Tensor> before = step(0, 4, {}, {});
  const std::vector<Tensor> last = step(4, 5, before[1], before[2]);
  test::check_close(last[0], whole[0].slice(1, 4, 5));
  test::check_close(last[1], whole[1]);
  CHECK(whole[2].equal(by_head(v, 2)));

  // Without positions and a window: heads 0 and 1 take the keys of head 0.
  const Tensor result =
      run("GroupQueryAttention", {q, k, v, {}, {}, int32({4}, {1}), int32({5}, {})},
          {{"num_heads", kHeads}, {"kv_num_heads", std::int64_t{2}}})[0];
  const auto twice = [](const Tensor& x) {
    return cat(
        std::array{x.slice(2, 0, 16), x.slice(2, 0, 16), x.slice(2, 16, 32), x.slice(2, 16, 32)},
        2);
  };
  test::check_close(result, attended(q, twice(k), twice(v), causal_mask(5, 5)));
  CHECK_THROWS_WITH_AS(step(4, 5, before[1].slice(2, 0, 2), before[2].slice(2, 0, 2)),
                       doctest::Contains("seqlens_k: expected 2"), UnsupportedError);
}

TEST_CASE("microsoft attention: embeddings are summed and normalized") {
  const Tensor ids = int32({1, 0, 2, 2}, {2, 2});
  const Tensor words = Tensor::from_values({1, 2, 3, 5, 0, 4}, {3, 2});
  const Tensor places = Tensor::from_values({0, 1, 1, 1, 9, 9}, {3, 2});
  const std::vector<Tensor> results = run("EmbedLayerNormalization",
                                          {ids,
                                           {},
                                           words,
                                           places,
                                           {},
                                           Tensor::ones({2}),
                                           Tensor::zeros({2}),
                                           int32({1, 1, 1, 0}, {2, 2})},
                                          {}, 3);
  CHECK(results[2].to_float_vector() == std::vector<float>{3, 6, 2, 3, 0, 5, 1, 5});
  test::check_close(results[0], Tensor::from_values({-1, 1, -1, 1, -1, 1, -1, 1}, {2, 2, 2}));
  CHECK(results[1].to_int64_vector() == std::vector<std::int64_t>{2, 1});
}

}  // namespace
}  // namespace quanta::graph
