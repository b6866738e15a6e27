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
#include "quanta/ops/attention/cpu_int8.h"
#include "quanta/ops/attention/cuda_attention.h"
#include "quanta/ops/attention/gradient.h"
#include "quanta/ops/compare.h"
#include "quanta/ops/detail/cuda_floats.h"
#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/detail/families.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/ops/indexing.h"
#include "quanta/ops/reduce.h"
#include "quanta/ops/shape.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/operation.h"

namespace quanta {
namespace attention {
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

// What all tensors of a call with this query have to be.
DType dtype_of_call(const Tensor& query) {
  const bool is_taken =
      query.defined() && (query.dtype() == DType::Float64 || detail::is_float_of_cuda(query));
  return is_taken ? query.dtype() : DType::Float32;
}

void check(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
           const AttentionOptions& options) {
  const DType dtype = dtype_of_call(query);
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
  const DType products = options.attention_dtype;
  QUANTA_CHECK(products == DType::Float32 || products == DType::QInt8,
               "{}: attention_dtype: expected Float32 or QInt8, got {}", kOp, products);
  if (products == DType::QInt8) {
    QUANTA_SUPPORTED(dtype == DType::Float32,
                     "{}: query: expected Float32 with attention_dtype QInt8, got {}", kOp,
                     query.dtype());
    QUANTA_CHECK(options.dropout_p == 0.0,
                 "{}: dropout_p: expected 0 with attention_dtype QInt8, got {}", kOp,
                 options.dropout_p);
    QUANTA_SUPPORTED(key.size(-2) <= cpu::kMostInt8Keys,
                     "{}: key: expected at most {} rows with attention_dtype QInt8, got sizes {}",
                     kOp, cpu::kMostInt8Keys, key.sizes());
  }
  QUANTA_CHECK(!mask.defined() || !options.is_causal,
               "{}: is_causal: expected false together with attn_mask, got true", kOp);
  QUANTA_CHECK(!mask.defined() || mask.dtype() == dtype, "{}: attn_mask: expected {}, got {}", kOp,
               dtype, mask.dtype());
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

void check_mask(const Tensor& mask, const Dims& scores) {
  const Dims& own = mask.sizes();
  bool broadcasts = own.size() <= scores.size();
  for (std::size_t d = 0; broadcasts && d < own.size(); ++d) {
    broadcasts = own[d] == 1 || own[d] == scores[scores.size() - own.size() + d];
  }
  QUANTA_CHECK(broadcasts, "{}: attn_mask: expected sizes that broadcast to {}, got {}", kOp,
               scores, own);
}

// The mask of sizes [..., L, S] without copying what is broadcast, but for the keys, which the
// kernel reads one after the other.
Tensor expand_mask(const Tensor& mask, const Dims& scores) {
  Tensor dense = mask.dim() == 0 ? mask.unsqueeze(0) : mask;
  Dims own = dense.sizes();
  own[own.size() - 1] = scores.back();
  dense = dense.expand(own);
  if (dense.strides().back() != 1) dense = dense.contiguous();
  return dense.expand(scores);
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

// The strides of a dense result [batch..., rows, features] in the memory order of `query`, in which
// all leading dimensions but the last are one.
Dims result_strides(const Tensor& query, const Dims& batch, std::int64_t features) {
  const std::size_t count = batch.size();
  const Dims expanded = query.expand(with_last(batch, query.size(-2), query.size(-1))).strides();
  constexpr std::int64_t kOutermost = std::numeric_limits<std::int64_t>::max();
  std::array<std::int64_t, 3> sizes{1, count >= 1 ? batch[count - 1] : 1, query.size(-2)};
  for (std::size_t d = 0; d + 1 < count; ++d) sizes[0] *= batch[d];
  const std::array<std::int64_t, 3> given{count >= 2 ? expanded[count - 2] : kOutermost,
                                          count >= 1 ? expanded[count - 1] : kOutermost,
                                          expanded[count]};
  std::array<std::size_t, 3> order{0, 1, 2};
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return given[a] > given[b]; });
  std::array<std::int64_t, 3> strides{};
  std::int64_t step = features;
  for (std::size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = step;
    step *= sizes[order[i]];
  }
  Dims result = Dims::filled(count + 2, 1);
  result[count] = strides[2];
  if (count >= 1) result[count - 1] = strides[1];
  std::int64_t leading = strides[0];
  for (std::size_t d = count < 2 ? 0 : count - 1; d-- > 0;) {
    result[d] = leading;
    leading *= batch[d];
  }
  return result;
}

// A call's tensors as [batch, heads, rows, features], and where they lie; kept while a kernel works.
struct Heads {
  Tensor query, key, value, mask, out;
  cpu::AttentionShape shape;

