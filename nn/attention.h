#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "quanta/nn/linear.h"
#include "quanta/nn/module.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

namespace quanta::nn {

/// A Linear that quantize_dynamic leaves in float unless a spec names it or what it stands in: it
/// looks types up by their own name. The output projection of MultiheadAttention, as in torch.
class NonDynamicallyQuantizableLinear : public Linear {
 public:
  using Linear::Linear;
};

/// A module whose products of queries, keys and values may be int8: MultiheadAttention and the
/// attention of the models (nn/models).
class HasAttentionDtype {
 public:
  /// Float32 or QInt8 (ops/attention.h), in eval mode; while nobody calls the module. Throws
  /// ArgumentError for another dtype.
  virtual void set_attention_dtype(DType dtype) = 0;

 protected:
  HasAttentionDtype() = default;
  ~HasAttentionDtype() = default;
  HasAttentionDtype(const HasAttentionDtype&) = default;
  HasAttentionDtype(HasAttentionDtype&&) = default;
  HasAttentionDtype& operator=(const HasAttentionDtype&) = default;
  HasAttentionDtype& operator=(HasAttentionDtype&&) = default;
};

struct MultiheadAttentionOptions {
  std::int64_t embed_dim = 0;
  std::int64_t num_heads = 0;
  double dropout = 0.0;        ///< probability for attention weights, in train mode
  bool bias = true;            ///< whether the projections have biases
  bool add_bias_kv = false;    ///< one learned key and value more, bias_k and bias_v
  bool add_zero_attn = false;  ///< one key and value of zeros more
  std::int64_t kdim = 0;       ///< features of keys; 0: embed_dim
  std::int64_t vdim = 0;       ///< features of values; 0: embed_dim
  bool batch_first = false;  ///< inputs are [batch, steps, features], else [steps, batch, features]
  /// What the products of queries, keys and values are calculated in, in eval mode and where no
  /// weights are asked for: Float32, or QInt8 (ops/attention.h). torch has no such option.
  DType attention_dtype = DType::Float32;
};

/// Masks and wishes of one call. Masks are Bool, true for what is left out, or Float32 that is
/// added to the products.
struct AttentionCall {
  Tensor key_padding_mask{};  ///< [batch, keys]; unbatched: [keys]
  bool need_weights = true;
  Tensor attn_mask{};  ///< [queries, keys] or [batch * heads, queries, keys]
  bool average_attn_weights = true;
  /// Says that attn_mask, which has to be there, is the causal one; it may then be ignored.
  bool is_causal = false;
};

struct AttentionOutput {
  Tensor output;
  /// [batch, queries, keys], or [batch, heads, queries, keys] when not averaged; undefined when
  /// not asked for. Without the batch for unbatched inputs.
  Tensor weights{};
};

/// Attention of several heads: queries, keys and values are projected, each head attends on its
/// own share of the features, and out_proj joins them (Vaswani et al. 2017, section 3.2.2).
///
/// State: in_proj_weight [3 * embed_dim, embed_dim] (rows of queries, keys, values), or
/// q_proj_weight, k_proj_weight [embed_dim, kdim] and v_proj_weight when kdim or vdim differ;
/// in_proj_bias [3 * embed_dim]; bias_k, bias_v [1, 1, embed_dim]; out_proj.weight, out_proj.bias.
/// New: Xavier uniform weights, zero biases.
///
/// A query that takes part in no key gives NaN where weights are asked for, else the attention
/// part is zeros, as in torch. Calls with several inputs go to forward by name and run no forward
/// hooks:
///
///   auto [y, weights] = attention->forward(query, key, value, {.key_padding_mask = padding});
///   Tensor y = attention(x);  // self-attention, the output alone
class MultiheadAttention : public Module, public HasAttentionDtype {
 public:
  using Options = MultiheadAttentionOptions;
  /// Undefined where the module has the other form, or in derived classes with projections of
  /// their own.
  Tensor in_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight;
  Tensor in_proj_bias;
  Tensor bias_k, bias_v;
  Child<NonDynamicallyQuantizableLinear> out_proj;

