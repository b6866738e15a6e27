#include "quanta/ops/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/attention/cpu_attention.h"
#include "quanta/ops/attention/gradient.h"
#include "quanta/ops/compare.h"
#include "quanta/ops/indexing.h"
#include "quanta/ops/reduce.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/recorder.h"
#include "quanta/runtime/verbose.h"

namespace quanta {
namespace {

constexpr std::string_view kOp = "scaled_dot_product_attention";
constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

void check_operand(std::string_view name, const Tensor& x, DType dtype) {
  QUANTA_CHECK(x.defined(), "{}: {}: expected a Float32 tensor, got an undefined one", kOp, name);
  QUANTA_SUPPORTED(x.dtype() == dtype, "{}: {}: expected {} on the CPU, got {}", kOp, name, dtype,
                   x.dtype());
  QUANTA_CHECK(x.dim() >= 2, "{}: {}: expected at least 2 dimensions, got {}", kOp, name,
               x.sizes());
}

void check(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
           const AttentionOptions& options) {
  const bool is_double = query.defined() && query.dtype() == DType::Float64;
  const DType dtype = is_double ? DType::Float64 : DType::Float32;
  check_operand("query", query, dtype);
  check_operand("key", key, dtype);
  check_operand("value", value, dtype);
  QUANTA_CHECK(query.size(-1) >= 1 && key.size(-1) == query.size(-1),
               "{}: key: expected {} features as query has (at least 1), got sizes {}", kOp,
               query.size(-1), key.sizes());
  QUANTA_CHECK(value.size(-2) == key.size(-2),
               "{}: value: expected {} rows as key has, got sizes {}", kOp, key.size(-2),
               value.sizes());
  QUANTA_CHECK(options.dropout_p >= 0.0 && options.dropout_p <= 1.0,
               "{}: dropout_p: expected 0..1, got {}", kOp, options.dropout_p);
  QUANTA_CHECK(!options.scale || !std::isnan(*options.scale),
               "{}: scale: expected a number, got NaN", kOp);
  QUANTA_CHECK(!mask.defined() || !options.is_causal,
               "{}: is_causal: expected false together with attn_mask, got true", kOp);
}

Dims batch_of(const Tensor& x) {
  Dims batch = x.sizes();
  batch.resize(batch.size() - 2);
  return batch;
}

Dims with_last(Dims batch, std::int64_t rows, std::int64_t columns) {
  batch.push_back(rows);
  batch.push_back(columns);
  return batch;
}

// The mask of sizes [..., L, S] without copying what is broadcast, but for the keys, which the
// kernel reads one after the other.
Tensor expand_mask(const Tensor& mask, const Dims& scores) {
  Dims own = mask.sizes();
  QUANTA_CHECK(own.size() <= scores.size(),
               "{}: attn_mask: expected sizes that broadcast to {}, "
               "got {}",
               kOp, scores, own);
  const std::size_t missing = scores.size() - own.size();
  for (std::size_t d = 0; d < own.size(); ++d) {
    QUANTA_CHECK(own[d] == scores[missing + d] || own[d] == 1,
                 "{}: attn_mask: expected sizes that broadcast to {}, got {}", kOp, scores, own);
  }
  Tensor dense = mask.dim() == 0 ? mask.unsqueeze(0) : mask;
  own = dense.sizes();
  own[own.size() - 1] = scores.back();
  dense = dense.expand(own);
  if (dense.strides().back() != 1) dense = dense.contiguous();
  return dense.expand(scores);
}

// Op by op, for dropout and for Float64. The mask is as it was given.
Tensor by_steps(const Tensor& query, const Tensor& key, const Tensor& value, Tensor mask,
                double scale, const AttentionOptions& options) {
  if (options.is_causal) {
    mask = detail::causal_mask(query.size(-2), key.size(-2), query.dtype());
  }
  Tensor weights = detail::attention_weights_or_zeros(query, key, mask, scale);
  if (options.dropout_p > 0.0) weights = dropout(weights, options.dropout_p);
  return matmul(weights, value);
}

// [batch, heads, rows, features]: leading dimensions beyond two become one.
Tensor as_heads(const Tensor& x, const Dims& batch) {
  const std::int64_t columns = x.size(-1);
  Tensor heads = x.expand(with_last(batch, x.size(-2), columns));
  while (heads.dim() < 4) heads = heads.unsqueeze(0);
  if (heads.dim() > 4) heads = heads.flatten(0, heads.dim() - 4);
  if (columns > 1 && heads.strides()[3] != 1) heads = heads.contiguous();
  return heads;
}

cpu::AttentionStrides strides_of(const Tensor& heads) {
  const Dims& strides = heads.strides();
  return {strides[0], strides[1], strides[2]};
}

// Uninitialised, with the memory order of `query`.
Tensor result_like(const Tensor& query, std::int64_t features) {
  const Dims& strides = query.strides();
  std::array<std::int64_t, 3> order{0, 1, 2};
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return strides[static_cast<std::size_t>(a)] > strides[static_cast<std::size_t>(b)];
  });
  Dims sizes;
  Dims back = Dims::filled(4, 3);
  for (std::size_t i = 0; i < order.size(); ++i) {
    sizes.push_back(query.sizes()[static_cast<std::size_t>(order[i])]);
    back[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  }
  sizes.push_back(features);
  return Tensor::empty(sizes).permute(back);
}

// All as [batch, heads, rows, features]; the mask may be undefined.
void attend(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
            const Tensor& out, float scale, bool causal) {
  cpu::AttentionProblem problem{.batch = q.size(0),
                                .heads = q.size(1),
                                .queries = q.size(2),
                                .keys = k.size(2),
                                .features = q.size(3),
                                .value_features = v.size(3),
                                .query = static_cast<const float*>(q.data_ptr()),
                                .key = static_cast<const float*>(k.data_ptr()),
                                .value = static_cast<const float*>(v.data_ptr()),
                                .out = static_cast<float*>(out.data_ptr()),
                                .mask = nullptr,
                                .query_strides = strides_of(q),
                                .key_strides = strides_of(k),
                                .value_strides = strides_of(v),
                                .out_strides = strides_of(out),
                                .mask_strides = {},
                                .scale = scale,
                                .causal = causal};
  if (mask.defined()) {
    problem.mask = static_cast<const float*>(mask.data_ptr());
    problem.mask_strides = strides_of(mask);
  }
  cpu::attention(problem);
}

void record_attend(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                   const Tensor& out, float scale, bool causal) {
  std::vector<Tensor> inputs{q, k, v};
  if (mask.defined()) inputs.push_back(mask);
  replay::record({.op = kOp,
                  .inputs = std::move(inputs),
                  .outputs = {out},
                  .run = [masked = mask.defined(), scale, causal](const replay::Frame& frame) {
                    attend(frame.in(0), frame.in(1), frame.in(2), masked ? frame.in(3) : Tensor(),
                           frame.out(), scale, causal);
                  }});
}

Tensor by_heads(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
                const Dims& batch, float scale, bool causal) {
  const Tensor q = as_heads(query, batch);
  const Tensor k = as_heads(key, batch);
  const Tensor v = as_heads(value, batch);
  const Tensor out = result_like(q, v.size(3));
  if (k.size(2) == 0) {
    out.fill_(0.0);
  } else if (out.numel() > 0) {
    const Tensor added = mask.defined() ? as_heads(mask, batch) : mask;
    attend(q, k, v, added, out, scale, causal);
    if (replay::is_recording()) record_attend(q, k, v, added, out, scale, causal);
  }
  return batch.size() == 2 ? out : out.reshape(with_last(batch, q.size(2), v.size(3)));
}

}  // namespace

