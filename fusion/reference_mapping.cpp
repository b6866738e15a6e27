#include <memory>
#include <typeinfo>

#include "quanta/fusion/mapping.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/embedding.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/quantized/stubs.h"
#include "quanta/nn/reference.h"
#include "quanta/nn/stubs.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

// A reference module with the parameters that the qconfig's weight observer finds.
template <typename Reference, typename Float>
std::shared_ptr<nn::Module> from_float(const nn::Module& module) {
  const auto& source = dynamic_cast<const Float&>(module);
  const QConfig* qconfig = module.qconfig();
  QUANTA_CHECK(qconfig != nullptr && qconfig->weight,
               "reference.from_float: module: expected a {} with a qconfig for weights, got none",
               module.type_name());
  const std::shared_ptr<Observer> observer = qconfig->weight();
  observer->forward(source.weight);
  return Reference::from_float(source, nn::reference::WeightQParams::from_observer(*observer));
}

ModuleMapping make_mapping() {
  namespace r = nn::reference;
  ModuleMapping mapping;
  mapping.add<nn::QuantStub>(&nn::quantized::Quantize::from_float)
      .add<nn::DeQuantStub>(&nn::quantized::DeQuantize::from_float)
      .add<nn::Linear>(&from_float<r::Linear, nn::Linear>)
      .add<nn::Conv1d>(&from_float<r::Conv1d, nn::Conv1d>)
      .add<nn::Conv2d>(&from_float<r::Conv2d, nn::Conv2d>)
      .add<nn::Conv3d>(&from_float<r::Conv3d, nn::Conv3d>)
      .add<nn::ConvTranspose1d>(&from_float<r::ConvTranspose1d, nn::ConvTranspose1d>)
      .add<nn::ConvTranspose2d>(&from_float<r::ConvTranspose2d, nn::ConvTranspose2d>)
      .add<nn::ConvTranspose3d>(&from_float<r::ConvTranspose3d, nn::ConvTranspose3d>)
      .add<nn::Embedding>(&from_float<r::Embedding, nn::Embedding>)
      .add<nn::EmbeddingBag>(&from_float<r::EmbeddingBag, nn::EmbeddingBag>);
  return mapping;
}

}  // namespace

const ModuleMapping& default_static_quant_reference_module_mappings() {
  static const ModuleMapping mapping = make_mapping();
  return mapping;
}

}  // namespace quanta
