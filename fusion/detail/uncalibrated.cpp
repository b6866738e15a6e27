#include "quanta/fusion/detail/uncalibrated.h"

#include "quanta/observers/other_observers.h"

namespace quanta {

std::shared_ptr<nn::Module> from_uncalibrated(const std::shared_ptr<nn::Module>& module,
                                              const FromFloat& from_float, DType dtype,
                                              const ObserverFactory& weight_observer) {
  const std::shared_ptr<nn::Module> observed = module->clone();
  const ObserverFactory unit =
      FixedQParamsObserver::with_args({.scale = 1.0, .zero_point = 0, .dtype = dtype});
  observed->set_qconfig(QConfig{unit, weight_observer});
  observed->set_activation_post_process(unit(), nn::Module::Observation::Explicit);
  return from_float(*observed);
}

}  // namespace quanta