Tensor additive_mask(std::string_view op, std::string_view argument, const Tensor& mask,
                     bool left_out, DType dtype) {
  if (!mask.defined() || mask.dtype() == dtype) return mask;
  QUANTA_CHECK(mask.dtype() == DType::Bool, "{}: {}: expected Bool or {}, got {}", op, argument,
               dtype, mask.dtype());
  if (replay::is_recording()) {
    return replay::call(
        "additive_mask",
        [=](const Tensor& given) {
          return additive_mask("additive_mask", "mask", given, left_out, dtype);
        },
        mask);
  }
  const Tensor dense = mask.contiguous();
  const Tensor result = Tensor::empty(mask.sizes());
  std::transform(
      dense.data<bool>(), dense.data<bool>() + dense.numel(), result.mutable_data<float>(),
      [&](bool value) { return value == left_out ? static_cast<float>(kMinusInfinity) : 0.0F; });
  return result.to(dtype);
}

Tensor attention_weights(const Tensor& query, const Tensor& key, const Tensor& mask, double scale) {
  Tensor scores = matmul(mul_scalar(query, scale), key.transpose(-2, -1));
  if (mask.defined()) scores = add(scores, mask);
  return softmax(scores, -1);
}

namespace detail {

Tensor causal_mask(std::int64_t queries, std::int64_t keys, DType dtype) {
  const Tensor mask = Tensor::zeros({queries, keys});
  auto* row = mask.mutable_data<float>();
  for (std::int64_t i = 0; i < queries; ++i, row += keys) {
    std::fill(row + std::min(i + 1, keys), row + keys, static_cast<float>(kMinusInfinity));
  }
  if (replay::is_recording()) replay::mark_constant(mask);
  return mask.to(dtype);
}

Tensor attention_weights_or_zeros(const Tensor& query, const Tensor& key, const Tensor& mask,
                                  double scale) {
  const Tensor weights = attention_weights(query, key, mask, scale);
  if (!mask.defined() || weights.numel() == 0) return weights;
  // Of the mask as it is: what is broadcast need not be looked at again and again.
  const Tensor own = mask.dim() == 0 ? mask.detach().unsqueeze(0) : mask.detach();
  return masked_fill(weights, eq(max(own, -1, {.keepdim = true}).values, kMinusInfinity), 0.0);
}

}  // namespace detail

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& attn_mask, const AttentionOptions& options) {
  OpScope scope(kOp);
  check(query, key, value, attn_mask, options);
  Dims batch = broadcast_sizes(batch_of(query), batch_of(key), kOp);
  batch = broadcast_sizes(batch, batch_of(value), kOp);
  const Tensor mask = additive_mask(kOp, "attn_mask", attn_mask, false, query.dtype());
  Tensor expanded;
  if (mask.defined()) {
    expanded = expand_mask(mask.detach(), with_last(batch, query.size(-2), key.size(-2)));
  }
  const double scale = options.scale.value_or(1.0 / std::sqrt(static_cast<double>(query.size(-1))));
  if (options.dropout_p > 0.0) {
    scope.kernel("steps");
    return by_steps(query, key, value, mask, scale, options);
  }
  Tensor result;
  if (query.dtype() == DType::Float64) {
    scope.kernel("steps");
    result = by_steps(query.detach(), key.detach(), value.detach(),
                      mask.defined() ? mask.detach() : mask, scale, options);
  } else {
    scope.kernel("onednn:sgemm, simd");
    result = by_heads(query.detach(), key.detach(), value.detach(), expanded, batch,
                      static_cast<float>(scale), options.is_causal);
  }
  scope.work([&]() -> OpWork {
    const std::int64_t scores =
        result.numel() / std::max<std::int64_t>(1, value.size(-1)) * key.size(-2);
    return {.multiply_adds = scores * (query.size(-1) + value.size(-1)),
            .bytes = static_cast<std::int64_t>(query.nbytes() + key.nbytes() + value.nbytes() +
                                               result.nbytes())};
  });
  if (!autograd::needs_grad(query, key, value, mask)) return result;
  return gradients::record_attention(std::move(result), query, key, value, mask,
                                     {scale, options.is_causal});
}

}  // namespace quanta
