#include "quanta/nn/stubs.h"

#include "quanta/runtime/check.h"

namespace quanta::nn {

QuantWrapper::QuantWrapper(std::shared_ptr<Module> wrapped) {
  QUANTA_CHECK(wrapped != nullptr, "QuantWrapper: module: expected a module, got null");
  register_module("quant", quant);
  register_module("dequant", dequant);
  register_slot("module", module);
  const bool training = wrapped->is_training();
  if (const QConfig* qconfig = wrapped->qconfig()) {
    quant->set_qconfig(*qconfig);
    dequant->set_qconfig(*qconfig);
  }
  replace_child("module", std::move(wrapped));
  train(training);
}

}  // namespace quanta::nn
