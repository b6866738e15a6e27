#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "quanta/nn/attention.h"
#include "quanta/nn/container.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/misc.h"
#include "quanta/nn/norm.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

namespace quanta::nn {

enum class TransformerActivation : std::uint8_t { ReLU, GELU };

struct TransformerLayerOptions {
  std::int64_t d_model = 0;
  std::int64_t nhead = 0;
  std::int64_t dim_feedforward = 2048;
  double dropout = 0.1;
  TransformerActivation activation = TransformerActivation::ReLU;
  /// Takes the place of `activation` when it is set.
  std::function<Tensor(const Tensor&)> activation_function{};
  double layer_norm_eps = 1e-5;
  bool batch_first = false;  ///< x is [batch, steps, features], else [steps, batch, features]
  bool norm_first = false;   ///< norms before attention and feed-forward instead of after the sums
  bool bias = true;
};

// Masks are MultiheadAttention's: Bool, true for what is left out, or Float32 that is added.

struct EncoderMasks {
  Tensor src_mask{};              ///< [steps, steps] or [batch * heads, steps, steps]
  Tensor src_key_padding_mask{};  ///< [batch, steps]
  bool is_causal = false;         ///< says that src_mask is the causal one
};

struct DecoderMasks {
  Tensor tgt_mask{};
  Tensor memory_mask{};
  Tensor tgt_key_padding_mask{};
  Tensor memory_key_padding_mask{};
  bool tgt_is_causal = false;
  bool memory_is_causal = false;
};

/// x = norm1(x + self_attn(x)); x = norm2(x + linear2(activation(linear1(x)))), with dropouts in
/// train mode. State names are torch's. Calls with masks go to forward by name.
class TransformerEncoderLayer : public Module {
 public:
  using Options = TransformerLayerOptions;
  Child<MultiheadAttention> self_attn;
  Child<Linear> linear1;
  Child<Dropout> dropout;
  Child<Linear> linear2;
  Child<LayerNorm> norm1, norm2;
  Child<Dropout> dropout1, dropout2;

  /// Throws ArgumentError as its parts do.
  explicit TransformerEncoderLayer(const TransformerLayerOptions& options);
  const TransformerLayerOptions& options() const noexcept { return options_; }

  Tensor forward(const Tensor& src) const override { return forward(src, EncoderMasks{}); }
  Tensor forward(const Tensor& src, const EncoderMasks& masks) const;

 private:
  TransformerLayerOptions options_;
};

/// `num_layers` copies of a layer, one after the other, and a norm if one is given.
class TransformerEncoder : public Module {
 public:
  Child<ModuleList> layers;
  /// Empty if there is none.
  Child<LayerNorm> norm;

  /// Throws ArgumentError for num_layers < 1.
  TransformerEncoder(const TransformerEncoderLayer& layer, std::int64_t num_layers);
  TransformerEncoder(const TransformerEncoderLayer& layer, std::int64_t num_layers,
                     const LayerNormOptions& norm_options);

  Tensor forward(const Tensor& src) const override { return forward(src, EncoderMasks{}); }
  Tensor forward(const Tensor& src, const EncoderMasks& masks) const;
};

/// Self-attention, attention to the encoder's output (`memory`), feed-forward, each with sum and
/// norm as in the encoder layer. Called by forward(tgt, memory); a call with one tensor throws
/// ArgumentError.
class TransformerDecoderLayer : public Module {
 public:
  using Options = TransformerLayerOptions;
  Child<MultiheadAttention> self_attn, multihead_attn;
  Child<Linear> linear1;
  Child<Dropout> dropout;
  Child<Linear> linear2;
  Child<LayerNorm> norm1, norm2, norm3;
  Child<Dropout> dropout1, dropout2, dropout3;

  explicit TransformerDecoderLayer(const TransformerLayerOptions& options);
  const TransformerLayerOptions& options() const noexcept { return options_; }

  Tensor forward(const Tensor& tgt) const override;
  Tensor forward(const Tensor& tgt, const Tensor& memory, const DecoderMasks& masks = {}) const;

 private:
  TransformerLayerOptions options_;
};

/// A stack of decoder layers, with the rules of TransformerEncoder.
class TransformerDecoder : public Module {
 public:
  Child<ModuleList> layers;
  Child<LayerNorm> norm;

  TransformerDecoder(const TransformerDecoderLayer& layer, std::int64_t num_layers);
  TransformerDecoder(const TransformerDecoderLayer& layer, std::int64_t num_layers,
                     const LayerNormOptions& norm_options);

  Tensor forward(const Tensor& tgt) const override;
  Tensor forward(const Tensor& tgt, const Tensor& memory, const DecoderMasks& masks = {}) const;
};

/// Float32 [size, size]: minus infinity above the diagonal, 0 elsewhere.
Tensor generate_square_subsequent_mask(std::int64_t size);

}  // namespace quanta::nn
