// Gradients of attention and of transformer layers: proved by finite differences in double
// precision; the fused Float32 ones are compared with those.

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "../ops/gradients_support.h"
#include "quanta/nn/attention.h"
#include "quanta/nn/quantizable/attention.h"
#include "quanta/nn/transformer.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/attention.h"
#include "quanta/ops/reduce.h"
#include "support/tensors.h"

namespace quanta {
namespace {

using test::check_float32;
using test::check_gradients;
using test::flat;
using test::Inputs;
using test::leaf;
using test::Op;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Tensor bools(const Dims& sizes, const std::vector<int>& values) {
  const Tensor mask = Tensor::empty(sizes, DType::Bool);
  for (std::size_t i = 0; i < values.size(); ++i) mask.mutable_data<bool>()[i] = values[i] != 0;
  return mask;
}

void check_both(const Op& op, const std::vector<Tensor>& inputs) {
  check_gradients(op, inputs);
  check_float32(op, inputs, test::Order::Contiguous, 5e-6);
}

// Query, key, value, and a mask if `in` has four.
Op attention(const AttentionOptions& options = {}, const Tensor& mask = {}) {
  return [=](Inputs in) {
    return scaled_dot_product_attention(in[0], in[1], in[2], in.size() > 3 ? in[3] : mask, options);
  };
}

TEST_CASE("attention has the gradients that finite differences give") {
  const std::vector<Tensor> heads{leaf({2, 2, 3, 4}, 1), leaf({2, 2, 5, 4}, 2),
                                  leaf({2, 2, 5, 3}, 3)};
  check_both(attention(), heads);
  check_both(attention({.is_causal = true}), heads);
  check_both(attention({.scale = -0.7}), heads);
  check_both(attention(), {leaf({3, 4}, 1), leaf({2, 4}, 2), leaf({2, 1}, 3)});
  // Leading dimensions that broadcast, from each of the three.
  check_both(attention(), {leaf({3, 1, 2, 4}, 1), leaf({2, 3, 4}, 2), leaf({3, 4}, 3)});
  check_both(attention(), {leaf({2, 4}, 1), leaf({3, 4}, 2), leaf({2, 3, 3, 4}, 3)});
  check_both(attention(), {leaf({1, 2, 2, 4}, 1), leaf({2, 1, 3, 4}, 2), leaf({1, 1, 3, 4}, 3)});
}

TEST_CASE("attention: masks, which may have gradients, and queries that see nothing") {
  const std::vector<Tensor> heads{leaf({2, 2, 3, 4}, 1), leaf({2, 2, 3, 4}, 2),
                                  leaf({2, 2, 3, 2}, 3)};
  // The second query takes part in no key.
  const Tensor seen = bools({3, 3}, {1, 0, 1, 0, 0, 0, 1, 1, 1});
  check_both(attention({}, seen), heads);
  check_both(attention({}, bools({2, 1, 1, 3}, {1, 1, 0, 1, 0, 0})), heads);
  for (const Dims& sizes : {Dims{3, 3}, Dims{2, 1, 3, 3}, Dims{2, 2, 1, 3}, Dims{3, 1}, Dims{}}) {
    check_both(attention(), {heads[0], heads[1], heads[2], leaf(sizes, 4)});
  }
  Tensor hiding = leaf({3, 3}, 5).detach();
  hiding.mutable_data<double>()[1] = -kInfinity;
  for (std::int64_t i = 3; i < 6; ++i) hiding.mutable_data<double>()[i] = -kInfinity;
  check_gradients(
      [&](Inputs in) { return scaled_dot_product_attention(in[0], in[1], in[2], hiding); }, heads);
}

TEST_CASE("attention: views of one projection get one gradient") {
  const Op op = [](Inputs in) {
    const auto head = [&](std::int64_t part) {
      return in[0].narrow(-1, 6 * part, 6).view({2, 4, 2, 3}).transpose(1, 2);
    };
    return scaled_dot_product_attention(head(0), head(1), head(2))
        .transpose(1, 2)
        .reshape({2, 4, 6});
  };
  check_both(op, {leaf({2, 4, 18})});
}

TEST_CASE("attention: dropped weights take no gradient with them") {
  const std::vector<Tensor> heads{leaf({2, 3, 4}, 1), leaf({2, 5, 4}, 2), leaf({2, 5, 3}, 3)};
  const Op op = [](Inputs in) {
    manual_seed(5);
    return scaled_dot_product_attention(in[0], in[1], in[2], {}, {.dropout_p = 0.4});
  };
  check_both(op, heads);
}

TEST_CASE("attention: the fused forward is the same with and without gradients") {
  const Tensor q = randn({2, 3, 40, 16});
  const Tensor plain = scaled_dot_product_attention(q, q, q);
  const Tensor x = q.clone();
  x.set_requires_grad();
  const Tensor recorded = scaled_dot_product_attention(x, x, x);
  CHECK(recorded.requires_grad());
  CHECK(recorded.detach().equal(plain));
  const autograd::NoGradGuard guard;
  CHECK_FALSE(scaled_dot_product_attention(x, x, x).requires_grad());
}

TEST_CASE("attention: no keys give zeros and gradients of zeros") {
  for (const DType dtype : {DType::Float64, DType::Float32}) {
    const Tensor q = Tensor::ones({2, 3, 4}, dtype);
    q.set_requires_grad();
    const Tensor none = Tensor::zeros({2, 0, 4}, dtype);
    const Tensor y = scaled_dot_product_attention(q, none, none);
    sum(y).backward();
    for (const float value : q.grad().to_float_vector()) CHECK(value == 0.0F);
  }
}

TEST_CASE("attention_weights has the gradients that finite differences give") {
  const Op op = [](Inputs in) { return attention_weights(in[0], in[1], in[2], 0.5); };
  check_both(op, {leaf({2, 3, 4}, 1), leaf({2, 5, 4}, 2), leaf({3, 5}, 3)});
}

// Modules -----------------------------------------------------------------------------------------

// Where a parameter stands and what it becomes, so that finite differences reach it.
using Places = std::vector<Tensor*>;

void give(const Places& places, Inputs values) {
  for (std::size_t i = 0; i < values.size(); ++i) *places[i] = values[i];
}

Places places_of(nn::MultiheadAttention& attention) {
  Places places;
  for (Tensor* x : {&attention.in_proj_weight, &attention.q_proj_weight, &attention.k_proj_weight,
                    &attention.v_proj_weight, &attention.in_proj_bias, &attention.bias_k,
                    &attention.bias_v, &attention.out_proj->weight, &attention.out_proj->bias}) {
    if (x->defined()) places.push_back(x);
  }
  return places;
}

std::vector<Tensor> with_leaves(std::vector<Tensor> inputs, const Places& places) {
  for (const Tensor* place : places) {
    inputs.push_back(leaf(place->sizes(), 20 + inputs.size(), -0.7, 0.7));
  }
  return inputs;
}

TEST_CASE("MultiheadAttention has the gradients that finite differences give") {
  using Options = nn::MultiheadAttentionOptions;
  for (const Options& options :
       {Options{.embed_dim = 4, .num_heads = 2},
        Options{.embed_dim = 4, .num_heads = 2, .bias = false, .batch_first = true},
        Options{.embed_dim = 4,
        .num_heads = 2,
        .add_bias_kv = true,
        .add_zero_attn = true,
        .batch_first = true},
        Options{.embed_dim = 4, .num_heads = 1, .kdim = 3, .vdim = 5, .batch_first = true}}) {
    for (const bool need_weights : {false, true}) {
      nn::MultiheadAttention attention(options);
      attention.train(need_weights);
      const Places places = places_of(attention);
      const std::int64_t kdim = options.kdim > 0 ? options.kdim : 4;
      const std::int64_t vdim = options.vdim > 0 ? options.vdim : 4;
      const nn::AttentionCall call{.key_padding_mask = bools({2, 2}, {0, 0, 0, 1}),
                                   .need_weights = need_weights,
                                   .attn_mask = bools({2, 2}, {0, 0, 1, 0})};
      const Op op = [&](Inputs in) {
        give(places, in.subspan(3));
        // The second query sees nothing in the second sequence: zeros unless weights are asked for.
        nn::AttentionCall own = call;
        if (need_weights) own.attn_mask = {};
        const nn::AttentionOutput y = attention.forward(in[0], in[1], in[2], own);
        return flat({y.output, y.weights});
      };
      check_both(op, with_leaves({leaf({2, 2, 4}, 1), leaf({2, 2, kdim}, 2), leaf({2, 2, vdim}, 3)},
                                 places));
    }
  }
}

TEST_CASE("MultiheadAttention: self-attention, causal, unbatched and with dropout") {
  nn::MultiheadAttention attention({.embed_dim = 4, .num_heads = 2, .dropout = 0.3});
  const Places places = places_of(attention);
  const Tensor mask = bools({3, 3}, {0, 1, 1, 0, 0, 1, 0, 0, 0});
  for (const bool train : {false, true}) {
    attention.train(train);
    const Op self = [&](Inputs in) {
      give(places, in.subspan(1));
      manual_seed(3);
      return attention.forward(in[0]);
    };
    check_both(self, with_leaves({leaf({3, 2, 4})}, places));
    const Op causal = [&](Inputs in) {
      give(places, in.subspan(1));
      manual_seed(3);
      const nn::AttentionOutput y = attention.forward(in[0], in[0], in[0],
                                                      {.need_weights = false,
                                                       .attn_mask = mask,
                                                       .average_attn_weights = false,
                                                       .is_causal = true});
      return y.output;
    };
    check_both(causal, with_leaves({leaf({3, 4})}, places));
  }
}

TEST_CASE("quantizable attention has the gradients of the plain one") {
  nn::MultiheadAttention attention(
      {.embed_dim = 6, .num_heads = 2, .kdim = 4, .vdim = 5, .batch_first = true});
  const auto parts = nn::quantizable::MultiheadAttention::from_float(attention);
  const Tensor key = randn({2, 3, 4});
  const Tensor value = randn({2, 3, 5});
  const Tensor data = randn({2, 4, 6});
  std::vector<std::vector<float>> gradients;
  for (nn::MultiheadAttention* module :
       {&attention, static_cast<nn::MultiheadAttention*>(&*parts)}) {
    module->requires_grad_();
    const Tensor x = data.clone();
    x.set_requires_grad();
    sum(module->forward(x, key, value, {.need_weights = false}).output).backward();
    gradients.push_back(x.grad().to_float_vector());
    for (const Tensor& parameter : module->parameters()) CHECK(parameter.grad().defined());
  }
  for (std::size_t i = 0; i < gradients[0].size(); ++i) {
    CHECK(std::abs(gradients[0][i] - gradients[1][i]) < 1e-5F);
  }
}

template <typename Layer>
void add_linear_places(Layer& layer, Places& places) {
  for (Tensor* x :
       {&layer.linear1->weight, &layer.linear1->bias, &layer.linear2->weight, &layer.linear2->bias,
        &layer.norm1->weight, &layer.norm1->bias, &layer.norm2->weight, &layer.norm2->bias}) {
    if (x->defined()) places.push_back(x);
  }
}

TEST_CASE("transformer layers have the gradients that finite differences give") {
  using nn::TransformerActivation;
  for (const bool norm_first : {false, true}) {
    const nn::TransformerLayerOptions options{
        .d_model = 4,
        .nhead = 2,
        .dim_feedforward = 3,
        .dropout = norm_first ? 0.2 : 0.0,
        .activation = norm_first ? TransformerActivation::GELU : TransformerActivation::ReLU,
        .batch_first = norm_first,
        .norm_first = norm_first,
        .bias = norm_first};
    nn::TransformerEncoderLayer encoder(options);
    encoder.train(true);
    Places places = places_of(*encoder.self_attn.operator->());
    add_linear_places(encoder, places);
    const Op encode = [&](Inputs in) {
      give(places, in.subspan(1));
      manual_seed(11);
      return encoder.forward(in[0]);
    };
    check_both(encode, with_leaves({leaf({2, 3, 4})}, places));

    nn::TransformerDecoderLayer decoder(options);
    decoder.train(true);
    places = places_of(*decoder.self_attn.operator->());
    const Places cross = places_of(*decoder.multihead_attn.operator->());
    places.insert(places.end(), cross.begin(), cross.end());
    add_linear_places(decoder, places);
    places.push_back(&decoder.norm3->weight);
    if (options.bias) places.push_back(&decoder.norm3->bias);
    const Op decode = [&](Inputs in) {
      give(places, in.subspan(2));
      manual_seed(11);
      return decoder.forward(in[0], in[1]);
    };
    check_both(decode, with_leaves({leaf({2, 3, 4}, 1), leaf({2, 3, 4}, 2)}, places));
  }
}

TEST_CASE("transformer layers: gradients add up over calls, and nothing is recorded unasked") {
  nn::TransformerEncoderLayer layer(
      {.d_model = 8, .nhead = 2, .dim_feedforward = 16, .dropout = 0.0});
  const Tensor x = randn({3, 2, 8});
  CHECK_FALSE(layer.forward(x).requires_grad());
  layer.requires_grad_();
  sum(layer.forward(x)).backward();
  std::vector<std::vector<float>> once;
  for (const Tensor& parameter : layer.parameters()) {
    once.push_back(parameter.grad().to_float_vector());
  }
  sum(layer.forward(x)).backward();
  for (std::size_t i = 0; i < once.size(); ++i) {
    const std::vector<float> twice = layer.parameters()[i].grad().to_float_vector();
    for (std::size_t k = 0; k < twice.size(); ++k) CHECK(twice[k] == 2.0F * once[i][k]);
  }
}

}  // namespace
}  // namespace quanta
