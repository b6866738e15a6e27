#pragma once

// Private: looking at calls of modules, for as long as somebody wants to.

#include <functional>
#include <utility>
#include <vector>

#include "quanta/nn/module.h"

namespace quanta {

/// Hooks on modules, which have to outlive this object; it takes them off again. They change nothing
/// of what passes.
class ModuleHooks {
 public:
  using See = std::function<void(const Tensor& input, const Tensor& output)>;
  using SeeBefore = std::function<void(const Tensor& input)>;

  ModuleHooks() = default;
  ModuleHooks(const ModuleHooks&) = delete;
  ModuleHooks& operator=(const ModuleHooks&) = delete;
  ~ModuleHooks() {
    for (const auto& [module, hook] : hooks_) module->remove_hook(hook);
  }

  /// Calls `see` after each call of the module with its first input and result.
  void watch(nn::Module& module, See see) {
    hooks_.emplace_back(&module, module.register_forward_hook(
                                     [see = std::move(see)](const nn::Module&, const Tensor& input,
                                                            const Tensor& output) {
                                       see(input, output);
                                       return output;
                                     }));
  }
  /// Calls `see` before each call.
  void watch_before(nn::Module& module, SeeBefore see) {
    hooks_.emplace_back(&module,
                        module.register_forward_pre_hook(
                            [see = std::move(see)](const nn::Module&, const Tensor& input) {
                              see(input);
                              return input;
                            }));
  }

 private:
  std::vector<std::pair<nn::Module*, nn::Module::HookId>> hooks_;
};

}  // namespace quanta