  Heads(const Arguments& in, const Tensor& result, double scale, const AttentionOptions& options) {
    const Dims batch = batch_of(result);
    query = as_heads(in[0], batch);
    key = as_heads(in[1], batch);
    value = as_heads(in[2], batch);
    out = as_heads(result, batch);
    shape = {.batch = query.size(0),
             .heads = query.size(1),
             .queries = query.size(2),
             .keys = key.size(2),
             .features = query.size(3),
             .value_features = value.size(3),
             .query_strides = strides_of(query),
             .key_strides = strides_of(key),
             .value_strides = strides_of(value),
             .out_strides = strides_of(out),
             .mask_strides = {},
             .scale = static_cast<float>(scale),
             .causal = options.is_causal};
    if (!in[3].defined()) return;
    mask = as_heads(expand_mask(in[3], with_last(batch, in[0].size(-2), in[1].size(-2))), batch);
    shape.mask_strides = strides_of(mask);
  }

  cpu::AttentionProblem on_cpu() const {
    return {shape,
            query.data<float>(),
            key.data<float>(),
            value.data<float>(),
            out.mutable_data<float>(),
            mask.defined() ? mask.data<float>() : nullptr};
  }
  cuda::AttentionOperands on_cuda() const {
    return {.dtype = out.dtype(),
            .query = query.device_ptr(),
            .key = key.device_ptr(),
            .value = value.device_ptr(),
            .mask = mask.defined() ? mask.device_ptr() : nullptr,
            .out = out.device_ptr()};
  }
};

Dims batch_sizes(const Tensor& query, const Tensor& key, const Tensor& value) {
  const Dims batch = broadcast_sizes(batch_of(query), batch_of(key), kOp);
  return broadcast_sizes(batch, batch_of(value), kOp);
}

double scale_of(const AttentionOptions& options, std::int64_t features) {
  return options.scale.value_or(1.0 / std::sqrt(static_cast<double>(features)));
}

/// query, key, value and a mask of numbers to add, which may be undefined.
struct Attention final : Op<Attention> {
  static constexpr std::string_view kName = kOp;
  static constexpr ArgumentCount kArguments{4};
  AttentionOptions options;

  explicit Attention(const AttentionOptions& given) : options(given) {}

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& query = in[0];
    const Tensor& key = in[1];
    const Tensor& value = in[2];
    check(query, key, value, in[3], options);
    const Dims batch = batch_sizes(query, key, value);
    if (in[3].defined()) check_mask(in[3], with_last(batch, query.size(-2), key.size(-2)));
    out.add_like(query, with_last(batch, query.size(-2), value.size(-1)),
                 result_strides(query, batch, value.size(-1)));
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const Tensor& query = in[0];
    const Tensor& key = in[1];
    const double scale = scale_of(options, query.size(-1));
    if (query.dtype() == DType::Float64) {
      copy_result(matmul(weights_or_zeros(query, key, in[3], scale, options.is_causal), in[2]),
                  out[0]);
      return "steps";
    }
    if (key.size(-2) == 0) {
      out[0].fill_(0.0);
      return "zeros";
    }
    const Heads heads(in, out[0], scale, options);
    if (options.attention_dtype == DType::QInt8) return cpu::attention_int8(heads.on_cpu());
    cpu::attention(heads.on_cpu());
    return "simd";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    if (in[1].size(-2) == 0) {
      out[0].fill_(0.0);
      return "fill_items";
    }
    const Heads heads(in, out[0], scale_of(options, in[0].size(-1)), options);
    cuda::attention(out[0].device(), heads.shape, heads.on_cuda());
    return "attend_queries";
  }
  std::span<const DType> cuda_dtypes() const noexcept override {
    if (options.attention_dtype == DType::QInt8) return {};
    return detail::kCudaFloatDtypes;
  }

  OpWork work(const Arguments& in, std::span<const Tensor> out) const override {
    const std::int64_t scores =
        out[0].numel() / std::max<std::int64_t>(1, in[2].size(-1)) * in[1].size(-2);
    return {.multiply_adds = scores * (in[0].size(-1) + in[2].size(-1)),
            .bytes = static_cast<std::int64_t>(in[0].nbytes() + in[1].nbytes() + in[2].nbytes() +
                                               out[0].nbytes())};
  }

  // The weights are calculated again on the way back: they take more memory than all the inputs.
  GradientUse gradient_use(std::uint64_t) const override {
    return options.attention_dtype == DType::QInt8 ? GradientUse{} : GradientUse::of(0b1111);
  }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    return attention_gradients(context, scale_of(options, context.input_sizes(0).back()),
                               options.is_causal);
  }

  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        attribute<Attention, &Attention::options, &AttentionOptions::is_causal>("is_causal"),
        attribute<Attention, &Attention::options, &AttentionOptions::scale>("scale"),
        attribute<Attention, &Attention::options, &AttentionOptions::attention_dtype>(
            "attention_dtype")};
    return kTable;
  }
};

