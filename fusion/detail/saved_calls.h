#pragma once

// Private: the ForwardCalls of a model in save_model's files.
//
//   quanta.calls  {"": {"calls": [{"name": "add", "results": ["quint8"]},
//                                 {"name": "net.layer3", "module": "layer3", "results": ["quint8"]}]}}
//
// By the path of the module in whose forward the calls stand. A module that is called has its path in
// the model that is saved beside the name of the call. Each result has the dtype of its codes,
// "observed" while it is observed, or "" when it stays float. A list that is observed has
// "observed": true, and "complete": true when it notes no new calls; a call that gave infinite values
// "infinite": true. Scales, zero points and what observers saw are in the state, under call_0 and so
// on.

#include <string>
#include <vector>

#include "quanta/nn/module.h"
#include "quanta/runtime/detail/json.h"

namespace quanta {

/// An object that is empty for a model without such calls.
detail::Json describe_calls(const nn::Module& model);

/// Puts calls in place, and undoes it when it goes, unless keep() was called.
class RestoredCalls {
 public:
  RestoredCalls() = default;
  RestoredCalls(const RestoredCalls&) = delete;
  RestoredCalls& operator=(const RestoredCalls&) = delete;
  ~RestoredCalls();

  /// Throws FileError for what describe_calls does not write, and for scales that `state` does not
  /// have; ArgumentError for a path that the model does not have and for observed calls of a module
  /// without a QConfig.
  void put(nn::Module& model, const detail::Json& calls, const StateDict& state,
           const std::string& where);
  void keep() noexcept { before_.clear(); }

 private:
  struct Before {
    nn::Module* module;
    std::shared_ptr<nn::ForwardCalls> calls;
    std::string float_call_name;
  };
  void note(nn::Module& module);
  std::vector<Before> before_;
};

}  // namespace quanta
