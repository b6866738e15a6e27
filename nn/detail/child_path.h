#pragma once

// Private: the names of modules and tensors within others.

#include <string>
#include <string_view>

namespace quanta::nn::detail {

/// "path.name"; the name alone where the path is empty, which is that of the outermost module.
inline std::string child_path(std::string_view path, std::string_view name) {
  std::string result(path);
  if (!path.empty()) result += '.';
  result += name;
  return result;
}

}  // namespace quanta::nn::detail