/// The same with dropout, op by op.
struct DropoutAttention final : ComposedOp<DropoutAttention> {
  static constexpr std::string_view kName = kOp;
  static constexpr ArgumentCount kArguments{4};
  AttentionOptions options;

  explicit DropoutAttention(const AttentionOptions& given) : options(given) {}

  std::vector<Tensor> compose(const Arguments& in) const override {
    check(in[0], in[1], in[2], in[3], options);
    if (in[3].defined()) {
      const Dims batch = batch_sizes(in[0], in[1], in[2]);
      check_mask(in[3], with_last(batch, in[0].size(-2), in[1].size(-2)));
    }
    const double scale = scale_of(options, in[0].size(-1));
    const Tensor weights = weights_or_zeros(detail::widened(in[0]), detail::widened(in[1]),
                                            detail::widened(in[3]), scale, options.is_causal);
    return {detail::narrowed(matmul(dropout(weights, options.dropout_p), detail::widened(in[2])),
                             in[0].dtype())};
  }
  static std::span<const AttributeInfo> attribute_table() {
    using Self = DropoutAttention;
    using Options = AttentionOptions;
    static constexpr std::array kTable{
        attribute<Self, &Self::options, &Options::dropout_p>("dropout_p"),
        attribute<Self, &Self::options, &Options::is_causal>("is_causal"),
        attribute<Self, &Self::options, &Options::scale>("scale")};
    return kTable;
  }
};

/// query, key and a mask of numbers to add, which may be undefined.
struct AttentionWeights final : ComposedOp<AttentionWeights> {
  static constexpr std::string_view kName = "attention_weights";
  static constexpr ArgumentCount kArguments{3};
  double scale;

  explicit AttentionWeights(double factor) : scale(factor) {}

  std::vector<Tensor> compose(const Arguments& in) const override {
    QUANTA_CHECK(in[0].defined() && in[1].defined(),
                 "{}: query: expected query and key, got an undefined tensor", kName);
    QUANTA_SUPPORTED(in[0].dtype() == dtype_of_call(in[0]),
                     "{}: query: expected Float32 or Float64 on the CPU, got {}", kName,
                     in[0].dtype());
    Tensor scores =
        matmul(mul_scalar(detail::widened(in[0]), scale), detail::widened(in[1]).transpose(-2, -1));
    if (in[2].defined()) scores = add(scores, detail::widened(in[2]));
    return {detail::narrowed(softmax(scores, -1), in[0].dtype())};
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kFloat; }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        attribute<AttentionWeights, &AttentionWeights::scale>("scale")};
    return kTable;
  }
};

/// Truth values as numbers to add.
struct AdditiveMask final : Op<AdditiveMask> {
  static constexpr std::string_view kName = "additive_mask";
  static constexpr ArgumentCount kArguments{1};
  bool left_out;
  DType dtype;

  AdditiveMask(bool value_left_out, DType result) : left_out(value_left_out), dtype(result) {}

  void infer(const Arguments& in, Results& out) const override {
    require_tensor(kName, "mask", in[0], {DType::Bool});
    const bool is_narrow = detail::is_float_of_16_bits(dtype) && in[0].device().is_cuda();
    QUANTA_SUPPORTED(dtype == DType::Float32 || dtype == DType::Float64 || is_narrow,
                     "{}: dtype: expected Float32 or Float64, got {}", kName, dtype);
    out.arrange(0, MemoryFormat::Contiguous);
    out.add(in[0].sizes(), dtype);
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const bool* from = in[0].data<bool>();
    detail::visit_floats(dtype, [&](auto zero) {
      using T = decltype(zero);
      std::transform(from, from + in[0].numel(), out[0].mutable_data<T>(), [&](bool value) {
        return value == left_out ? static_cast<T>(kMinusInfinity) : T{0};
      });
    });
    return "scalar";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    cuda::make_additive_mask(out[0].device(),
                             {.count = in[0].numel(),
                              .mask = reinterpret_cast<const bool*>(in[0].device_ptr()),
                              .dtype = dtype,
                              .out = out[0].device_ptr(),
                              .left_out = left_out});
    return "make_additive_mask";
  }
  std::span<const DType> cuda_dtypes() const noexcept override {
    if (dtype == DType::Float64) return {};
    return dtypes::kBool;
  }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::none(); }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<AdditiveMask, &AdditiveMask::left_out>("left_out"),
                                       attribute<AdditiveMask, &AdditiveMask::dtype>("dtype")};
    return kTable;
  }
};

