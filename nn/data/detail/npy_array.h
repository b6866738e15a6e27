#pragma once

// Private: arrays in numpy's format, wherever their bytes lie.

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "quanta/runtime/tensor.h"

namespace quanta::data::detail {

/// The array that these bytes are; the tensor points into them where it can and keeps `owner`. Throws
/// FileError `<where>: ...`.
Tensor npy_array(std::span<std::byte> bytes, const std::string& where,
                 const std::shared_ptr<void>& owner);

/// What stands before the elements of `x`, which are to be contiguous. Throws ArgumentError
/// `<op>: x: ...` for dtypes that numpy does not have.
std::string npy_header(const Tensor& x, std::string_view op);

}  // namespace quanta::data::detail
