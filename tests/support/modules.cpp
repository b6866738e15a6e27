#include "support/modules.h"

namespace quanta::test {

std::vector<std::string> names(const StateDict& state) {
  std::vector<std::string> result;
  for (const auto& [name, value] : state) result.push_back(name);
  return result;
}

std::vector<std::string> parameter_names(const nn::Module& module) {
  std::vector<std::string> result;
  for (const auto& entry : module.named_parameters()) result.push_back(entry.path);
  return result;
}

}  // namespace quanta::test
