#pragma once

#include <string_view>

#include "quanta/runtime/catalogue.h"

namespace quanta {

/// Every operation of Quanta, and those that the program has registered.
const Catalogue& operations();

/// Adds an operation of the user's own: files, supports() and whoever walks the catalogue find it
/// by name from then on. Not while other threads look at the catalogue. Throws ArgumentError for a
/// name that is taken.
///
///   register_operation({.name = "square", .header = "square.h", .dtypes = kDTypes},
///                      [](DType dtype) {
///                        return sample_call(Square{}, {sample_tensor({2, 3}, dtype)});
///                      });
void register_operation(const OperationInfo& info, SampleFunction sample);

}  // namespace quanta
