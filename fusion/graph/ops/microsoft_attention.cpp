// Attention as com.microsoft has it, and what ONNX Runtime's optimiser writes around it.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/ops/arguments.h"
#include "quanta/fusion/graph/ops/families.h"
#include "quanta/fusion/graph/ops/quantized_call.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/attention.h"
#include "quanta/ops/cat.h"
#include "quanta/ops/compare.h"
#include "quanta/ops/elementwise.h"
#include "quanta/ops/indexing.h"
#include "quanta/ops/matmul.h"
#include "quanta/ops/reduce.h"
#include "quanta/ops/shape.h"
#include "quanta/runtime/check.h"

namespace quanta::graph {
namespace {

constexpr std::string_view kDomain = "com.microsoft";

/// Queries, keys and values, [batch, heads, sequence, size].
struct Parts {
  Tensor query, key, value;
};

/// What is remembered of earlier keys and values, undefined where there is nothing, and what is
/// added to the products.
struct Context {
  Tensor past_key{}, past_value{}, mask{};
  bool causal = false;
  double softcap = 0.0;
};

/// [batch, sequence, heads * size] as [batch, heads, sequence, size].
Tensor by_head(const NodeCall& call, const Tensor& x, std::int64_t heads) {
  if (x.dim() == 4) return x;
  if (x.dim() != 3 || heads < 1 || x.size(2) % heads != 0) {
    call.fail(
        fmt::format("expected [batch, sequence, {} heads * size], got sizes {}", heads, x.sizes()));
  }
  return x.reshape({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
}

/// The result as [batch, sequence, heads * size], keys and values with those of the past.
Outputs attend(const NodeCall& call, const Parts& parts, const Context& context) {
  OnnxAttributes attributes{{"is_causal", std::int64_t{context.causal ? 1 : 0}},
                            {"softcap", static_cast<float>(context.softcap)},
                            {"scale", static_cast<float>(call.number("scale", 0.0))}};
  Outputs results =
      call_operator(call, "Attention",
                    std::vector<Tensor>{parts.query, parts.key, parts.value, context.mask,
                                        context.past_key, context.past_value},
                    std::move(attributes));
  const Tensor& y = results[0];
  results[0] = y.transpose(1, 2).reshape({y.size(0), y.size(2), y.size(1) * y.size(3)});
  return {results.begin(), results.begin() + 3};
}

/// Numbers to add, [batch, 1, 1 or queries, keys], of a mask in any of its forms: which keys count,
/// for each query or for all, or the ends (and beginnings) of those that do.
Tensor padding_mask(const NodeCall& call, const Tensor& mask, const Tensor& query,
                    std::int64_t keys) {
  const std::int64_t batch = query.size(0);
  const DType dtype = query.dtype();
  Tensor counts;  // 1 or 0
  if (mask.dim() == 2 && mask.size(1) == keys) {
    counts = gt(mask.to(DType::Int64), 0.0).to(dtype).reshape({-1, 1, 1, keys});
  } else if (mask.dim() == 3 && mask.size(2) == keys) {
    counts = gt(mask.to(DType::Int64), 0.0).to(dtype).unsqueeze(1);
  } else if (mask.dim() == 1 && (mask.numel() == batch || mask.numel() == 2 * batch)) {
    const Tensor ends = mask.to(DType::Int64).reshape({-1, batch, 1});
    const Tensor positions = Tensor::arange(keys, DType::Int64);
    counts = lt(positions, ends.select(0, 0)).to(dtype);
    if (mask.numel() > batch) {
      counts = mul(counts, ge(positions, ends.select(0, 1)).to(dtype));
    }
    counts = counts.reshape({batch, 1, 1, keys});
  } else {
    call.unsupported(fmt::format("a mask of sizes {} for {} keys", mask.sizes(), keys));
  }
  const double filter = call.number("mask_filter_value", -10000.0);
  return mul_scalar(add_scalar(counts, -1.0), -filter);
}

Tensor sum_of(const Tensor& lhs, const Tensor& rhs) {
  if (!lhs.defined() || !rhs.defined()) return lhs.defined() ? lhs : rhs;
  return add(lhs, rhs);
}

/// Columns of queries, keys and values, whose sizes qkv_hidden_sizes names.
Outputs attend_to_columns(const NodeCall& call, const Tensor& columns, const Tensor& mask,
                          const Tensor& past, const Tensor& bias) {
  if (call.flag("do_rotary", false) || call.flag("past_present_share_buffer", false)) {
    call.unsupported("do_rotary and past_present_share_buffer");
  }
  const std::int64_t third = columns.size(2) / 3;
  const std::vector<std::int64_t> sizes =
      call.integer_list("qkv_hidden_sizes", {third, third, third});
  if (sizes.size() != 3) call.fail("qkv_hidden_sizes: expected 3 numbers");
  const std::vector<Tensor> split = split_with_sizes(columns, sizes, 2);
  const std::int64_t heads = call.integer("num_heads");
  const Parts parts{by_head(call, split[0], heads), by_head(call, split[1], heads),
                    by_head(call, split[2], heads)};
  Context context{.mask = bias, .causal = call.flag("unidirectional", false)};
  std::int64_t keys = parts.key.size(2);
  if (past.defined()) {
    context.past_key = past.select(0, 0);
    context.past_value = past.select(0, 1);
    keys += past.size(3);
  }
  if (mask.defined()) {
    context.mask = sum_of(padding_mask(call, mask, parts.query, keys), context.mask);
  }
  Outputs results = attend(call, parts, context);
  if (!call.wants(1)) return {results[0]};
  return {results[0], stack(std::array{results[1], results[2]}, 0)};
}

Outputs evaluate_attention(const NodeCall& call) {
  Tensor columns = matmul(call.input(0, "input"), call.input(1, "weights"));
  if (call.has(2)) columns = add(columns, call.input(2, "bias"));
  return attend_to_columns(call, columns, call.optional(3), call.optional(4), call.optional(5));
}

Outputs evaluate_quantized_attention(const NodeCall& call) {
  const Tensor sums = matmul_integer(call.input(0, "input"), call.input(1, "weight"),
                                     call.optional(6), call.optional(7));
  const Tensor scale = mul(call.input(3, "input_scale"), call.input(4, "weight_scale"));
  const Tensor columns = add(mul(sums.to(DType::Float32), scale), call.input(2, "bias"));
  return attend_to_columns(call, columns, call.optional(5), call.optional(8), {});
}

/// Queries, keys and values that come apart or in one tensor with a dimension for it.
Parts parts_of(const NodeCall& call, std::int64_t heads) {
  const Tensor& query = call.input(0, "query");
  const Tensor bias = call.optional(3);
  if (query.dim() == 5) {
    const auto part = [&](std::int64_t i) { return query.select(3, i).transpose(1, 2); };
    if (bias.defined()) call.unsupported("a bias of packed queries, keys and values");
    return {part(0), part(1), part(2)};
  }
  const Tensor& key = call.input(1, "key");
  const auto biased = [&](const Tensor& x, std::int64_t begin, std::int64_t end) {
    if (!bias.defined()) return by_head(call, x, heads);
    const Tensor part = bias.slice(0, begin, end);
    return by_head(call, x.dim() == 3 ? add(x, part) : x, heads);
  };
  const std::int64_t width = query.size(2);
  if (key.dim() == 5) {
    return {biased(query, 0, width), key.select(3, 0).transpose(1, 2),
            key.select(3, 1).transpose(1, 2)};
  }
  const std::int64_t end = bias.defined() ? bias.numel() : 0;
  return {biased(query, 0, width), biased(key, width, 2 * width),
          biased(call.input(2, "value"), 2 * width, end)};
}

Outputs evaluate_multi_head(const NodeCall& call) {
  const Parts parts = parts_of(call, call.integer("num_heads"));
  if (call.has(8) || call.has(9)) call.unsupported("past_sequence_length and cache_indirection");
  if (call.wants(3)) call.unsupported("result qk");
  Context context{.past_key = call.optional(6),
                  .past_value = call.optional(7),
                  .mask = call.optional(5),
                  .causal = call.flag("unidirectional", false)};
  if (call.has(4)) {
    const std::int64_t past = call.has(6) ? context.past_key.size(2) : 0;
    const Tensor padding = padding_mask(call, call.input(4, "key_padding_mask"), parts.query,
                                        parts.key.size(2) + past);
    context.mask = sum_of(padding, context.mask);
  }
  return attend(call, parts, context);
}

// With fewer heads of keys than of queries ------------------------------------------------------

/// Pairs of numbers turned by the rows of the caches for these positions, [batch, sequence].
Tensor rotated(const NodeCall& call, const Tensor& x, const Tensor& cosine, const Tensor& sine,
               const Tensor& positions, std::int64_t interleaved) {
  return call_operator(
      call, "RotaryEmbedding", std::vector<Tensor>{x, cosine, sine, positions},
      {{"interleaved", interleaved}, {"rotary_embedding_dim", 2 * cosine.size(1)}})[0];
}

/// 0, -infinity where a query is `window` or more keys behind.
Tensor window_mask(std::int64_t queries, std::int64_t keys, std::int64_t window, DType dtype) {
  const Tensor last =
      add_scalar(Tensor::arange(queries, dtype), static_cast<double>(keys - queries - window));
  const Tensor near = gt(Tensor::arange(keys, dtype), last.unsqueeze(1));
  return additive_mask("GroupQueryAttention", "local_window_size", near, false, dtype);
}

Outputs evaluate_group_query(const NodeCall& call) {
  const std::int64_t heads = call.integer("num_heads");
  const std::int64_t key_heads = call.integer("kv_num_heads");
  for (std::size_t i = 11; i < call.input_count(); ++i) {
    if (call.has(i)) call.unsupported(fmt::format("input {}", i));
  }
  if (call.flag("smooth_softmax", false) && call.integer("smooth_softmax") > 0) {
    call.unsupported("smooth_softmax");
  }
  if (call.wants(3)) call.unsupported("result output_qk");
  const Tensor& query = call.input(0, "query");
  Parts parts;
  if (call.has(1)) {
    parts = {by_head(call, query, heads), by_head(call, call.input(1, "key"), key_heads),
             by_head(call, call.input(2, "value"), key_heads)};
  } else {
    const Tensor all = by_head(call, query, heads + 2 * key_heads);
    parts = {all.slice(1, 0, heads), all.slice(1, heads, heads + key_heads),
             all.slice(1, heads + key_heads, heads + 2 * key_heads)};
  }
  Context context{.past_key = call.optional(3),
                  .past_value = call.optional(4),
                  .mask = call.optional(10),
                  .causal = call.flag("causal", true),
                  .softcap = call.number("softcap", 0.0)};
  const std::int64_t past = context.past_key.defined() ? context.past_key.size(2) : 0;
  if (past == 0) context.past_key = context.past_value = Tensor();
  const std::int64_t length = parts.query.size(2);
  const std::int64_t keys = past + parts.key.size(2);
  // Keys of different lengths would begin at different places of the past.
  if (past > 0) {
    for (const std::int64_t last : call.integers(5, "seqlens_k")) {
      if (last + 1 != keys) {
        call.unsupported(fmt::format("seqlens_k: expected {} with {} keys of the past, got {}",
                                     keys - 1, past, last));
      }
    }
  }
  if (call.flag("do_rotary", false)) {
    const Tensor positions = call.has(9)
                                 ? call.input(9, "position_ids")
                                 : add_scalar(Tensor::arange(length), static_cast<double>(past))
                                       .to(DType::Int64)
                                       .expand({query.size(0), length});
    const auto turn = [&](const Tensor& x) {
      return rotated(call, x, call.input(7, "cos_cache"), call.input(8, "sin_cache"), positions,
                     call.integer("rotary_interleaved", 0));
    };
    parts.query = turn(parts.query);
    parts.key = turn(parts.key);
  }
  const std::int64_t window = call.integer("local_window_size", -1);
  if (window > 0) {
    context.mask = sum_of(window_mask(length, keys, window, query.dtype()), context.mask);
  }
  return attend(call, parts, context);
}

Outputs evaluate_rotary(const NodeCall& call) {
  const Tensor& x = call.input(0, "input");
  Tensor positions = call.input(1, "position_ids");
  const Tensor& cosine = call.input(2, "cos_cache");
  const bool by_heads = x.dim() == 4;
  if (positions.numel() == 1) {  // of the first one
    const std::int64_t length = x.size(by_heads ? 2 : 1);
    positions = add(Tensor::arange(length, DType::Int64), positions.reshape({1}))
                    .expand({x.size(0), length});
  }
  const std::int64_t given = call.integer("num_heads", 0);
  const std::int64_t heads = given > 0 || by_heads ? given : x.size(2) / (2 * cosine.size(1));
  const Tensor turned = rotated(call, by_head(call, x, heads), cosine, call.input(3, "sin_cache"),
                                positions, call.integer("interleaved", 0));
  return {by_heads ? turned : turned.transpose(1, 2).reshape(x.sizes())};
}

// Embeddings -------------------------------------------------------------------------------------

Tensor rows_of(const Tensor& table, const Tensor& ids) {
  Dims sizes = ids.sizes();
  sizes.push_back(table.size(1));
  return index_select(table, 0, ids.flatten()).reshape(sizes);
}

Outputs evaluate_embed(const NodeCall& call) {
  const Tensor& ids = call.input(0, "input_ids");
  if (ids.dim() != 2) {
    call.fail(fmt::format("input_ids: expected 2 dimensions, got sizes {}", ids.sizes()));
  }
  Tensor sum = rows_of(call.input(2, "word_embedding"), ids);
  const Tensor& places = call.input(3, "position_embedding");
  sum = add(sum, call.has(8) ? rows_of(places, call.input(8, "position_ids"))
                             : places.slice(0, 0, ids.size(1)));
  if (call.has(1)) {
    sum = add(sum, rows_of(call.input(4, "segment_embedding"), call.input(1, "segment_ids")));
  }
  Outputs results(3);
  results[0] =
      call_operator(call, "LayerNormalization",
                    std::vector<Tensor>{sum, call.input(5, "gamma"), call.input(6, "beta")},
                    {{"epsilon", static_cast<float>(call.number("epsilon", 1e-12))}})[0];
  results[1] = call.has(7)
                   ? quanta::sum(call.input(7, "mask").to(DType::Int64), {1}).to(DType::Int32)
                   : Tensor::zeros({ids.size(0)}, DType::Int32);
  results[2] = sum;
  return results;
}

}  // namespace

void add_microsoft_attention_ops(OpTable& table) {
  const auto row = [&](std::string_view name, Outputs (*evaluate)(const NodeCall&)) {
    table.add({.name = name, .evaluate = evaluate, .domain = kDomain});
  };
  row("Attention", evaluate_attention);
  row("EmbedLayerNormalization", evaluate_embed);
  row("GroupQueryAttention", evaluate_group_query);
  row("MultiHeadAttention", evaluate_multi_head);
  row("QAttention", evaluate_quantized_attention);
  row("RotaryEmbedding", evaluate_rotary);
}

}  // namespace quanta::graph
