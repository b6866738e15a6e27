#pragma once

// Private: softmax and log_softmax on the tape.

#include <cstdint>

#include "quanta/runtime/tensor.h"

namespace quanta::gradients {

/// The gradient of softmax's argument from that of its result `y`.
Tensor softmax_gradient(const Tensor& gradient, const Tensor& y, std::int64_t axis);

// `y` is the result, `axis` counts from the front.
Tensor record_softmax(const Tensor& x, Tensor y, std::int64_t axis);
Tensor record_log_softmax(const Tensor& x, Tensor y, std::int64_t axis);

}  // namespace quanta::gradients
