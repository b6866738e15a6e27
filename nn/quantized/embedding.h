#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "quanta/nn/embedding.h"
#include "quanta/nn/quantized/module.h"
#include "quanta/nn/reference.h"
#include "quanta/ops/embedding.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

namespace quanta::nn::quantized {

/// Embedding with a table of 8 or 4 bits whose rows have a scale and a float zero point each:
/// indices (Int32 or Int64, any shape) to Float32 [...indices, embedding_dim]. (torch's module
/// takes 8 bits only.)
///
/// State under torch's name, `_packed_params._packed_weight`: the quantized table. A file decides
/// between 8 and 4 bits.
class Embedding : public Module {
 public:
  /// `weight` QUInt8 or QUInt4x2 [rows, columns] with float zero points along axis 0.
  explicit Embedding(const QTensor& weight);
  /// Takes an Embedding whose qconfig observes weights with float zero points (from
  /// float_qparams_weight_only_qconfig() or its 4-bit form). Needs no activation observer.
  static std::shared_ptr<Module> from_float(const Module& module);
  static std::shared_ptr<Module> from_reference(const reference::Embedding& module);

  QTensor weight() const { return packed_.unpack(); }
  /// Packs again. Throws ArgumentError for other sizes or dtypes.
  void set_weight(const QTensor& weight);
  const quanta::quantized::EmbeddingPackedParams& packed() const noexcept { return packed_; }

  Tensor forward(const Tensor& indices) const override;
  std::string type_name() const override { return "QuantizedEmbedding"; }
  std::string extra_repr() const override;

 protected:
  void save_state(StateDict& state, const std::string& prefix) const override;
  void load_state(StateReader& reader) override;

 private:
  quanta::quantized::EmbeddingPackedParams packed_;
};

/// EmbeddingBag on such a table; called as the float one. State as of Embedding.
///
/// Sums only: the kernels of torch add whatever the mode says, so that a converted bag of means
/// would give sums in silence. Constructor and from_float throw UnsupportedError for Mean and Max.
/// An index equal to padding_idx counts as nothing, as in the float module (torch adds its row).
class EmbeddingBag : public nn::EmbeddingBag {
 public:
  /// num_embeddings and embedding_dim are those of the weight, see Embedding.
  explicit EmbeddingBag(const QTensor& weight,
                        const EmbeddingBagOptions& options = {.mode = EmbeddingBagMode::Sum});
  static std::shared_ptr<Module> from_float(const Module& module);
  static std::shared_ptr<Module> from_reference(const reference::EmbeddingBag& module);

  /// The quantized table; the base's float `weight` is undefined.
  QTensor quantized_weight() const { return packed_.unpack(); }
  /// Packs again. Throws ArgumentError for other sizes or dtypes.
  void set_weight(const QTensor& weight);
  const quanta::quantized::EmbeddingPackedParams& packed() const noexcept { return packed_; }

  std::string type_name() const override { return "QuantizedEmbeddingBag"; }
  std::string extra_repr() const override;

 protected:
  Tensor run(const Tensor& indices, const Tensor& offsets,
             const Tensor& per_sample_weights) const override;
  void save_state(StateDict& state, const std::string& prefix) const override;
  void load_state(StateReader& reader) override;

 private:
  EmbeddingBag(quanta::quantized::EmbeddingPackedParams packed, const EmbeddingBagOptions& options);

  quanta::quantized::EmbeddingPackedParams packed_;
};

}  // namespace quanta::nn::quantized
