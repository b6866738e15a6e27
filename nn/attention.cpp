#include "quanta/nn/attention.h"

#include <array>
#include <cmath>
#include <vector>

#include "quanta/nn/detail/layer_options.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/attention.h"
#include "quanta/ops/reduce.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/detail/sizes.h"
#include "quanta/runtime/random.h"

namespace quanta::nn {
namespace {

constexpr std::string_view kOp = "MultiheadAttention";

MultiheadAttentionOptions filled_in(MultiheadAttentionOptions options) {
  QUANTA_CHECK(options.embed_dim >= 1, "{}: embed_dim: expected at least 1, got {}", kOp,
               options.embed_dim);
  quanta::detail::checked_product(kOp, "embed_dim", {3, options.embed_dim});
  QUANTA_CHECK(options.num_heads >= 1 && options.embed_dim % options.num_heads == 0,
               "{}: num_heads: expected a divisor of embed_dim {}, got {}", kOp, options.embed_dim,
               options.num_heads);
  QUANTA_CHECK(options.dropout >= 0.0 && options.dropout <= 1.0,
               "{}: dropout: expected 0..1, got {}", kOp, options.dropout);
  QUANTA_CHECK(options.kdim >= 0, "{}: kdim: expected at least 1, or 0 for embed_dim, got {}", kOp,
               options.kdim);
  QUANTA_CHECK(options.vdim >= 0, "{}: vdim: expected at least 1, or 0 for embed_dim, got {}", kOp,
               options.vdim);
  detail::check_attention_dtype(kOp, options.attention_dtype);
  if (options.kdim == 0) options.kdim = options.embed_dim;
  if (options.vdim == 0) options.vdim = options.embed_dim;
  return options;
}

Tensor xavier_uniform(std::int64_t rows, std::int64_t columns) {
  const double both = static_cast<double>(rows) + static_cast<double>(columns);
  return detail::uniform({rows, columns}, std::sqrt(6.0 / both));
}

// [batch, steps, ...] or [steps, batch, ...] of a call, made 3-d.
struct Layout {
  bool batched;
  bool batch_first;

  std::int64_t batch(const Tensor& x) const { return x.size(batch_first ? 0 : 1); }
  std::int64_t steps(const Tensor& x) const { return x.size(batch_first ? 1 : 0); }

