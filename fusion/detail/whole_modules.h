#pragma once

// Private: modules that the workflow takes as one.

#include "quanta/nn/intrinsic/fused.h"
#include "quanta/nn/module.h"
#include "quanta/nn/qat/module.h"

namespace quanta {

inline bool is_fused(const nn::Module& module) {
  return dynamic_cast<const nn::intrinsic::FusedModule*>(&module) != nullptr;
}

/// Whether prepare and convert do not look inside: the parts of a fused or qat module are its own
/// business.
inline bool is_whole(const nn::Module& module) {
  return is_fused(module) || dynamic_cast<const nn::qat::QatModule*>(&module) != nullptr;
}

}  // namespace quanta