/// The lower triangle, as numbers to add. It has no arguments, so a recording takes it for a
/// constant.
struct CausalMask final : Op<CausalMask> {
  static constexpr std::string_view kName = "causal_mask";
  static constexpr ArgumentCount kArguments{0};
  std::int64_t queries;
  std::int64_t keys;
  DType dtype;

  CausalMask(std::int64_t rows, std::int64_t columns, DType result)
      : queries(rows), keys(columns), dtype(result) {}

  void infer(const Arguments&, Results& out) const override { out.add({queries, keys}, dtype); }
  std::string_view cpu(const Arguments&, std::span<const Tensor> out) const override {
    detail::visit_floats(dtype, [&](auto zero) {
      using T = decltype(zero);
      T* row = out[0].mutable_data<T>();
      for (std::int64_t i = 0; i < queries; ++i, row += keys) {
        T* const hidden = row + std::min(i + 1, keys);
        std::fill(row, hidden, T{0});
        std::fill(hidden, row + keys, static_cast<T>(kMinusInfinity));
      }
    });
    return "scalar";
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<CausalMask, &CausalMask::queries>("queries"),
                                       attribute<CausalMask, &CausalMask::keys>("keys"),
                                       attribute<CausalMask, &CausalMask::dtype>("dtype")};
    return kTable;
  }
};

// causal_mask of the dtype and on the device of `like`.
Tensor causal_mask_like(const Tensor& like, std::int64_t queries, std::int64_t keys) {
  if (like.device().is_cpu()) return causal_mask(queries, keys, like.dtype());
  const Tensor hidden =
      Tensor::empty({queries, keys}, like.dtype(), MemoryFormat::Contiguous, like.device());
  hidden.fill_(kMinusInfinity);
  return triu(hidden, 1);
}

}  // namespace

Tensor weights_or_zeros(const Tensor& query, const Tensor& key, const Tensor& given, double scale,
                        bool is_causal) {
  const Tensor mask = is_causal ? causal_mask_like(query, query.size(-2), key.size(-2)) : given;
  const Tensor weights = attention_weights(query, key, mask, scale);
  if (!mask.defined() || weights.numel() == 0) return weights;
  // Of the mask as it is: what is broadcast need not be looked at again and again.
  const Tensor own = mask.dim() == 0 ? mask.detach().unsqueeze(0) : mask.detach();
  return masked_fill(weights, eq(max(own, -1, {.keepdim = true}).values, kMinusInfinity), 0.0);
}

}  // namespace attention

using namespace attention;

Tensor additive_mask(std::string_view op, std::string_view argument, const Tensor& mask,
                     bool left_out, DType dtype) {
  if (!mask.defined() || mask.dtype() == dtype) return mask;
  QUANTA_CHECK(mask.dtype() == DType::Bool, "{}: {}: expected Bool or {}, got {}", op, argument,
               dtype, mask.dtype());
  return run(AdditiveMask(left_out, dtype), mask);
}

Tensor causal_mask(std::int64_t queries, std::int64_t keys, DType dtype) {
  return run(CausalMask(queries, keys, dtype));
}

Tensor attention_weights(const Tensor& query, const Tensor& key, const Tensor& mask, double scale) {
  return run(AttentionWeights(scale), query, key, mask);
}

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& attn_mask, const AttentionOptions& options) {
  const Tensor mask = additive_mask(kOp, "attn_mask", attn_mask, false, dtype_of_call(query));
  return options.dropout_p == 0.0 ? run(Attention(options), query, key, value, mask)
                                  : run(DropoutAttention(options), query, key, value, mask);
}

void detail::add_attention(Catalogue& catalogue) {
  constexpr std::string_view kHeader = "quanta/ops/attention.h";
  catalogue.add({.name = Attention::kName, .header = kHeader, .dtypes = dtypes::kFloats},
                [](DType dtype) {
                  return sample_call(
                      Attention({}),
                      {sample_tensor({2, 2, 5, 4}, dtype), sample_tensor({2, 2, 3, 4}, dtype, 2),
                       sample_tensor({2, 2, 3, 6}, dtype, 3), sample_tensor({5, 3}, dtype, 4)});
                });
  catalogue.add({.name = AttentionWeights::kName, .header = kHeader, .dtypes = dtypes::kFloats},
                [](DType dtype) {
                  return sample_call(AttentionWeights(0.5),
                                     {sample_tensor({2, 5, 4}, dtype),
                                      sample_tensor({2, 3, 4}, dtype, 2), Tensor()});
                });
  catalogue.add(
      {.name = AdditiveMask::kName, .header = kHeader, .dtypes = dtypes::kBool}, [](DType dtype) {
        return sample_call(AdditiveMask(true, DType::Float32), {sample_tensor({5, 3}, dtype)});
      });
}

}  // namespace quanta