  // [batch, heads, steps, head_dim], a view.
  Tensor split(const Tensor& x, std::int64_t heads) const {
    const Dims& sizes = x.sizes();
    const Tensor parts = x.view({sizes[0], sizes[1], heads, sizes[2] / heads});
    return batch_first ? parts.transpose(1, 2) : parts.permute({1, 2, 0, 3});
  }
  Tensor join(const Tensor& heads) const {
    const Tensor parts = batch_first ? heads.transpose(1, 2) : heads.permute({2, 0, 1, 3});
    const Dims& sizes = parts.sizes();
    return parts.reshape({sizes[0], sizes[1], sizes[2] * sizes[3]});
  }
};

void check_mask(std::string_view name, const Tensor& mask, const Dims& expected) {
  QUANTA_CHECK(mask.sizes() == expected, "{}: {}: expected sizes {}, got {}", kOp, name, expected,
               mask.sizes());
}

// [1 or batch, 1 or heads, queries, keys] of a call's attn_mask, as numbers of `dtype`.
Tensor mask_of_heads(const Tensor& mask, std::int64_t batch, std::int64_t heads,
                     std::int64_t queries, std::int64_t keys, DType dtype) {
  if (!mask.defined()) return mask;
  const Tensor added = additive_mask(kOp, "attn_mask", mask, true, dtype);
  if (mask.dim() == 3) {
    check_mask("attn_mask", mask, {batch * heads, queries, keys});
    return added.reshape({batch, heads, queries, keys});
  }
  check_mask("attn_mask", mask, {queries, keys});
  return added.view({1, 1, queries, keys});
}

// [batch, 1, 1, keys] of a call's key_padding_mask.
Tensor mask_of_keys(const Tensor& mask, const Layout& layout, std::int64_t batch, std::int64_t keys,
                    DType dtype) {
  if (!mask.defined()) return mask;
  check_mask("key_padding_mask", mask, layout.batched ? Dims{batch, keys} : Dims{keys});
  return additive_mask(kOp, "key_padding_mask", mask, true, dtype).reshape({batch, 1, 1, keys});
}

Tensor add_defined(const Tensor& lhs, const Tensor& rhs) {
  if (!lhs.defined()) return rhs;
  return rhs.defined() ? add(lhs, rhs) : lhs;
}

// One key (or value) more at the end: [batch, heads, keys + 1, head_dim].
Tensor with_row(const Tensor& x, const Tensor& row) {
  const Dims& sizes = x.sizes();
  const std::array<Tensor, 2> parts{x, row.expand({sizes[0], sizes[1], 1, sizes[3]})};
  return cat(parts, 2);
}

// The mask of that key: open to every query.
Tensor with_open_column(const Tensor& mask) {
  if (!mask.defined()) return mask;
  Dims sizes = mask.sizes();
  sizes[3] = 1;
  const std::array<Tensor, 2> parts{mask, Tensor::zeros(sizes, mask.dtype()).to(mask.device())};
  return cat(parts, 3);
}

}  // namespace

MultiheadAttention::MultiheadAttention(const MultiheadAttentionOptions& options, NoProjections)
    : options_(filled_in(options)) {
  register_parameter("in_proj_weight", in_proj_weight);
  register_parameter("q_proj_weight", q_proj_weight);
  register_parameter("k_proj_weight", k_proj_weight);
  register_parameter("v_proj_weight", v_proj_weight);
  register_parameter("in_proj_bias", in_proj_bias);
  const std::int64_t width = options_.embed_dim;
  register_module("out_proj", out_proj, LinearOptions{width, width, options_.bias});
  if (out_proj->bias.defined()) out_proj->bias.fill_(0.0);
  if (options_.add_bias_kv) {
    const double deviation = std::sqrt(1.0 / static_cast<double>(width));
    bias_k = mul_scalar(randn({1, 1, width}), deviation);
    bias_v = mul_scalar(randn({1, 1, width}), deviation);
  }
  register_parameter("bias_k", bias_k);
  register_parameter("bias_v", bias_v);
}

MultiheadAttention::MultiheadAttention(const MultiheadAttentionOptions& options)
    : MultiheadAttention(options, NoProjections{}) {
  const std::int64_t width = options_.embed_dim;
  if (options_.kdim == width && options_.vdim == width) {
    in_proj_weight = xavier_uniform(3 * width, width);
  } else {
    q_proj_weight = xavier_uniform(width, width);
    k_proj_weight = xavier_uniform(width, options_.kdim);
    v_proj_weight = xavier_uniform(width, options_.vdim);
  }
  if (options_.bias) in_proj_bias = Tensor::zeros({3 * width});
}

Tensor MultiheadAttention::project_rows(Part part, const Tensor& x) const {
  const std::int64_t width = options_.embed_dim;
  // Which rows of the three weights, and which weight where each has its own.
  const std::int64_t first = part == Part::Key || part == Part::KeyValue ? width
                             : part == Part::Value                       ? 2 * width
                                                                         : 0;
  const std::int64_t rows = part == Part::All        ? 3 * width
                            : part == Part::KeyValue ? 2 * width
                                                     : width;
  const Tensor& own = part == Part::Query ? q_proj_weight
                      : part == Part::Key ? k_proj_weight
                                          : v_proj_weight;
  const Tensor& weight = in_proj_weight.defined() ? in_proj_weight : own;
  const auto weight_rows = [&] {
    return in_proj_weight.defined() ? weight.narrow(0, first, rows) : weight;
  };
  const auto bias_rows = [&] {
    return in_proj_bias.defined() ? in_proj_bias.narrow(0, first, rows) : Tensor();
  };
  // In train mode weights change from call to call.
  if (is_training()) return linear(x, weight_rows(), bias_rows());
  return packed_[static_cast<std::size_t>(part)].get(weight, in_proj_bias, Fusion::None, [&] {
    return PackedLinear(weight_rows(), bias_rows());
  })(x, weight_rows(), bias_rows());
}

void MultiheadAttention::check_input(std::string_view name, const Tensor& x,
                                     std::int64_t features) const {
  QUANTA_CHECK(x.defined(), "{}: {}: expected a Float32 tensor, got an undefined one", kOp, name);
  const bool is_narrow = x.dtype() == DType::Float16 || x.dtype() == DType::BFloat16;
  const bool is_float = x.dtype() == DType::Float32 || x.dtype() == DType::Float64 ||
                        (is_narrow && x.device().is_cuda());
  QUANTA_SUPPORTED(is_float || (takes_quantized() && x.is_quantized()),
                   "{}: {}: expected Float32, got {}", kOp, name, x.dtype());
  QUANTA_CHECK((x.dim() == 2 || x.dim() == 3) && x.size(-1) == features,
               "{}: {}: expected 2 or 3 dimensions, the last of size {}, got {}", kOp, name,
               features, x.sizes());
}

MultiheadAttention::Projected MultiheadAttention::project(const Tensor& query, const Tensor& key,
                                                          const Tensor& value) const {
  Projected result = project_inputs(query, key, value);
  result.key_row = bias_k;
  result.value_row = bias_v;
  return result;
}

MultiheadAttention::Projected MultiheadAttention::project_inputs(const Tensor& query,
                                                                 const Tensor& key,
                                                                 const Tensor& value) const {
  const std::int64_t width = options_.embed_dim;
  const bool joint = in_proj_weight.defined() && key.is_same(value);
  if (joint && query.is_same(key)) {
    const Tensor all = project_rows(Part::All, query);
    return {all.narrow(-1, 0, width), all.narrow(-1, width, width),
            all.narrow(-1, 2 * width, width)};
  }
  if (joint) {
    const Tensor both = project_rows(Part::KeyValue, key);
    return {project_rows(Part::Query, query), both.narrow(-1, 0, width),
            both.narrow(-1, width, width)};
  }
  return {project_rows(Part::Query, query), project_rows(Part::Key, key),
          project_rows(Part::Value, value)};
}

Tensor MultiheadAttention::project_output(const Tensor& heads) const { return out_proj(heads); }

AttentionOutput MultiheadAttention::run(const Tensor& query, const Tensor& key, const Tensor& value,
                                        const AttentionCall& call) const {
  check_input("query", query, options_.embed_dim);
  check_input("key", key, options_.kdim);
  check_input("value", value, options_.vdim);
  QUANTA_CHECK(key.dim() == query.dim() && value.dim() == query.dim(),
               "{}: key: expected key and value with {} dimensions as query has, got {} and {}",
               kOp, query.dim(), key.sizes(), value.sizes());
  // An unbatched input is a batch of one, batch first.
  const Layout layout{query.dim() == 3, query.dim() == 2 || options_.batch_first};
  const auto batched = [&](const Tensor& x) { return layout.batched ? x : x.unsqueeze(0); };
  const Tensor q = batched(query);
  const Tensor k = key.is_same(query) ? q : batched(key);
  const Tensor v = value.is_same(key) ? k : batched(value);
  const std::int64_t batch = layout.batch(q);
  QUANTA_CHECK(
      layout.batch(k) == batch && layout.batch(v) == batch && layout.steps(k) == layout.steps(v),
      "{}: key: expected key and value of one length and {} in a batch, got {} and {}", kOp, batch,
      key.sizes(), value.sizes());
  QUANTA_CHECK(!call.is_causal || call.attn_mask.defined(),
               "{}: attn_mask: expected the causal mask with is_causal, got none", kOp);
  // Quantized inputs attend in Float32.
  const DType dtype = q.is_quantized() ? DType::Float32 : q.dtype();
  Tensor mask = mask_of_heads(call.attn_mask, batch, options_.num_heads, layout.steps(q),
                              layout.steps(k), dtype);
  Tensor padding = mask_of_keys(call.key_padding_mask, layout, batch, layout.steps(k), dtype);

  const Projected projected = project(q, k, v);
  Heads heads{layout.split(projected.query, options_.num_heads),
              layout.split(projected.key, options_.num_heads),
              layout.split(projected.value, options_.num_heads),
              projected.is_scaled ? 1.0 : 1.0 / std::sqrt(static_cast<double>(head_dim()))};
  extend_keys(projected, heads, padding, mask);
  AttentionOutput result = attend(heads, mask, padding, call);
  result.output = project_output(layout.join(result.output));
  if (result.weights.defined()) {
    result.weights = finish_weights(result.weights);
    if (call.average_attn_weights) result.weights = mean(result.weights, Dims{1});
    if (!layout.batched) result.weights = result.weights.squeeze(0);
    if (!call.need_weights) result.weights = {};
  }
  if (!layout.batched) result.output = result.output.squeeze(0);
  return result;
}

void MultiheadAttention::extend_keys(const Projected& projected, Heads& heads, Tensor& padding,
                                     Tensor& mask) const {
  const auto extend = [&](const Tensor& key_row, const Tensor& value_row) {
    heads.key = with_row(heads.key, key_row);
    heads.value = with_row(heads.value, value_row);
    padding = with_open_column(padding);
    mask = with_open_column(mask);
  };
  const Dims row{1, options_.num_heads, 1, head_dim()};
  if (projected.key_row.defined()) {
    extend(projected.key_row.reshape(row), projected.value_row.reshape(row));
  }
  if (options_.add_zero_attn) {
    const Tensor zeros = Tensor::zeros(row, heads.key.dtype()).to(heads.key.device());
    extend(zeros, zeros);
  }
}

AttentionOutput MultiheadAttention::attend(const Heads& heads, const Tensor& mask,
                                           const Tensor& padding, const AttentionCall& call) const {
  const double dropped = is_training() ? options_.dropout : 0.0;
  if (!call.need_weights && !watches_weights()) {
    // More keys than the mask was made for: their columns are only in the mask.
    const bool causal =
        call.is_causal && !padding.defined() && !options_.add_bias_kv && !options_.add_zero_attn;
    return {scaled_dot_product_attention(
        heads.query, heads.key, heads.value, causal ? Tensor() : add_defined(mask, padding),
        AttentionOptions{
            .dropout_p = dropped,
            .is_causal = causal,
            .scale = heads.scale,
            .attention_dtype = is_training() ? DType::Float32 : options_.attention_dtype})};
  }
  Tensor weights =
      attention_weights(heads.query, heads.key, add_defined(mask, padding), heads.scale);
  if (dropped > 0.0) weights = dropout(weights, dropped);
  return {matmul(weights, heads.value), weights};
}

Tensor MultiheadAttention::forward(const Tensor& x) const {
  return run(x, x, x, {.need_weights = false}).output;
}

AttentionOutput MultiheadAttention::forward(const Tensor& query, const Tensor& key,
                                            const Tensor& value, const AttentionCall& call) const {
  const detail::PathScope scope(this);
  return run(query, key, value, call);
}

std::string MultiheadAttention::extra_repr() const {
  std::string text =
      fmt::format("embed_dim={}, num_heads={}", options_.embed_dim, options_.num_heads);
  if (options_.attention_dtype != DType::Float32) {
    text += fmt::format(", attention_dtype={}", options_.attention_dtype);
  }
  return text;
}

void MultiheadAttention::set_attention_dtype(DType dtype) {
  detail::check_attention_dtype(kOp, dtype);
  options_.attention_dtype = dtype;
}

void detail::check_attention_dtype(std::string_view op, DType dtype) {
  QUANTA_CHECK(dtype == DType::Float32 || dtype == DType::QInt8,
               "{}: attention_dtype: expected Float32 or QInt8, got {}", op, dtype);
}

void set_attention_dtype(Module& model, DType dtype) {
  constexpr std::string_view kName = "set_attention_dtype";
  detail::check_attention_dtype(kName, dtype);
  bool found = false;
  for (const auto& [path, module] : model.named_modules()) {
    auto* attention = dynamic_cast<HasAttentionDtype*>(module);
    if (attention == nullptr) continue;
    attention->set_attention_dtype(dtype);
    found = true;
  }
  QUANTA_CHECK(found, "{}: model: expected a module with attention in it, got none", kName);
}

}  // namespace quanta::nn
