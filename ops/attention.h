#pragma once

#include <optional>

#include "quanta/runtime/tensor.h"

/// Attention: products of queries and keys, softmax, and a sum of values with these weights.
///
/// All functions throw ArgumentError for sizes that do not fit and UnsupportedError for other
/// dtypes. Many threads may call them at once while nobody writes to the arguments; dropout draws
/// from default_generator(), which they may share.
namespace quanta {

struct AttentionOptions {
  /// Share of the weights that are dropped (the others are scaled by 1 / (1 - p)); 0 in eval mode.
  double dropout_p = 0.0;
  /// Query i takes part in keys 0..i only. Together with a mask this is refused, as in torch.
  bool is_causal = false;
  /// Factor of the products; default 1 / sqrt(E).
  std::optional<double> scale{};
  /// What the two products are calculated in: Float32 (that is, in query's dtype), or QInt8, which
  /// is faster where there is VNNI or AMX and comes within 36 to 44 dB of SQNR on normal numbers (29
  /// where few keys have nearly all the weight; docs/benchmarks.md). torch has no such form.
  DType attention_dtype = DType::Float32;
};

/// Attention(Q, K, V) = softmax(scale * Q K^T + mask) V   (Vaswani et al. 2017, equation 1)
///
/// `query` [..., L, E], `key` [..., S, E], `value` [..., S, Ev], Float32 (or all Float64, step by
/// step), the leading dimensions broadcast; the result is [..., L, Ev]. `attn_mask` broadcasts to
/// [..., L, S]: Bool, true where a query takes part in a key, or numbers of query's dtype that are
/// added. A query that takes part in no key gives zeros, as in torch since 2.5.
///
/// Views need no copy as long as their last dimension is dense: `x.view({B, L, H, E}).transpose(1,
/// 2)` is as fast as [B, H, L, E]. The result has the memory order of `query`, so that
/// `.transpose(1, 2).reshape({B, L, H * Ev})` is a view then.
///
/// In Float32 every instruction set and any number of threads give the same floats, and so do other
/// queries beside a query. On a CUDA device all tensors may be Float16 or BFloat16: the floats are
/// those of the same numbers in Float32, rounded once, and so are the gradients, whose products are
/// Float32's.
///
/// Has gradients of query, key, value and a mask of numbers; without dropout the weights are not
/// kept for them but calculated again.
///
/// With options.attention_dtype QInt8 each query and key is quantized with a scale of its own, values
/// with one for each feature of a head, the weights of a query in steps of 1/255 of the largest:
///
///   s = float(sum of q8 k8) * sk * (sq * scale) + mask      x8 = round(x / sx), sx = max |x| / 127
///   p = round(255 exp(s - max s))
///   out = float(sum of p v8) * sv * (1 / sum of p)
///
/// Sums of codes are exact, softmax is in Float32: the same floats on every instruction set and for
/// any number of threads. Dropout, gradients and Float64 are refused; query, key and value have to be
/// finite, and there are at most 66311 keys.
///
/// Same as torch.nn.functional.scaled_dot_product_attention. Throws ArgumentError for sizes that do
/// not fit, UnsupportedError for other dtypes.
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& attn_mask = {},
                                    const AttentionOptions& options = {});

/// softmax(scale * Q K^T + mask), [..., L, S]: the weights themselves, step by step, with
/// gradients. `mask` is of query's dtype or undefined. A query that takes part in no key gives NaN.
Tensor attention_weights(const Tensor& query, const Tensor& key, const Tensor& mask, double scale);

/// A Bool mask as numbers of `dtype` to add: 0, and minus infinity where `mask` equals `left_out`.
/// A mask of `dtype` (Float32 or Float64, on a CUDA device also Float16 or BFloat16) is given back as
/// it is. `op` and `argument` stand in the errors for other dtypes.
Tensor additive_mask(std::string_view op, std::string_view argument, const Tensor& mask,
                     bool left_out, DType dtype = DType::Float32);

/// [queries, keys] numbers to add, 0 where query i takes part in key j <= i, else minus infinity.
/// `dtype` is Float32 or Float64.
Tensor causal_mask(std::int64_t queries, std::int64_t keys, DType dtype = DType::Float32);

}  // namespace quanta
