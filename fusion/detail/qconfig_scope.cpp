#include "quanta/fusion/detail/qconfig_scope.h"

#include <utility>

namespace quanta {

using nn::Module;

QConfigScope::QConfigScope(const Module& root) {
  for (const Module::NamedModule& entry : root.named_modules()) {
    Before before{.module = entry.module, .is_set = entry.module->has_qconfig_attribute()};
    if (entry.module->qconfig() != nullptr) before.qconfig = *entry.module->qconfig();
    before_.push_back(std::move(before));
  }
}

QConfigScope::~QConfigScope() {
  for (Before& before : before_) {
    if (before.is_set) {
      before.module->set_qconfig(std::move(before.qconfig));
    } else {
      before.module->clear_qconfig();
    }
  }
}

}  // namespace quanta
