#pragma once

// Private: QConfigs that are only lent to the modules of a tree.

#include <optional>
#include <vector>

#include "quanta/nn/module.h"

namespace quanta {

/// Notes the QConfigs of a module and all below; when it goes each has its own again, or none,
/// unless keep() was called.
class QConfigScope {
 public:
  explicit QConfigScope(const nn::Module& root);
  QConfigScope(const QConfigScope&) = delete;
  QConfigScope& operator=(const QConfigScope&) = delete;
  ~QConfigScope();
  /// The QConfigs stay as they are by now.
  void keep() noexcept { before_.clear(); }

 private:
  struct Before {
    nn::Module* module;
    bool is_set;
    std::optional<QConfig> qconfig{};
  };
  std::vector<Before> before_;
};

}  // namespace quanta
