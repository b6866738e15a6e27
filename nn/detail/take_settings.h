#pragma once

// Private: what a module that is made from another one takes over besides the weights.

#include "quanta/nn/module.h"

namespace quanta::nn::detail {

/// QConfig (if there is one) and mode.
inline void take_settings(Module& to, const Module& from) {
  if (from.qconfig() != nullptr) to.set_qconfig(*from.qconfig());
  to.train(from.is_training());
}

}  // namespace quanta::nn::detail
