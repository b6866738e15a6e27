#include "quanta/runtime/state_dict.h"

#include "quanta/runtime/check.h"

namespace quanta {

void StateDict::set(std::string name, Tensor tensor) {
  const auto found = positions_.find(name);
  if (found != positions_.end()) {
    entries_[found->second].second = std::move(tensor);
    return;
  }
  entries_.emplace_back(std::move(name), std::move(tensor));
  positions_.emplace(entries_.back().first, entries_.size() - 1);
}

const Tensor* StateDict::find(std::string_view name) const noexcept {
  const auto found = positions_.find(name);
  return found == positions_.end() ? nullptr : &entries_[found->second].second;
}

const Tensor& StateDict::at(std::string_view name) const {
  const Tensor* tensor = find(name);
  QUANTA_CHECK(tensor != nullptr, "state_dict: name: expected one of the {} names in it, got '{}'",
               size(), name);
  return *tensor;
}

void StateDict::erase(std::string_view name) {
  const auto found = positions_.find(name);
  if (found == positions_.end()) return;
  const std::size_t position = found->second;
  positions_.erase(found);
  entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(position));
  for (auto& [other, index] : positions_) {
    if (index > position) --index;
  }
}

}  // namespace quanta
