#include "quanta/fusion/accuracy/detail/rounded_activations.h"

#include <memory>
#include <string>

#include "quanta/fusion/prepare.h"
#include "quanta/nn/module_forms.h"
#include "quanta/observers/fake_quantize.h"
#include "quanta/observers/given_qparams_observer.h"
#include "quanta/runtime/check.h"

namespace quanta::accuracy {

RoundedActivations::RoundedActivations(nn::Module& model, nn::Module& reference,
                                       const QConfigMapping& qconfigs, const Calibrate& run) {
  // Custom modules (LSTM, attention) are left whole: their parts have no places in `model`.
  prepare_(reference, qconfigs, default_static_quant_module_mappings(), CustomModuleMapping());
  run(reference);
  for (const nn::Module::NamedModule& entry : reference.named_modules()) {
    const std::shared_ptr<Observer>& observer = entry.module->activation_post_process();
    if (observer == nullptr || observer->is_dynamic() || !observer->has_data()) continue;
    if (observer->dtype() != DType::QUInt8 && observer->dtype() != DType::QInt8) continue;
    nn::Module& module = entry.path.empty() ? model : *model.get_submodule(entry.path);
    QUANTA_CHECK(module.activation_post_process() == nullptr,
                 "quantize_activations: model: expected a float network, got an observer on '{}'",
                 entry.path);
    const bool shows_itself = nn::module_forms().kind(module).observe == nn::Observe::Calls;
    module.set_activation_post_process(
        FakeQuantize::with_args(given_qparams_of(*observer))(),
        shows_itself ? nn::Module::Observation::Explicit : nn::Module::Observation::Output);
    modules_.push_back(&module);
  }
}

RoundedActivations::~RoundedActivations() {
  for (nn::Module* module : modules_) module->set_activation_post_process(nullptr);
}

}  // namespace quanta::accuracy
