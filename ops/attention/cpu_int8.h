#pragma once

// Private: attention of many heads whose two products are in int8.

#include <cstdint>
#include <limits>
#include <string_view>

#include "quanta/ops/attention/cpu_attention.h"

namespace quanta::cpu {

/// Keys for which sums of codes of weights times codes of values stay within 32 bits.
inline constexpr std::int64_t kMostInt8Keys =
    std::numeric_limits<std::int32_t>::max() / (255 * 127);

/// out = softmax(scale * query key^T + mask) value for each head. Queries and keys have a scale for
/// each row, values one for each feature of a head, weights 1/255 of a query's largest; sums of
/// codes are exact, softmax is in float. The same bits on every instruction set and for any number
/// of threads. No size is 0, and there are at most kMostInt8Keys keys. Throws ArgumentError where
/// query, key or value are not finite. Returns the kernel's name.
std::string_view attention_int8(const AttentionProblem& problem);

}  // namespace quanta::cpu
