#pragma once

// Whether a test got what it expects.

#include <functional>
#include <string>
#include <vector>

#include "quanta/runtime/state_dict.h"
#include "quanta/runtime/tensor.h"

namespace quanta::test {

/// The largest |a - b|; infinite where only one of the two is NaN.
double largest_difference(const Tensor& lhs, const Tensor& rhs);
/// The power of `reference` over that of its difference to `value`, in decibels.
double sqnr_db(const Tensor& reference, const Tensor& value);

bool same_bits(const std::vector<float>& lhs, const std::vector<float>& rhs);
/// The same sizes, and the same bits as Float32.
bool same_bits(const Tensor& lhs, const Tensor& rhs);
bool same_state(const StateDict& lhs, const StateDict& rhs);

/// Checks that |got - want| <= tolerance * (1 + |want|) everywhere.
void check_close(const Tensor& got, const Tensor& want, float tolerance = 1e-5F);
/// Checks for equal numbers in logical order; NaN equals NaN.
void check_same(const Tensor& got, const std::vector<float>& want);

/// Checks that the call throws an ArgumentError with `text`.
void says(const std::function<void()>& call, const char* text);
/// Checks that the call throws an Error with all `parts` in its text.
void fails(const std::vector<std::string>& parts, const std::function<void()>& call);
/// The same for a wrong argument: the text also says what was expected.
void refuses(std::vector<std::string> parts, const std::function<void()>& call);
/// The text of the exception that the call throws, or nothing.
std::string message_of(const std::function<void()>& call);

}  // namespace quanta::test
