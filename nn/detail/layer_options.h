#pragma once

// Private: checks and printing that layers share.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "quanta/runtime/check.h"
#include "quanta/runtime/dims.h"
#include "quanta/runtime/tensor.h"

namespace quanta::nn::detail {

/// One number per spatial dimension, of `dims` with one for all or one each. Throws ArgumentError
/// `op: argument: ...` for another count or a number below `min`.
Dims expand_spatial(std::string_view op, std::string_view argument, const Dims& dims,
                    std::int64_t spatial, std::int64_t min);

// As Python prints: "(3, 3)", "(3,)", "1e-05", "1.0", "True".
std::string python_tuple(const Dims& dims);
/// A number where there is one for all: "2", else the tuple.
std::string python_int_or_tuple(const Dims& dims);
std::string python_float(double value);
/// "None" without a value.
std::string python_float(const std::optional<double>& value);
std::string_view python_bool(bool value);

// Starting values of weights, from default_generator(); zeros under SkipInit.
/// Uniform in [-bound, bound].
Tensor uniform(const Dims& sizes, double bound);
/// Normal, with a mean of 0 and a deviation of 1.
Tensor normal(const Dims& sizes);

}  // namespace quanta::nn::detail
