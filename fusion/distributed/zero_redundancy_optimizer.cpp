#include "quanta/fusion/distributed/zero_redundancy_optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "quanta/fusion/distributed/detail/same_on_all.h"
#include "quanta/nn/optim/detail/training_parts.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"

namespace quanta::distributed {
namespace {

constexpr const char* kPlace = "ZeroRedundancyOptimizer";

// The largest first, each to the rank that has the least.
std::vector<int> share_out(const std::vector<Tensor>& parameters, int ranks) {
  std::vector<std::size_t> order(parameters.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater(),
                           [&](std::size_t i) { return parameters[i].numel(); });
  std::vector<std::int64_t> load(static_cast<std::size_t>(ranks));
  std::vector<int> owners(parameters.size());
  for (const std::size_t i : order) {
    const auto least = std::ranges::min_element(load);
    owners[i] = static_cast<int>(least - load.begin());
    *least += parameters[i].numel();
  }
  return owners;
}

// The parameter whose state this is (`3.momentum_buffer`), or -1: `step`, `lr.0`.
std::int64_t number_in(const std::string& name) {
  std::int64_t number = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  return error == std::errc() && end != name.data() + name.size() && *end == '.' ? number : -1;
}

// Puts gradients back that were taken away for a while.
class Hidden {
 public:
  explicit Hidden(const Tensor& parameter) : parameter_(parameter), gradient_(parameter.grad()) {
    parameter.clear_grad();
  }
  Hidden(Hidden&&) = default;
  Hidden& operator=(Hidden&&) = delete;
  ~Hidden() {
    if (parameter_.defined() && gradient_.defined()) parameter_.set_grad(gradient_);
  }

 private:
  Tensor parameter_;
  Tensor gradient_;
};

}  // namespace

ZeroRedundancyOptimizer::ZeroRedundancyOptimizer(optim::Optimizer& optimizer,
                                                 const Communicator& comm)
    : optimizer_(optimizer), comm_(comm), parameters_(optim::parameters_of(optimizer)) {
  std::string lines;
  for (const Tensor& parameter : parameters_) {
    lines += fmt::format("{} {} {}\n", to_string(parameter.dtype()), to_string(parameter.sizes()),
                         to_string(parameter.strides()));
  }
  detail::require_same_lines(comm, "ZeroRedundancyOptimizer: parameters", lines);
  owners_ = share_out(parameters_, comm.size());
  optimizer_.load_state_dict(own_part(optimizer_.state_dict()));
}

bool ZeroRedundancyOptimizer::is_mine(const std::string& name) const {
  const std::int64_t number = number_in(name);
  return number < 0 || number >= static_cast<std::int64_t>(owners_.size()) ||
         owners_[static_cast<std::size_t>(number)] == comm_.rank();
}

StateDict ZeroRedundancyOptimizer::own_part(const StateDict& state) const {
  StateDict part;
  for (const auto& [name, tensor] : state) {
    if (is_mine(name)) part.set(name, tensor);
  }
  return part;
}

void ZeroRedundancyOptimizer::step() {
  const autograd::NoGradGuard guard;
  bool any = false;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    any = any || (owners_[i] == comm_.rank() && parameters_[i].grad().defined());
  }
  if (any) {
    std::vector<Hidden> others;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (owners_[i] != comm_.rank()) others.emplace_back(parameters_[i]);
    }
    optimizer_.step();
  } else {
    // Nothing to change here; the steps are counted all the same.
    StateDict state = optimizer_.state_dict();
    state.set("step", Tensor::scalar(static_cast<double>(optimizer_.steps() + 1), DType::Int64));
    optimizer_.load_state_dict(state);
  }
  for (int owner = 0; owner < comm_.size(); ++owner) {
    std::size_t bytes = 0;
    std::vector<std::size_t> theirs;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (owners_[i] != owner) continue;
      theirs.push_back(i);
      bytes += parameters_[i].nbytes();
    }
    if (bytes == 0) continue;
    // One message for all of them, in their memory order.
    std::vector<std::byte> packed(bytes);
    const bool is_me = owner == comm_.rank();
    std::size_t offset = 0;
    for (const std::size_t i : theirs) {
      if (is_me) {
        const Tensor here = parameters_[i].detach().cpu();
        if (here.nbytes() > 0) std::memcpy(packed.data() + offset, here.data_ptr(), here.nbytes());
      }
      offset += parameters_[i].nbytes();
    }
    comm_.broadcast(std::span(packed), owner, kPlace);
    if (is_me) continue;
    offset = 0;
    for (const std::size_t i : theirs) {
      const Tensor here = parameters_[i].detach().cpu().clone(MemoryFormat::Preserve);
      if (here.nbytes() > 0) std::memcpy(here.data_ptr(), packed.data() + offset, here.nbytes());
      parameters_[i].copy_(here);
      offset += here.nbytes();
    }
  }
}

StateDict ZeroRedundancyOptimizer::state_dict() const {
  const StateDict mine = optimizer_.state_dict();
  const auto parts = comm_.gather(to_bytes(mine), 0, "ZeroRedundancyOptimizer: state");
  StateDict whole;
  if (!comm_.is_first()) return whole;
  for (const std::vector<std::byte>& part : parts) {
    // The numbers that all have are the same.
    for (const auto& [name, tensor] : from_bytes(part)) whole.set(name, tensor);
  }
  return whole;
}

void ZeroRedundancyOptimizer::load_state_dict(const StateDict& state) {
  // What does not fit is refused on every rank, not on its owner alone.
  const StateDict before = optimizer_.state_dict();
  optimizer_.load_state_dict(state);
  try {
    optimizer_.load_state_dict(own_part(state));
  } catch (...) {
    optimizer_.load_state_dict(before);
    throw;
  }
}

std::size_t ZeroRedundancyOptimizer::state_bytes() const {
  std::size_t bytes = 0;
  for (const auto& [name, tensor] : optimizer_.state_dict()) {
    if (number_in(name) >= 0) bytes += tensor.nbytes();
  }
  return bytes;
}

}  // namespace quanta::distributed
