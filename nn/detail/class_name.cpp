#include "quanta/nn/detail/class_name.h"

#include <cxxabi.h>

#include <cstdlib>

namespace quanta::nn::detail {

std::string class_name(std::type_index type) {
  int status = 0;
  char* text = abi::__cxa_demangle(type.name(), nullptr, nullptr, &status);
  std::string result = status == 0 && text != nullptr ? text : type.name();
  std::free(text);
  return result;
}

std::string short_class_name(std::type_index type) {
  const std::string name = class_name(type);
  const std::size_t end = name.find('<');
  const std::size_t colon = name.rfind("::", end);
  return colon == std::string::npos ? name : name.substr(colon + 2);
}

}  // namespace quanta::nn::detail
