#include "quanta/fusion/simulate.h"

#include <memory>
#include <string>

#include "quanta/fusion/prepare.h"
#include "quanta/observers/fake_quantize.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

using nn::Module;

// Calls body(path of the fake quantizer, fake quantizer) for all that are below.
template <typename Body>
void for_fake_quantizers(const Module& model, Body&& body) {
  for (const Module::NamedModule& entry : model.named_modules()) {
    for (const Module::NamedObserver& named : entry.module->named_observers()) {
      const std::string path =
          entry.path.empty() ? named.name : fmt::format("{}.{}", entry.path, named.name);
      auto* fake = dynamic_cast<FakeQuantizeBase*>(named.observer.get());
      QUANTA_CHECK(fake != nullptr,
                   "simulate_quantization: qconfigs: expected fake quantizers "
                   "(qconfig_for_format, get_default_qat_qconfig), got {} at '{}'",
                   named.observer->name(), path);
      body(path, *fake);
    }
  }
}

}  // namespace

void simulate_quantization_(Module& model, const QConfigMapping& qconfigs,
                            const Calibrate& calibrate, const ModuleMapping& mapping) {
  QUANTA_CHECK(calibrate, "simulate_quantization: calibrate: expected a function, got none");
  model.train();  // prepare_qat asks for it; nothing runs before eval()
  prepare_qat_(model, qconfigs, mapping);
  model.eval();
  const autograd::NoGradGuard no_grad;
  for_fake_quantizers(model, [](const std::string&, FakeQuantizeBase& fake) {
    fake.enable_observer();
    fake.disable_fake_quant();
  });
  calibrate(model);
  std::string missing;
  for_fake_quantizers(model, [&](const std::string& path, FakeQuantizeBase& fake) {
    if (!fake.has_data()) missing += (missing.empty() ? "" : ", ") + path;
    fake.disable_observer();
    fake.enable_fake_quant();
  });
  QUANTA_CHECK(missing.empty(),
               "simulate_quantization: calibrate: expected data for every fake quantizer (a module "
               "that is not used gets QConfig std::nullopt), got none at {}",
               missing);
}

}  // namespace quanta
