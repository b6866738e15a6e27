#include "quanta/nn/dynamic/module.h"

namespace quanta::nn::quantized::dynamic {

void set_reduce_range(Module& model, quanta::quantized::ReduceRange reduce_range) {
  for (const Module::NamedModule& entry : model.named_modules()) {
    if (auto* module = dynamic_cast<DynamicModule*>(entry.module)) {
      module->set_reduce_range(reduce_range);
    }
  }
}

}  // namespace quanta::nn::quantized::dynamic
