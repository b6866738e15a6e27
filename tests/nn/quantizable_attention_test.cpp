#include "quanta/nn/quantizable/attention.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "observed.h"
#include "quanta/fusion/convert.h"
#include "quanta/fusion/prepare.h"
#include "quanta/nn/container.h"
#include "quanta/nn/quantized/attention.h"
#include "quanta/nn/quantized/linear.h"
#include "quanta/nn/quantized/stubs.h"
#include "quanta/observers/defaults.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/indexing.h"
#include "quanta/ops/quantize.h"
#include "quanta/ops/reduce.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/compare.h"
#include "support/tensors.h"

namespace quanta::nn {
namespace {

using test::largest_difference;

std::shared_ptr<MultiheadAttention> attention(const MultiheadAttentionOptions& options) {
  auto module = make_module<MultiheadAttention>(options);
  // A bias of zeros would hide that it is left out.
  if (module->in_proj_bias.defined()) {
    module->in_proj_bias.copy_(randn(module->in_proj_bias.sizes()));
  }
  module->eval();
  return module;
}

// Prepared, calibrated with float inputs, converted.
std::shared_ptr<quantized::MultiheadAttention> int8_form(
    const std::shared_ptr<MultiheadAttention>& source, const Tensor& query, const Tensor& key,
    const Tensor& value) {
  ModuleList list;
  list.push_back(source);
  prepare_(list, QConfig{MinMaxObserver::with_args({}), default_weight_observer()});
  dynamic_cast<MultiheadAttention&>(*list.ptr(0)).forward(query, key, value);
  convert_(list);
  return std::dynamic_pointer_cast<quantized::MultiheadAttention>(list.ptr(0));
}

QTensor input(const Tensor& x) { return quantize_per_tensor(x, 0.04, 128, DType::QUInt8); }

TEST_CASE("quantizable MultiheadAttention: gives what the float module gives") {
  manual_seed(31);
  Generator generator(31);
  const std::vector<MultiheadAttentionOptions> forms{
      {.embed_dim = 8, .num_heads = 2},
      {.embed_dim = 12, .num_heads = 3, .bias = false, .batch_first = true},
      {.embed_dim = 8, .num_heads = 4, .add_bias_kv = true, .add_zero_attn = true},
      {.embed_dim = 8, .num_heads = 2, .kdim = 6, .vdim = 5},
      {.embed_dim = 8, .num_heads = 1, .add_bias_kv = true, .kdim = 4, .batch_first = true},
  };
  for (const MultiheadAttentionOptions& options : forms) {
    const auto source = attention(options);
    const auto taken_apart = quantizable::MultiheadAttention::from_float(*source);
    const MultiheadAttentionOptions& full = source->options();
    const bool batch_first = full.batch_first;
    const auto make = [&](std::int64_t steps, std::int64_t features) {
      return randn(batch_first ? Dims{3, steps, features} : Dims{steps, 3, features}, generator);
    };
    const Tensor query = make(4, full.embed_dim);
    const Tensor key = make(6, full.kdim);
    const Tensor value = make(6, full.vdim);
    const Tensor padding = Tensor::zeros({3, 6}, DType::Bool);
    padding.mutable_data<bool>()[5] = true;
    padding.mutable_data<bool>()[10] = true;
    const std::vector<AttentionCall> calls{
        {},
        {.need_weights = false},
        {.key_padding_mask = padding, .average_attn_weights = false},
        {.attn_mask = randn({4, 6}, generator)},
        {.key_padding_mask = padding,
         .need_weights = false,
         .attn_mask = randn({3 * full.num_heads, 4, 6}, generator)},
    };
    for (const AttentionCall& call : calls) {
      const AttentionOutput want = source->forward(query, key, value, call);
      const AttentionOutput got = taken_apart->forward(query, key, value, call);
      CHECK(largest_difference(got.output, want.output) < 1e-5);
      REQUIRE(got.weights.defined() == want.weights.defined());
      if (want.weights.defined()) CHECK(largest_difference(got.weights, want.weights) < 1e-5);
    }
    // Without the batch.
    const auto one = [&](const Tensor& x) { return x.select(batch_first ? 0 : 1, 1); };
    CHECK(largest_difference(taken_apart->forward(one(query), one(key), one(value)).output,
                             source->forward(one(query), one(key), one(value)).output) < 1e-5);
    // And back.
    const AttentionOutput back = taken_apart->dequantize()->forward(query, key, value);
    CHECK(back.output.equal(source->forward(query, key, value).output));
  }
}

// torch's flow for steps-first inputs, from the ops, with the parameters that the parts hold.
AttentionOutput reference(const quantized::MultiheadAttention& module, const QTensor& query,
                          const QTensor& key, const QTensor& value) {
  namespace q = quanta::quantized;
  const auto linear = [&](const std::string& name, const QTensor& x) {
    const auto& part = dynamic_cast<const quantized::Linear&>(*module.get_submodule(name));
    return q::linear(x, q::LinearPackedParams(part.weight(), part.bias()), part.scale,
                     part.zero_point);
  };
  const auto quantize = [&](const std::string& name, const Tensor& x) {
    const auto& part = dynamic_cast<const quantized::Quantize&>(*module.get_submodule(name));
    return quantize_per_tensor(x, part.scale, part.zero_point, part.dtype());
  };
  const std::int64_t heads = module.options().num_heads;
  const std::int64_t width = module.head_dim();
  const std::int64_t steps = query.size(0);
  const std::int64_t batch = query.size(1);
  Tensor k = linear("linear_K", key);
  Tensor v = linear("linear_V", value);
  const Tensor scaled =
      q::mul_scalar(linear("linear_Q", query), 1.0 / std::sqrt(static_cast<double>(width)));
  if (module.quantized_bias_k().defined()) {
    const auto extended = [&](const Tensor& x, const Tensor& row) {
      std::vector<QTensor> parts{x.as_quantized()};
      const Dims sizes{1, batch, heads * width};
      parts.push_back(row.expand(sizes).contiguous().as_quantized());
      return Tensor(q::cat(parts, 0));
    };
    k = extended(k, module.quantized_bias_k());
    v = extended(v, module.quantized_bias_v());
  }
  const auto split = [&](const Tensor& x) {
    return dequantize(x).view({-1, batch * heads, width}).transpose(0, 1);
  };
  Tensor k_heads = split(k);
  Tensor v_heads = split(v);
  if (module.options().add_zero_attn) {
    const Tensor zeros = Tensor::zeros({batch * heads, 1, width});
    k_heads = cat(std::array<Tensor, 2>{k_heads, zeros}, 1);
    v_heads = cat(std::array<Tensor, 2>{v_heads, zeros}, 1);
  }
  const Tensor weights = softmax(bmm(split(scaled), k_heads.transpose(1, 2)), -1);
  const Tensor joined =
      bmm(weights, v_heads).transpose(0, 1).contiguous().view({steps, batch, heads * width});
  const QTensor output = linear("out_proj", quantize("quant_attn_output", joined));
  const Tensor each = quantize("quant_attn_output_weights",
                               weights.contiguous().view({batch, heads, steps, weights.size(2)}));
  return {output, mean(each, Dims{1})};
}

TEST_CASE("quantized MultiheadAttention: integers are those of its ops one after the other") {
  manual_seed(32);
  Generator generator(32);
  const std::vector<MultiheadAttentionOptions> forms{
      {.embed_dim = 8, .num_heads = 2},
      {.embed_dim = 12, .num_heads = 3, .add_bias_kv = true, .add_zero_attn = true},
      {.embed_dim = 8, .num_heads = 2, .add_bias_kv = true, .kdim = 6, .vdim = 5},
  };
  for (const MultiheadAttentionOptions& options : forms) {
    const auto source = attention(options);
    const MultiheadAttentionOptions& full = source->options();
    const Tensor query = randn({4, 3, full.embed_dim}, generator);
    const Tensor key = randn({6, 3, full.kdim}, generator);
    const Tensor value = randn({6, 3, full.vdim}, generator);
    const auto int8 = int8_form(source, query, key, value);
    REQUIRE(int8 != nullptr);
    const AttentionOutput want = reference(*int8, input(query), input(key), input(value));
    const AttentionOutput got = int8->forward(input(query), input(key), input(value));
    CHECK(got.output.equal(want.output));
    CHECK(got.weights.equal(want.weights));
  }
}

TEST_CASE("quantized MultiheadAttention: masks and batch order are those of the float module") {
  manual_seed(33);
  Generator generator(33);
  for (const bool batch_first : {false, true}) {
    const auto source = attention({.embed_dim = 16, .num_heads = 4, .batch_first = batch_first});
    const Tensor x = randn(batch_first ? Dims{2, 5, 16} : Dims{5, 2, 16}, generator);
    const auto int8 = int8_form(source, x, x, x);
    const Tensor padding = Tensor::zeros({2, 5}, DType::Bool);
    padding.mutable_data<bool>()[4] = true;
    AttentionCall call{.key_padding_mask = padding};
    const AttentionOutput want = source->forward(x, x, x, call);
    const AttentionOutput got = int8->forward(input(x), input(x), input(x), call);
    CHECK(got.output.is_quantized());
    CHECK(got.weights.is_quantized());
    CHECK(largest_difference(got.output, want.output) < 0.1);
    CHECK(largest_difference(got.weights, want.weights) < 0.05);
    CHECK(got.weights.select(0, 0).select(1, 4).to_float_vector() == std::vector<float>(5, 0.0F));
    // The output alone takes another way through attention.
    call.need_weights = false;
    const AttentionOutput alone = int8->forward(input(x), input(x), input(x), call);
    CHECK_FALSE(alone.weights.defined());
    const double step = alone.output.as_quantized().q_scale();
    CHECK(largest_difference(alone.output, got.output) < 1.01 * step);
  }
}

TEST_CASE("quantized MultiheadAttention: keeps torch's names and its own learned rows") {
  manual_seed(34);
  const auto source = attention({.embed_dim = 8, .num_heads = 2, .add_bias_kv = true});
  // Ranges that differ, so that the parameters of one do not suit the other.
  source->bias_v.copy_(mul_scalar(source->bias_v, 20.0));
  const Tensor x = test::random_tensor({5, 2, 8}, 34);
  const auto int8 = int8_form(source, x, x, x);
  const std::vector<std::string> names = test::names(int8->state_dict());
  for (const char* name :
       {"linear_Q.scale", "linear_K._packed_params._packed_params/0", "out_proj.zero_point",
        "q_scaling_product.scale", "quant_attn_output.scale",
        "quant_attn_output_weights.zero_point", "bias_k", "bias_v"}) {
    CAPTURE(name);
    CHECK(std::find(names.begin(), names.end(), name) != names.end());
  }
  CHECK(names.size() == 4 * 4 + 3 * 2 + 2);
  CHECK(int8->state_dict().at("q_scaling_product.scale").item() == 1.0);
  const auto error = [&](const Tensor& quantized, const Tensor& row) {
    return largest_difference(quantized, row) / quantized.as_quantized().q_scale();
  };
  CHECK(error(int8->quantized_bias_k(), source->bias_k) < 0.51);
  CHECK(error(int8->quantized_bias_v(), source->bias_v) < 0.51);
  CHECK(to_string(*int8).find("QuantizedMultiheadAttention(") == 0);
  const auto back = int8->dequantize();
  CHECK(largest_difference(back->in_proj_weight, source->in_proj_weight) < 0.01);
  CHECK(back->in_proj_bias.equal(source->in_proj_bias));
  CHECK(largest_difference(back->bias_k, source->bias_k) < 0.01);

  StateDict state = int8->state_dict();
  const Tensor kept = int8->quantized_bias_k();
  state.set("bias_k", Tensor::ones({1, 1, 8}));
  CHECK_THROWS_WITH_AS(int8->load_state_dict(state),
                       doctest::Contains("bias_k: expected QUInt8 [1, 1, 8], got Float32"),
                       ArgumentError);
  CHECK(int8->quantized_bias_k().equal(kept));
}

TEST_CASE("quantized MultiheadAttention: bad input is refused by name") {
  const auto source = attention({.embed_dim = 8, .num_heads = 2});
  const Tensor x = randn({5, 2, 8});
  const auto int8 = int8_form(source, x, x, x);
  CHECK_THROWS_WITH_AS((*int8)(x), doctest::Contains("quantized::linear: x: expected"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS((*int8)(input(randn({5, 2, 7}))),
                       doctest::Contains("query: expected 2 or 3 dimensions, the last of size 8"),
                       ArgumentError);
  CHECK_THROWS_AS((*source)(input(x)), UnsupportedError);
  CHECK_THROWS_WITH_AS(quantized::MultiheadAttention::from_observed(*source),
                       doctest::Contains("expected quantizable MultiheadAttention"), ArgumentError);
  CHECK_THROWS_WITH_AS(quantized::MultiheadAttention::from_observed(
                           *quantizable::MultiheadAttention::from_float(*source)),
                       doctest::Contains("'out_proj'"), ArgumentError);
}

}  // namespace
}  // namespace quanta::nn
