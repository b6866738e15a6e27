#pragma once

// Modules as prepare leaves them, for the tests of from_float.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "quanta/nn/module.h"
#include "quanta/observers/min_max_observer.h"
#include "quanta/observers/qconfig.h"
#include "quanta/runtime/tensor.h"

namespace quanta::test {

/// Attaches a QConfig and a QUInt8 min/max observer that saw `seen`.
inline void observe(nn::Module& module, const Tensor& seen,
                    const QConfig& qconfig = default_qconfig()) {
  module.set_qconfig(qconfig);
  auto observer = std::make_shared<MinMaxObserver>();
  observer->forward(seen);
  module.set_activation_post_process(std::move(observer));
}

inline std::vector<std::string> names(const StateDict& state) {
  std::vector<std::string> result;
  for (const auto& [name, value] : state) result.push_back(name);
  return result;
}

}  // namespace quanta::test
