#include "quanta/nn/split_attention.h"

#include <array>
#include <string_view>

#include "quanta/nn/detail/dynamic_linear.h"
#include "quanta/nn/skip_init.h"
#include "quanta/runtime/check.h"

namespace quanta::nn {
namespace {

// A float layer of `rows` rows from `first` on, which are not copied: it lives for a moment only.
std::shared_ptr<Linear> float_layer(const Tensor& weight, const Tensor& bias, std::int64_t first,
                                    std::int64_t rows, std::int64_t first_bias) {
  const SkipInit no_random_weights;
  auto layer = make_module<Linear>(
      LinearOptions{.in_features = weight.size(1), .out_features = rows, .bias = bias.defined()});
  layer->weight = weight.narrow(0, first, rows);
  if (bias.defined()) layer->bias = bias.narrow(0, first_bias, rows).clone();
  return layer;
}

}  // namespace

SplitMultiheadAttention::SplitMultiheadAttention(const MultiheadAttention& source,
                                                 const MakeProjection& make)
    : MultiheadAttention(source.options(), NoProjections{}) {
  const bool joint = source.in_proj_weight.defined();
  QUANTA_CHECK(
      joint || source.q_proj_weight.defined(),
      "SplitMultiheadAttention: source: expected float projections in one module, got a {}",
      source.type_name());
  const auto* output = dynamic_cast<const Linear*>(source.out_proj.module().get());
  QUANTA_CHECK(output != nullptr,
               "SplitMultiheadAttention: source: expected a float out_proj, got a {}",
               source.out_proj.module()->type_name());
  const std::int64_t width = options().embed_dim;
  const std::array<Tensor, 3> own{source.q_proj_weight, source.k_proj_weight, source.v_proj_weight};
  const std::array<const char*, 3> names{"linear_Q", "linear_K", "linear_V"};
  const std::array<ChildSlot*, 3> slots{&linear_q_, &linear_k_, &linear_v_};
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::int64_t first = static_cast<std::int64_t>(i) * width;
    register_slot(names[i], *slots[i]);
    replace_child(names[i],
                  make(*float_layer(joint ? source.in_proj_weight : own[i], source.in_proj_bias,
                                    joint ? first : 0, width, first)));
  }
  replace_child("out_proj", make(*float_layer(output->weight, output->bias, 0, width, 0)));
  if (source.bias_k.defined()) {
    bias_k = source.bias_k.clone();
    bias_v = source.bias_v.clone();
  }
  train(source.is_training());
}

MultiheadAttention::Projected SplitMultiheadAttention::project(const Tensor& query,
                                                               const Tensor& key,
                                                               const Tensor& value) const {
  if (query.is_same(key) && key.is_same(value)) {
    auto [q, k, v] = detail::linear_of_three(linear_q_, linear_k_, linear_v_, query);
    return {q, k, v, bias_k, bias_v};
  }
  return {linear_q_(query), linear_k_(key), linear_v_(value), bias_k, bias_v};
}

}  // namespace quanta::nn