  /// Throws ArgumentError for sizes < 1, an embed_dim that num_heads does not divide, and a dropout
  /// outside [0, 1].
  explicit MultiheadAttention(const MultiheadAttentionOptions& options);
  /// With kdim and vdim filled in.
  const MultiheadAttentionOptions& options() const noexcept { return options_; }
  /// Changes the option of that name.
  void set_attention_dtype(DType dtype) override;
  std::int64_t head_dim() const noexcept { return options_.embed_dim / options_.num_heads; }

  Tensor forward(const Tensor& x) const override;
  /// Inputs of 3 dimensions, or of 2 without the batch. Throws ArgumentError for sizes that do not
  /// fit each other or the module.
  AttentionOutput forward(const Tensor& query, const Tensor& key, const Tensor& value,
                          const AttentionCall& call = {}) const;
  std::string extra_repr() const override;

 protected:
  /// Without projections of its own, for the quantizable and quantized modules.
  struct NoProjections {};
  MultiheadAttention(const MultiheadAttentionOptions& options, NoProjections);

  struct Projected {
    Tensor query, key, value;       ///< Float32 [..., embed_dim]
    Tensor key_row{}, value_row{};  ///< one key and value more, embed_dim numbers; or undefined
    bool is_scaled = false;         ///< query holds the factor 1 / sqrt(head_dim) already
  };
  /// The three projections, of inputs in whichever order of batch and steps.
  virtual Projected project(const Tensor& query, const Tensor& key, const Tensor& value) const;
  /// Whether inputs may be per-tensor quantized ones as well as Float32.
  virtual bool takes_quantized() const { return false; }
  /// Whether finish_weights is to see the weights of every call, asked for or not.
  virtual bool watches_weights() const { return false; }
  /// Everything after the heads: `heads` is [batch, steps, embed_dim] (or steps first).
  virtual Tensor project_output(const Tensor& heads) const;
  /// What becomes of the weights of all heads before they are averaged and given back.
  virtual Tensor finish_weights(const Tensor& weights) const { return weights; }

 private:
  /// [batch, heads, steps, head_dim]
  struct Heads {
    Tensor query, key, value;
    double scale;
  };
  /// What one product gives.
  enum class Part : std::uint8_t { All, KeyValue, Query, Key, Value };
  static constexpr std::size_t kParts = 5;

  Tensor project_rows(Part part, const Tensor& x) const;
  Projected project_inputs(const Tensor& query, const Tensor& key, const Tensor& value) const;
  void check_input(std::string_view name, const Tensor& x, std::int64_t features) const;
  AttentionOutput run(const Tensor& query, const Tensor& key, const Tensor& value,
                      const AttentionCall& call) const;
  void extend_keys(const Projected& projected, Heads& heads, Tensor& padding, Tensor& mask) const;
  AttentionOutput attend(const Heads& heads, const Tensor& mask, const Tensor& padding,
                         const AttentionCall& call) const;

  MultiheadAttentionOptions options_;
  mutable std::array<detail::PackedCache<PackedLinear>, kParts> packed_;
};

/// set_attention_dtype for every module in `model` that has it, MultiheadAttention in any of its
/// forms among them; while nobody calls the model.
///
///   auto int8 = quantize_dynamic(net);          // the projections
///   nn::set_attention_dtype(int8, DType::QInt8);  // and the products between them
///
/// save_model keeps that of MultiheadAttention. The quantizable form of prepare observes weights and
/// calculates them in Float32 whatever it is. Throws ArgumentError, and changes nothing, for another
/// dtype and for a model without attention.
void set_attention_dtype(Module& model, DType dtype);

namespace detail {
/// Throws ArgumentError that names `op` for another dtype than Float32 and QInt8.
void check_attention_dtype(std::string_view op, DType dtype);
}  // namespace detail

}  // namespace quanta::nn
