#pragma once

#include <string_view>

#include "quanta/runtime/check.h"
#include "quanta/runtime/dims.h"

// For constructors that take sizes before the options that have them too.
namespace quanta::nn::detail {

/// Puts `given` into an option that is not set, or set to the same. Throws ArgumentError else.
template <typename T>
void put_size(std::string_view module, std::string_view name, const T& given, T& option) {
  QUANTA_CHECK(option == T{} || option == given,
               "nn::{}: {}: expected {} in the options as well, or nothing, got {}", module, name,
               given, option);
  option = given;
}

}  // namespace quanta::nn::detail
