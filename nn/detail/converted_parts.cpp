#include "quanta/nn/detail/converted_parts.h"

#include <typeinfo>

#include "quanta/nn/float_functional.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/stubs.h"
#include "quanta/runtime/check.h"

namespace quanta::nn::detail {
namespace {

bool is_float_part(const Module& module) {
  return dynamic_cast<const Linear*>(&module) != nullptr ||
         dynamic_cast<const QuantStub*>(&module) != nullptr ||
         dynamic_cast<const DeQuantStub*>(&module) != nullptr ||
         typeid(module) == typeid(FloatFunctional);
}

}  // namespace

void finish_converted(std::string_view op, Module& module) {
  for (const Module::NamedModule& part : module.named_modules()) {
    QUANTA_CHECK(!is_float_part(*part.module),
                 "{}: module: expected one whose parts are converted (convert does that to the "
                 "model), got {} '{}'",
                 op, part.module->type_name(), part.path);
    part.module->clear_qconfig();
    part.module->set_activation_post_process(nullptr);
  }
  module.clear_pre_hooks();
  module.clear_forward_hooks();
}

}  // namespace quanta::nn::detail
