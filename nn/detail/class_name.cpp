#include "quanta/nn/detail/class_name.h"

#include <cxxabi.h>

#include <cstdlib>
#include <string_view>

namespace quanta::nn::detail {
namespace {

// Conv<2> is torch's Conv2d.
std::string with_torch_names(std::string_view name) {
  std::string result;
  for (std::size_t at = 0; at < name.size(); ++at) {
    const bool is_rank = name[at] == '<' && at + 2 < name.size() && name[at + 1] >= '1' &&
                         name[at + 1] <= '3' && name[at + 2] == '>';
    result += is_rank ? name[at + 1] : name[at];
    if (!is_rank) continue;
    result += 'd';
    at += 2;
  }
  return result;
}

}  // namespace

std::string class_name(std::type_index type) {
  int status = 0;
  char* text = abi::__cxa_demangle(type.name(), nullptr, nullptr, &status);
  std::string result = status == 0 && text != nullptr ? text : type.name();
  std::free(text);
  return with_torch_names(result);
}

std::string short_class_name(std::type_index type) {
  const std::string name = class_name(type);
  const std::size_t end = name.find('<');
  const std::size_t colon = name.rfind("::", end);
  return colon == std::string::npos ? name : name.substr(colon + 2);
}

}  // namespace quanta::nn::detail
