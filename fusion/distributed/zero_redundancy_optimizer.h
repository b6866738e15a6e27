#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "quanta/fusion/distributed/communicator.h"
#include "quanta/nn/optim/optimizer.h"
#include "quanta/runtime/state_dict.h"

namespace quanta::distributed {

/// An optimizer whose state is divided among the ranks (ZeRO, stage 1; Rajbhandari et al. 2020): each
/// keeps momentum and the like for its share of the parameters alone, changes those, and gets the others
/// from their owners. The parameters are those that the plain optimizer gives, to the last bit:
///
///   optim::AdamW adam(net.parameters(), {.lr = 1e-3});
///   distributed::ZeroRedundancyOptimizer optimizer(adam, comm);
///   optim::OneCycleLR schedule(adam, {...});          // learning rates are the optimizer's
///   ...
///   adam.zero_grad(); parallel.backward(loss, n); optimizer.step(); schedule.step();
///
/// All ranks call it together, with the same parameters and gradients, as DataParallel makes them. For
/// one thread a rank. The optimizer has to outlive it, and is not to be stepped by itself meanwhile;
/// nor does it get more parameters.
class ZeroRedundancyOptimizer {
 public:
  /// Divides the parameters, whole ones, into shares of about the same size. State that the optimizer
  /// has stays where it belongs to the rank's share, and is dropped elsewhere. Throws ArgumentError
  /// where the parameters' sizes differ between ranks.
  ZeroRedundancyOptimizer(optim::Optimizer& optimizer, const Communicator& comm);

  /// Changes the own share, then all ranks have all parameters.
  void step();
  void zero_grad() { optimizer_.zero_grad(); }

  /// The whole state, as the plain optimizer has it, on rank 0; nothing on the others.
  StateDict state_dict() const;
  /// Takes a whole state, which all ranks have, from however many ranks it comes. Throws ArgumentError
  /// as Optimizer does; then nothing was changed.
  void load_state_dict(const StateDict& state);

  /// Which rank keeps the state of each parameter, in the optimizer's order.
  const std::vector<int>& owners() const noexcept { return owners_; }
  /// What this rank keeps besides the parameters.
  std::size_t state_bytes() const;
  optim::Optimizer& optimizer() const noexcept { return optimizer_; }

 private:
  bool is_mine(const std::string& name) const;
  StateDict own_part(const StateDict& state) const;

  optim::Optimizer& optimizer_;
  Communicator comm_;
  std::vector<Tensor> parameters_;
  std::vector<int> owners_;
};

}  // namespace quanta::distributed
