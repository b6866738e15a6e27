// Attention and RotaryEmbedding.

#include "quanta/ops/attention.h"

#include <array>
#include <cmath>
#include <limits>

#include "quanta/fusion/graph/op_table.h"
#include "quanta/fusion/graph/ops/families.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/cat.h"
#include "quanta/ops/compare.h"
#include "quanta/ops/indexing.h"
#include "quanta/ops/matmul.h"
#include "quanta/ops/pad.h"
#include "quanta/ops/shape.h"
#include "quanta/runtime/check.h"

namespace quanta::graph {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// [batch, sequence, heads * size] or [batch, heads, sequence, size] as the latter.
Tensor by_head(const NodeCall& call, std::size_t i, std::string_view name,
               std::string_view heads_attribute) {
  const Tensor& x = call.input(i, name);
  if (x.dim() == 4) return x;
  if (x.dim() != 3) {
    call.fail(
        fmt::format("input {} ({}): expected 3 or 4 dimensions, got sizes {}", i, name, x.sizes()));
  }
  const std::int64_t heads = call.integer(heads_attribute);
  if (heads < 1 || x.size(2) % heads != 0) {
    call.fail(fmt::format("attribute {}: expected a divisor of {}, got {}", heads_attribute,
                          x.size(2), heads));
  }
  return x.reshape({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
}

/// Which keys a query takes part in, as numbers to add, [..., L, S]; undefined: in all.
class Mask {
 public:
  Mask(const NodeCall& call, const Tensor& query, const Tensor& key)
      : call_(call), dtype_(query.dtype()), queries_(query.size(2)), keys_(key.size(2)) {}

  void add_given(const Tensor& mask) {
    if (mask.dim() < 1 || mask.dim() > 4) {
      call_.fail(fmt::format("input 3 (attn_mask): expected 1 to 4 dimensions, got sizes {}",
                             mask.sizes()));
    }
    Tensor numbers = additive_mask("Attention", "attn_mask", mask, false, dtype_);
    // Since opset 24 a shorter mask leaves the last keys out.
    const std::int64_t missing = keys_ - mask.sizes().back();
    if (missing > 0 && (call_.opset() >= 24 || mask.sizes().back() != 1)) {
      numbers = pad(numbers, {0, missing}, PadMode::Constant, -kInfinity);
    }
    add(numbers);
  }
  void add_causal(std::int64_t past) {
    Tensor causal = causal_mask(queries_, keys_ - past, dtype_);
    if (past > 0) {
      const std::array parts{Tensor::zeros({queries_, past}, dtype_), causal};
      causal = cat(parts, 1);
    }
    add(causal);
  }
  void add_lengths(const Tensor& lengths) {
    const Tensor positions = Tensor::arange(keys_, DType::Int64);
    const Tensor is_key = lt(positions, lengths.to(DType::Int64).unsqueeze(1));
    add(additive_mask("Attention", "nonpad_kv_seqlen", is_key, false, dtype_)
            .reshape({lengths.numel(), 1, 1, keys_}));
  }
  const Tensor& numbers() const { return mask_; }

 private:
  void add(const Tensor& more) { mask_ = mask_.defined() ? quanta::add(mask_, more) : more; }

  const NodeCall& call_;
  DType dtype_;
  std::int64_t queries_, keys_;
  Tensor mask_;
};

/// A mask over heads as one over key heads and the queries' heads of each.
Tensor by_group(const Tensor& mask, std::int64_t key_heads, std::int64_t group) {
  if (!mask.defined() || mask.dim() <= 2) return mask;
  const Tensor full = mask.dim() == 3 ? mask.unsqueeze(0) : mask;
  if (full.size(1) == 1) return full.unsqueeze(2);
  return full.reshape({full.size(0), key_heads, group, full.size(2), full.size(3)});
}

enum class QkOutput : std::int64_t { Products, Capped, Masked, Weights };

Outputs evaluate_attention(const NodeCall& call) {
  Tensor query = by_head(call, 0, "Q", "q_num_heads");
  Tensor key = by_head(call, 1, "K", "kv_num_heads");
  Tensor value = by_head(call, 2, "V", "kv_num_heads");
  const bool flat = call.input(0, "Q").dim() == 3;
  std::int64_t past = 0;
  if (call.has(4) != call.has(5)) call.fail("expected past_key and past_value together, got one");
  if (call.has(4)) {
    past = call.input(4, "past_key").size(2);
    key = cat(std::array{call.input(4, "past_key"), key}, 2);
    value = cat(std::array{call.input(5, "past_value"), value}, 2);
  }
  const Tensor present_key = key;
  const Tensor present_value = value;

  Mask mask(call, query, key);
  if (call.has(3)) mask.add_given(call.input(3, "attn_mask"));
  const bool is_causal = call.flag("is_causal", false);
  const bool has_lengths = call.has(6);
  // The fast form knows a causal mask by itself.
  const bool plain_causal = is_causal && past == 0 && !call.has(3) && !has_lengths;
  const double softcap = call.number("softcap", 0.0);
  const bool fast = softcap <= 0.0 && !call.wants(3);
  if (is_causal && !(fast && plain_causal)) mask.add_causal(past);
  if (has_lengths) mask.add_lengths(call.input(6, "nonpad_kv_seqlen"));

  const std::int64_t heads = query.size(1);
  const std::int64_t key_heads = key.size(1);
  if (key_heads < 1 || heads % key_heads != 0 || value.size(1) != key_heads) {
    call.fail(
        fmt::format("expected a number of heads that is a multiple of that of keys and "
                    "values, got {}, {} and {}",
                    heads, key_heads, value.size(1)));
  }
  Tensor numbers = mask.numbers();
  const std::int64_t group = heads / key_heads;
  const Dims sizes{query.size(0), heads, query.size(2), value.size(3)};
  if (group > 1) {
    query = query.reshape({query.size(0), key_heads, group, query.size(2), query.size(3)});
    key = key.unsqueeze(2);
    value = value.unsqueeze(2);
    numbers = by_group(numbers, key_heads, group);
  }
  // 0 stands for the default, as in ONNX Runtime.
  const double given_scale = call.number("scale", 0.0);
  const double scale =
      given_scale != 0.0 ? given_scale : 1.0 / std::sqrt(static_cast<double>(query.sizes().back()));

  Outputs results(4);
  Tensor output;
  if (fast) {
    output = scaled_dot_product_attention(query, key, value, numbers,
                                          {.is_causal = plain_causal, .scale = scale});
  } else {
    const auto wanted = call.integer("qk_matmul_output_mode", 0);
    if (wanted < 0 || wanted > 3) {
      call.fail(fmt::format("attribute qk_matmul_output_mode: expected 0..3, got {}", wanted));
    }
    Tensor products = matmul(mul_scalar(query, scale), key.transpose(-2, -1));
    Tensor shown = products;
    if (softcap > 0.0) {
      products = mul_scalar(tanh(mul_scalar(products, 1.0 / softcap)), softcap);
    }
    if (wanted == static_cast<std::int64_t>(QkOutput::Capped)) shown = products;
    if (numbers.defined()) products = add(products, numbers);
    if (wanted == static_cast<std::int64_t>(QkOutput::Masked)) shown = products;
    const Tensor weights = softmax(products, -1);
    if (wanted == static_cast<std::int64_t>(QkOutput::Weights)) shown = weights;
    output = matmul(weights, value);
    results[3] = shown.reshape({sizes[0], heads, sizes[2], present_key.size(2)});
  }
  output = output.reshape(sizes);
  if (flat) output = output.transpose(1, 2).reshape({sizes[0], sizes[2], heads * sizes[3]});
  results[0] = output;
  results[1] = present_key;
  results[2] = present_value;
  return results;
}

// Rotary embedding -----------------------------------------------------------------------------

/// The rows of a cache for each position, [batch, sequence, 1, half].
Tensor rotations(const NodeCall& call, std::size_t i, std::string_view name, std::int64_t half) {
  const Tensor& cache = call.input(i, name);
  Tensor rows = cache;
  if (call.has(3)) {
    if (cache.dim() != 2) {
      call.fail(fmt::format("input {} ({}): expected 2 dimensions, got sizes {}", i, name,
                            cache.sizes()));
    }
    const Tensor& positions = call.input(3, "position_ids");
    Dims sizes = positions.sizes();
    sizes.push_back(cache.size(1));
    rows = index_select(cache, 0, positions.flatten()).reshape(sizes);
  }
  if (rows.dim() != 3 || rows.size(2) != half) {
    call.fail(fmt::format("input {} ({}): expected [batch, sequence, {}], got sizes {}", i, name,
                          half, rows.sizes()));
  }
  return rows.unsqueeze(2);
}

Outputs evaluate_rotary_embedding(const NodeCall& call) {
  const Tensor& x = call.input(0, "X");
  // [batch, sequence, heads, size]
  const Tensor heads = by_head(call, 0, "X", "num_heads").transpose(1, 2);
  const std::int64_t size = heads.size(3);
  const std::int64_t given = call.integer("rotary_embedding_dim", 0);
  const std::int64_t rotated = given == 0 ? size : given;
  if (rotated < 2 || rotated > size || rotated % 2 != 0) {
    call.fail(
        fmt::format("attribute rotary_embedding_dim: expected an even number up to {}, got "
                    "{}",
                    size, rotated));
  }
  const bool interleaved = call.flag("interleaved", false);
  const std::int64_t half = rotated / 2;
  const Tensor cosine = rotations(call, 1, "cos_cache", half);
  const Tensor sine = rotations(call, 2, "sin_cache", half);
  const Tensor first = interleaved ? heads.slice(3, 0, rotated, 2) : heads.slice(3, 0, half);
  const Tensor second = interleaved ? heads.slice(3, 1, rotated, 2) : heads.slice(3, half, rotated);
  const std::array turned{sub(mul(first, cosine), mul(second, sine)),
                          add(mul(first, sine), mul(second, cosine))};
  Tensor result;
  if (interleaved) {
    Dims sizes = heads.sizes();
    sizes[3] = rotated;
    result = stack(turned, -1).reshape(sizes);
  } else {
    result = cat(turned, 3);
  }
  if (rotated < size) {
    result = cat(std::array{result, heads.slice(3, rotated, size)}, 3);
  }
  return {x.dim() == 3 ? result.reshape(x.sizes()) : result.transpose(1, 2)};
}

}  // namespace

void add_attention_ops(OpTable& table) {
  table.add({.name = "Attention", .evaluate = evaluate_attention});
  table.add({.name = "RotaryEmbedding", .evaluate = evaluate_rotary_embedding});
}

}  // namespace quanta::graph
