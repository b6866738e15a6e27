#pragma once

// Private: names of classes, for messages and printed trees.

#include <string>
#include <typeindex>

namespace quanta::nn::detail {

/// "quanta::nn::Conv2d", which is Conv<2> for the compiler.
std::string class_name(std::type_index type);
/// "Conv2d".
std::string short_class_name(std::type_index type);

}  // namespace quanta::nn::detail
