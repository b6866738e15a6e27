#pragma once

// Private: the names of modules and tensors within others.

#include <string>
#include <string_view>

namespace quanta::nn::detail {

/// "path.name"; one of them alone where the other is empty, as the path of the outermost module is.
inline std::string child_path(std::string_view path, std::string_view name) {
  std::string result(path);
  if (!path.empty() && !name.empty()) result += '.';
  result += name;
  return result;
}

}  // namespace quanta::nn::detail
