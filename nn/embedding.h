#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "quanta/nn/module.h"
#include "quanta/ops/embedding.h"

// Constructors and calls throw ArgumentError for what does not fit. A module in eval mode may be
// called from many threads at once (see nn/module.h).

namespace quanta::nn {

struct EmbeddingOptions {
  std::int64_t num_embeddings = 0;
  std::int64_t embedding_dim = 0;
  /// A row that starts as zeros; negative numbers count from the end.
  std::optional<std::int64_t> padding_idx{};
};

/// A table of Float32 rows: indices (Int32 or Int64, any shape) to [...indices, embedding_dim]. A
/// new table is standard normal, from default_generator().
class Embedding : public Module {
 public:
  using Options = EmbeddingOptions;
  /// [num_embeddings, embedding_dim]
  Tensor weight;

  /// Throws ArgumentError for sizes < 1 or a padding_idx outside of the table.
  explicit Embedding(const EmbeddingOptions& options);
  explicit Embedding(std::int64_t num_embeddings, std::int64_t embedding_dim,
                     std::optional<std::int64_t> padding_idx = {})
      : Embedding(EmbeddingOptions{num_embeddings, embedding_dim, padding_idx}) {}
  /// With padding_idx counted from the front.
  const EmbeddingOptions& options() const noexcept { return options_; }

  /// Throws ArgumentError for an index outside of the table.
  Tensor forward(const Tensor& indices) const override;
  std::string extra_repr() const override;

 protected:
  /// Where rows are taken from: the weight, or what a derived class makes of it.
  virtual Tensor lookup_table() const { return weight; }

 private:
  EmbeddingOptions options_;
};

using EmbeddingBagMode = quanta::quantized::EmbeddingBagMode;

struct EmbeddingBagOptions {
  std::int64_t num_embeddings = 0;
  std::int64_t embedding_dim = 0;
  EmbeddingBagMode mode = EmbeddingBagMode::Mean;
  bool include_last_offset = false;  ///< the last offset only ends the last bag
  /// A row that starts as zeros and that no bag counts; negative numbers count from the end.
  std::optional<std::int64_t> padding_idx{};
};

/// The sum, mean or maximum of the rows of each bag: Float32 [bags, embedding_dim], zeros for an
/// empty bag.
///
/// 2-d indices hold a bag in each row, `bag(indices)`. 1-d indices need offsets, where each bag
/// starts (first 0, not falling): `bag->forward(indices, offsets)`. Like ConvAdd2d, such a call is
/// observed as any other, but forward hooks, which know one input only, do not run. After convert
/// a quantized::EmbeddingBag, which is an EmbeddingBag too, stands in the slot.
class EmbeddingBag : public Module {
 public:
  using Options = EmbeddingBagOptions;
  /// [num_embeddings, embedding_dim]; undefined in a quantized::EmbeddingBag.
  Tensor weight;

  /// Throws ArgumentError as Embedding does.
  explicit EmbeddingBag(const EmbeddingBagOptions& options);
  explicit EmbeddingBag(std::int64_t num_embeddings, std::int64_t embedding_dim,
                        EmbeddingBagMode mode = EmbeddingBagMode::Mean)
      : EmbeddingBag(EmbeddingBagOptions{num_embeddings, embedding_dim, mode}) {}
  /// With padding_idx counted from the front.
  const EmbeddingBagOptions& options() const noexcept { return options_; }

  Tensor forward(const Tensor& indices) const override { return run(indices, {}, {}); }
  /// `per_sample_weights` (Float32, one for each index) multiply the rows; mode Sum only. Throws
  /// ArgumentError for an index outside of the table and for offsets that do not fit.
  Tensor forward(const Tensor& indices, const Tensor& offsets,
                 const Tensor& per_sample_weights = {}) const;
  std::string extra_repr() const override;

 protected:
  /// Without a float table, for the quantized module.
  struct NoTable {};
  EmbeddingBag(const EmbeddingBagOptions& options, NoTable);
  /// The table that is looked up in, as for Embedding.
  virtual Tensor lookup_table() const { return weight; }
  virtual Tensor run(const Tensor& indices, const Tensor& offsets,
                     const Tensor& per_sample_weights) const;

 private:
  EmbeddingBagOptions options_;
};

}  // namespace quanta::nn
