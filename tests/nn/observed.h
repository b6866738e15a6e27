#pragma once

// Modules as prepare leaves them, for the tests of from_float.

#include <memory>
#include <utility>

#include "quanta/nn/module.h"
#include "quanta/observers/min_max_observer.h"
#include "quanta/observers/qconfig.h"
#include "quanta/runtime/tensor.h"
#include "support/modules.h"

namespace quanta::test {

/// Attaches a QConfig and a QUInt8 min/max observer that saw `seen`.
inline void observe(nn::Module& module, const Tensor& seen,
                    const QConfig& qconfig = default_qconfig()) {
  module.set_qconfig(qconfig);
  auto observer = std::make_shared<MinMaxObserver>();
  observer->forward(seen);
  module.set_activation_post_process(std::move(observer));
}

}  // namespace quanta::test
