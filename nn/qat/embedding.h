#pragma once

#include <memory>
#include <string>
#include <vector>

#include "quanta/nn/embedding.h"
#include "quanta/nn/qat/module.h"

// Constructors and calls throw ArgumentError for what does not fit. While a module is trained one
// thread at a time may call it; in eval mode with observers switched off many may (see
// nn/module.h).

namespace quanta::nn::qat {

// Rows of the fake-quantized table. The weight's fake quantizer has to have float zero points, one
// a row, and what comes out stays float: default_embedding_qat_qconfig() or its 4-bit form.
// from_float takes the float module with such a qconfig; the table is shared with it. Constructors
// and from_float throw ArgumentError for another qconfig.

class Embedding : public nn::Embedding, public QatModule {
 public:
  Embedding(const EmbeddingOptions& options, const QConfig& qconfig);
  static std::shared_ptr<Module> from_float(const Module& module);
  std::shared_ptr<Module> to_float() const override;
  std::string type_name() const override { return "Embedding"; }

 protected:
  Tensor lookup_table() const override { return fake_quantized(weight); }
  std::vector<NamedObserver> own_observers() const override { return weight_observers(); }
};

/// Trains with every mode; only sums can be converted (see quantized::EmbeddingBag).
class EmbeddingBag : public nn::EmbeddingBag, public QatModule {
 public:
  EmbeddingBag(const EmbeddingBagOptions& options, const QConfig& qconfig);
  static std::shared_ptr<Module> from_float(const Module& module);
  std::shared_ptr<Module> to_float() const override;
  std::string type_name() const override { return "EmbeddingBag"; }

 protected:
  Tensor lookup_table() const override { return fake_quantized(weight); }
  std::vector<NamedObserver> own_observers() const override { return weight_observers(); }
};

}  // namespace quanta::nn::qat
