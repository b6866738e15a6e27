#pragma once

// Private: what files say of how their model quantizes.

namespace quanta::graph::detail {

/// In the metadata of files whose model was quantized here: the codes of x are those of
/// x * (1 / scale), as torch has it, and not of x / scale.
inline constexpr const char* kArithmeticKey = "quanta.arithmetic";
inline constexpr const char* kTorchArithmetic = "torch";

}  // namespace quanta::graph::detail
