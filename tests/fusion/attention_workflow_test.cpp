// MultiheadAttention with dynamic and weight-only projections.

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "quanta/fusion/model_file.h"
#include "quanta/fusion/quantize_dynamic.h"
#include "quanta/fusion/quantize_weight_only.h"
#include "quanta/nn/attention.h"
#include "quanta/nn/container.h"
#include "quanta/nn/dynamic/attention.h"
#include "quanta/nn/dynamic/linear.h"
#include "quanta/nn/dynamic/module.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/module_forms.h"
#include "quanta/nn/transformer.h"
#include "quanta/nn/weight_only/attention.h"
#include "quanta/ops/attention.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/capture_binding.h"
#include "support/compare.h"
#include "support/files.h"
#include "support/modules.h"
#include "support/tensors.h"

namespace quanta {
namespace {

using test::is;
using test::same_bits;
using test::sqnr_db;

constexpr std::int64_t kWidth = 24;
constexpr std::int64_t kHeads = 3;

struct Network : nn::Module {
  nn::Child<nn::MultiheadAttention> attention;

  explicit Network(nn::MultiheadAttentionOptions options = {}) {
    options.embed_dim = kWidth;
    options.num_heads = kHeads;
    options.batch_first = true;
    register_module("attention", attention, options);
    // Biases begin as zeros.
    if (attention->in_proj_bias.defined()) attention->in_proj_bias.copy_(randn({3 * kWidth}));
    if (attention->out_proj->bias.defined()) attention->out_proj->bias.copy_(randn({kWidth}));
    eval();
  }
  Tensor forward(const Tensor& x) const override { return attention(x); }
};

// The same attention of four layers, as it is written by hand.
struct Handmade : nn::Module {
  nn::Child<nn::Linear> q, k, v, out;

