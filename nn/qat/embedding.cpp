#include "quanta/nn/qat/embedding.h"

#include "quanta/nn/detail/qat_from_float.h"
#include "quanta/runtime/check.h"

namespace quanta::nn::qat {
namespace {

const QConfig& checked(std::string_view op, const QConfig& qconfig) {
  constexpr std::string_view kHint =
      "use default_embedding_qat_qconfig or its 4-bit form, or a null QConfig to leave the module "
      "in float";
  QUANTA_CHECK(
      static_cast<bool>(qconfig.weight),
      "{}: qconfig.weight: expected a fake quantizer with float zero points ({}), got none", op,
      kHint);
  const std::shared_ptr<Observer> weight = qconfig.weight();
  QUANTA_CHECK(weight->qscheme() == QScheme::PerChannelAffineFloatQParams && weight->ch_axis() == 0,
               "{}: qconfig.weight: expected float zero points along axis 0 ({}), got {} {}", op,
               kHint, weight->name(), weight->qscheme());
  if (!qconfig.activation) return qconfig;
  const std::shared_ptr<Observer> activation = qconfig.activation();
  QUANTA_CHECK(activation->dtype() == DType::Float32,
               "{}: qconfig.activation: expected one that leaves results in Float32 ({}), got {} "
               "of {}",
               op, kHint, activation->name(), activation->dtype());
  return qconfig;
}

}  // namespace

Embedding::Embedding(const EmbeddingOptions& options, const QConfig& qconfig)
    : nn::Embedding(options), QatModule("qat.Embedding", checked("qat.Embedding", qconfig)) {}

std::shared_ptr<Module> Embedding::from_float(const Module& module) {
  return detail::share_layer<Embedding, nn::Embedding>("qat.Embedding.from_float", module, module);
}

std::shared_ptr<Module> Embedding::to_float() const {
  return detail::float_copy<nn::Embedding>(*this);
}

EmbeddingBag::EmbeddingBag(const EmbeddingBagOptions& options, const QConfig& qconfig)
    : nn::EmbeddingBag(options),
      QatModule("qat.EmbeddingBag", checked("qat.EmbeddingBag", qconfig)) {}

std::shared_ptr<Module> EmbeddingBag::from_float(const Module& module) {
  return detail::share_layer<EmbeddingBag, nn::EmbeddingBag>("qat.EmbeddingBag.from_float", module,
                                                             module);
}

std::shared_ptr<Module> EmbeddingBag::to_float() const {
  return detail::float_copy<nn::EmbeddingBag>(*this);
}

}  // namespace quanta::nn::qat
