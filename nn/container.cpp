#include "quanta/nn/container.h"

#include "quanta/runtime/check.h"

namespace quanta::nn {

const std::shared_ptr<Module>& Sequential::ptr(std::size_t index) const {
  QUANTA_CHECK(index < size(), "Sequential: index: expected less than {}, got {}", size(), index);
  return child_at(index);
}

Tensor Sequential::forward(const Tensor& x) const {
  Tensor y = x;
  const std::size_t count = size();
  for (std::size_t i = 0; i < count; ++i) y = (*child_at(i))(y);
  return y;
}

const std::shared_ptr<Module>& ModuleList::ptr(std::size_t index) const {
  QUANTA_CHECK(index < size(), "ModuleList: index: expected less than {}, got {}", size(), index);
  return child_at(index);
}

Tensor ModuleList::forward(const Tensor&) const {
  throw UnsupportedError(with_module_path(
      "ModuleList: forward: expected calls of its modules, a list has no forward of its own"));
}

std::vector<std::string> ModuleDict::keys() const {
  std::vector<std::string> names;
  for (NamedChild& child : named_children()) names.push_back(std::move(child.name));
  return names;
}

Tensor ModuleDict::forward(const Tensor&) const {
  throw UnsupportedError(
      with_module_path("ModuleDict: forward: expected calls of its modules, a dictionary has no "
                       "forward of its own"));
}

}  // namespace quanta::nn