  explicit Handmade(const nn::MultiheadAttention& source) {
    const bool joint = source.in_proj_weight.defined();
    const std::vector<Tensor> own{source.q_proj_weight, source.k_proj_weight, source.v_proj_weight};
    const std::vector<nn::Child<nn::Linear>*> slots{&q, &k, &v};
    const std::vector<std::string> names{"q", "k", "v"};
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const std::int64_t first = static_cast<std::int64_t>(i) * kWidth;
      const Tensor weight = joint ? source.in_proj_weight.narrow(0, first, kWidth) : own[i];
      register_module(names[i], *slots[i],
                      nn::LinearOptions{.in_features = weight.size(1), .out_features = kWidth});
      (*slots[i])->weight.copy_(weight);
      (*slots[i])->bias.copy_(source.in_proj_bias.narrow(0, first, kWidth));
    }
    register_module("out", out, nn::LinearOptions{.in_features = kWidth, .out_features = kWidth});
    out->weight.copy_(source.out_proj->weight);
    out->bias.copy_(source.out_proj->bias);
    eval();
  }
  Tensor forward(const Tensor& x) const override { return attend(x, x, x); }
  Tensor attend(const Tensor& query, const Tensor& key, const Tensor& value,
                const Tensor& mask = {}) const {
    const auto heads = [](const Tensor& x) {
      return x.view({x.size(0), x.size(1), kHeads, kWidth / kHeads}).transpose(1, 2);
    };
    const Tensor y =
        scaled_dot_product_attention(heads(q(query)), heads(k(key)), heads(v(value)), mask);
    return out(y.transpose(1, 2).reshape({query.size(0), query.size(1), kWidth}));
  }
};

// With its own modules, whatever they are.
using Quantize = std::function<void(nn::Module&)>;

const std::vector<std::pair<std::string, Quantize>>& ways() {
  static const std::vector<std::pair<std::string, Quantize>> all = {
      {"int8", [](nn::Module& net) { quantize_dynamic_(net); }},
      {"int8 of 8 bits",
       [](nn::Module& net) {
         quantize_dynamic_(net);
         nn::quantized::dynamic::set_reduce_range(net, quantized::ReduceRange::No);
       }},
      {"float16", [](nn::Module& net) { quantize_dynamic_(net, {}, DType::Float16); }},
      {"weights of 8 bits", [](nn::Module& net) { quantize_weight_only_(net, {.bits = 8}); }},
      {"weights of 4 bits",
       [](nn::Module& net) { quantize_weight_only_(net, {.bits = 4, .group_size = 0}); }},
  };
  return all;
}

TEST_CASE("quantized attention: the bits of the same attention made of linear layers") {
  manual_seed(1);
  const Network net;
  const Handmade by_hand(*net.attention.operator->());
  const Tensor x = randn({2, 7, kWidth});
  const Tensor memory = randn({2, 5, kWidth});
  Tensor mask = randn({7, 5});
  for (const auto& [name, quantize] : ways()) {
    CAPTURE_BINDING(name);
    Network attention = nn::deep_copy(net);
    Handmade layers = nn::deep_copy(by_hand);
    quantize(attention);
    quantize(layers);
    CHECK(same_bits(attention(x), layers(x)));
    const auto got =
        attention.attention->forward(x, memory, memory, {.need_weights = false, .attn_mask = mask});
    CHECK(same_bits(got.output, layers.attend(x, memory, memory, mask)));
  }
}

TEST_CASE("quantized attention: keys and values of other sizes and without biases") {
  manual_seed(2);
  const Tensor x = randn({2, 7, kWidth});
  const Tensor key = randn({2, 5, 16});
  const Tensor value = randn({2, 5, 32});
  const Network net({.kdim = 16, .vdim = 32});
  const Handmade by_hand(*net.attention.operator->());
  const Network plain({.bias = false, .add_bias_kv = true, .add_zero_attn = true});
  for (const auto& [name, quantize] : ways()) {
    CAPTURE_BINDING(name);
    Network attention = nn::deep_copy(net);
    Handmade layers = nn::deep_copy(by_hand);
    quantize(attention);
    quantize(layers);
    const auto got = attention.attention->forward(x, key, value, {.need_weights = false});
    CHECK(same_bits(got.output, layers.attend(x, key, value)));
    Network extended = nn::deep_copy(plain);
    quantize(extended);
    const double least = name == "weights of 4 bits" ? 12.0 : 25.0;
    CHECK(sqnr_db(plain(x), extended(x)) > least);
    const auto want = plain.attention->forward(x, x, x);
    const auto weights = extended.attention->forward(x, x, x).weights;
    CHECK(weights.sizes() == want.weights.sizes());
    CHECK(sqnr_db(want.weights, weights) > least);
  }
}

TEST_CASE("quantized attention: close to the float network it is made of") {
  manual_seed(3);
  const Network net;
  const Tensor x = randn({4, 16, kWidth});
  const std::vector<double> least = {28.0, 32.0, 60.0, 38.0, 15.0};
  for (std::size_t i = 0; i < ways().size(); ++i) {
    CAPTURE(ways()[i].first);
    Network quantized = nn::deep_copy(net);
    ways()[i].second(quantized);
    const double got = sqnr_db(net(x), quantized(x));
    CAPTURE(got);
    CHECK(got > least[i]);
  }
}

nn::Sequential transformer() {
  const nn::TransformerLayerOptions options{
      .d_model = kWidth, .nhead = kHeads, .dim_feedforward = 32, .batch_first = true};
  nn::Sequential net(nn::TransformerEncoderLayer(options),
                     nn::TransformerEncoder(nn::TransformerEncoderLayer(options), 2));
  net.eval();
  return net;
}

TEST_CASE("quantized attention: encoder layers are reached and saved and loaded") {
  const Tensor x = test::random_tensor({2, 6, kWidth}, 4);
  for (const auto& [name, quantize] : ways()) {
    CAPTURE_BINDING(name);
    manual_seed(5);
    const nn::Sequential net = transformer();
    nn::Sequential quantized = nn::deep_copy(net);
    quantize(quantized);
    const std::string type = quantized.get_submodule("1.layers.1.self_attn")->type_name();
    const std::string part = quantized.get_submodule("0.self_attn.linear_K")->type_name();
    const bool is_dynamic = !name.starts_with("weights");
    CHECK(type ==
          (is_dynamic ? "DynamicQuantizedMultiheadAttention" : "WeightOnlyMultiheadAttention"));
    CHECK(part == (is_dynamic ? "DynamicQuantizedLinear" : "WeightOnlyLinear"));
    CHECK(quantized.get_submodule("0.self_attn.out_proj")->type_name() == part);
    CHECK(to_string(quantized).find("(linear_Q): " + part) != std::string::npos);
    CHECK(sqnr_db(net(x), quantized(x)) > (name == "weights of 4 bits" ? 12.0 : 25.0));

    const test::TemporaryFile file;
    save_model(quantized, file.path);
    manual_seed(6);
    nn::Sequential loaded = transformer();
    load_model(loaded, file.path);
    CHECK(to_string(loaded) == to_string(quantized));
    CHECK(same_bits(loaded(x), quantized(x)));
  }
}

TEST_CASE("attention_dtype: int8 products go through quantizing and saving with the module") {
  const Tensor x = test::random_tensor({2, 40, kWidth}, 4);
  for (const auto& [name, quantize] : ways()) {
    CAPTURE_BINDING(name);
    manual_seed(5);
    const nn::Sequential net = transformer();
    nn::Sequential quantized = nn::deep_copy(net);
    quantize(quantized);
    const Tensor float_products = quantized(x);
    nn::set_attention_dtype(quantized, DType::QInt8);
    const Tensor y = quantized(x);
    CHECK_FALSE(same_bits(y, float_products));
    CHECK(sqnr_db(float_products, y) > 35.0);
    CHECK(to_string(quantized).find("attention_dtype=QInt8") != std::string::npos);

    const test::TemporaryFile file;
    save_model(quantized, file.path);
    manual_seed(6);
    nn::Sequential loaded = transformer();
    load_model(loaded, file.path);
    CHECK(to_string(loaded) == to_string(quantized));
    CHECK(same_bits(loaded(x), y));
    // The option of the float module is taken over.
    nn::Sequential asked = nn::deep_copy(net);
    nn::set_attention_dtype(asked, DType::QInt8);
    quantize(asked);
    CHECK(same_bits(asked(x), y));
    nn::set_attention_dtype(quantized, DType::Float32);
    CHECK(same_bits(quantized(x), float_products));
  }
}

TEST_CASE("attention_dtype: the products alone and in eval mode alone") {
  manual_seed(11);
  Network net({.attention_dtype = DType::QInt8});
  const Network plain = [&] {
    Network copy = nn::deep_copy(net);
    nn::set_attention_dtype(copy, DType::Float32);
    return copy;
  }();
  const Tensor x = randn({2, 30, kWidth});
  CHECK_FALSE(same_bits(net(x), plain(x)));
  CHECK(sqnr_db(plain(x), net(x)) > 30.0);
  // Weights are numbers of softmax, so that a call that asks for them is in float.
  CHECK(
      same_bits(net.attention->forward(x, x, x).output, plain.attention->forward(x, x, x).output));
  net.train();
  CHECK(same_bits(net(x), [&] {
    Network copy = nn::deep_copy(plain);
    copy.train();
    return copy(x);
  }()));

  CHECK_THROWS_WITH_AS(nn::set_attention_dtype(net, DType::Float16),
                       doctest::Contains("attention_dtype: expected Float32 or QInt8, got Float16"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(
      nn::MultiheadAttention({.embed_dim = 4, .num_heads = 2, .attention_dtype = DType::QUInt8}),
      doctest::Contains("attention_dtype: expected Float32 or QInt8, got QUInt8"), ArgumentError);
  nn::Sequential without(nn::Linear(4, 4));
  CHECK_THROWS_WITH_AS(nn::set_attention_dtype(without, DType::QInt8),
                       doctest::Contains("expected a module with attention in it, got none"),
                       ArgumentError);
}

TEST_CASE("attention_dtype: what a file says of it is checked") {
  manual_seed(12);
  const nn::Sequential net = transformer();
  nn::Sequential quantized = quantize_dynamic(net);
  nn::set_attention_dtype(quantized, DType::QInt8);
  nn::Module& attention = *quantized.get_submodule("0.self_attn");
  const nn::ModuleForm* form = nn::module_forms().find("DynamicMultiheadAttention");
  REQUIRE(form != nullptr);
  CHECK(form->settings(attention).words.at("attention_dtype") == "qint8");
  for (const std::string word : {"quint8", "QInt8", "", "qint8 and more"}) {
    nn::FormSettings settings;
    settings.words["attention_dtype"] = word;
    CHECK_THROWS_AS(form->configure(attention, settings), ArgumentError);
  }
  form->configure(attention, {});
  CHECK(form->settings(attention).words.empty());
}

TEST_CASE("quantized attention: decoder layers are reached") {
  manual_seed(7);
  struct Decoder : nn::Module {
    nn::Child<nn::TransformerDecoderLayer> layer;
    Decoder() {
      register_module(
          "layer", layer,
          nn::TransformerLayerOptions{
              .d_model = kWidth, .nhead = kHeads, .dim_feedforward = 32, .batch_first = true});
      eval();
    }
    Tensor forward(const Tensor& x) const override { return layer->forward(x, x); }
  };
  const Decoder net;
  const Tensor x = randn({2, 5, kWidth});
  for (const auto& [name, quantize] : ways()) {
    CAPTURE_BINDING(name);
    Decoder quantized = nn::deep_copy(net);
    quantize(quantized);
    for (const std::string path : {"layer.self_attn", "layer.multihead_attn"}) {
      CHECK(quantized.get_submodule(path)->has_child("linear_Q"));
    }
    CHECK(sqnr_db(net(x), quantized(x)) > (name == "weights of 4 bits" ? 12.0 : 25.0));
  }
}

TEST_CASE("quantize_dynamic: torch's spec leaves attention in float") {
  manual_seed(8);
  const nn::Sequential net = transformer();
  const nn::Sequential as_torch = quantize_dynamic(net, torch_dynamic_spec());
  CHECK(is<nn::MultiheadAttention>(as_torch, "0.self_attn"));
  CHECK(is<nn::NonDynamicallyQuantizableLinear>(as_torch, "0.self_attn.out_proj"));
  CHECK(is<nn::quantized::dynamic::Linear>(as_torch, "0.linear1"));
  const nn::Sequential by_type = quantize_dynamic(net, DynamicSpec().add_type<nn::Linear>());
  CHECK(to_string(by_type) == to_string(as_torch));
  CHECK_THROWS_WITH_AS(torch_dynamic_spec(DType::QInt32), doctest::Contains("QInt32"),
                       ArgumentError);

  // By a part's name that part alone, by its own name the whole.
  const nn::Sequential part = quantize_dynamic(net, DynamicSpec().add_name("0.self_attn.out_proj"));
  CHECK(is<nn::MultiheadAttention>(part, "0.self_attn"));
  CHECK(is<nn::quantized::dynamic::Linear>(part, "0.self_attn.out_proj"));
  const nn::Sequential whole = quantize_dynamic(net, DynamicSpec().add_name("0.self_attn"));
  CHECK(is<nn::quantized::dynamic::MultiheadAttention>(whole, "0.self_attn"));
  CHECK(is<nn::Linear>(whole, "0.linear1"));
}

TEST_CASE("quantized attention: what cannot be made is refused by path and changes nothing") {
  manual_seed(9);
  Network net;
  CHECK_THROWS_WITH_AS(nn::quantized::dynamic::MultiheadAttention::from_float(
                           static_cast<const nn::Module&>(*net.attention.operator->())),
                       doctest::Contains("with a qconfig"), ArgumentError);
  quantize_dynamic_(net, DynamicSpec().add_name("attention.out_proj"));
  CHECK_THROWS_WITH_AS(quantize_weight_only_(net),
                       doctest::Contains("expected a float out_proj, got a DynamicQuantizedLinear"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(quantize_dynamic_(net), doctest::Contains("'attention'"), ArgumentError);
  CHECK(is<nn::MultiheadAttention>(net, "attention"));
}

}  // namespace
}  // namespace quanta
