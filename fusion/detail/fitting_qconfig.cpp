#include "quanta/fusion/detail/fitting_qconfig.h"

#include <memory>

#include "quanta/nn/activation.h"
#include "quanta/nn/embedding.h"
#include "quanta/nn/module_forms.h"
#include "quanta/observers/defaults.h"
#include "quanta/observers/fake_quantize.h"
#include "quanta/observers/min_max_observer.h"

namespace quanta {
namespace {

// Slopes for QUInt8 codes. The slope 1 of positive values is such a code as well, so that the range
// has to hold it.
ObserverFactory slope_observer() {
  return {"MinMaxObserver(seen=1.0)", [] {
            auto observer = std::make_shared<MinMaxObserver>();
            observer->forward(Tensor::ones({1}));
            return observer;
          }};
}

std::optional<QConfig> fit_embedding(const nn::Module& module, bool is_trained) {
  const auto* bag = dynamic_cast<const nn::EmbeddingBag*>(&module);
  if (bag != nullptr && bag->options().mode != nn::EmbeddingBagMode::Sum) return std::nullopt;
  return is_trained ? default_embedding_qat_qconfig() : float_qparams_weight_only_qconfig();
}

}  // namespace

std::optional<QConfig> fitting_qconfig(const nn::Module& module, const QConfig& inherited) {
  if (!inherited.weight) return inherited;
  const std::shared_ptr<Observer> weight = inherited.weight();
  // Of 8 bits: others (Float16, none) say what they want of every module.
  if (weight->dtype() != DType::QInt8) return inherited;
  const bool is_trained = dynamic_cast<const FakeQuantizeBase*>(weight.get()) != nullptr;
  QConfig result = inherited;
  if (nn::module_forms().kind(module).per_tensor_weight && is_per_channel(weight->qscheme())) {
    result.weight = is_trained ? default_weight_fake_quant() : default_weight_observer();
  } else if (dynamic_cast<const nn::Embedding*>(&module) != nullptr ||
             dynamic_cast<const nn::EmbeddingBag*>(&module) != nullptr) {
    return fit_embedding(module, is_trained);
  } else if (dynamic_cast<const nn::PReLU*>(&module) != nullptr) {
    result.weight = slope_observer();
  }
  return result;
}

}  // namespace quanta
