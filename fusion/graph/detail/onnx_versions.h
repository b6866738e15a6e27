#pragma once

// Private: in which opsets ONNX changed its operators.

#include <cstdint>
#include <string_view>

namespace quanta::graph::detail {

/// The newest opset of ai.onnx that the table knows.
inline constexpr std::int64_t kNewestOpset = 27;

/// Whether a call of ONNX's operator `op`, right in opset `from`, is right in opset `to` and means
/// the same. To a later opset additions are allowed that the call does not use; to an earlier one
/// (11 or later) element types may have been added, but nothing else. An operator that the table does
/// not know is right in its own opset alone.
bool keeps_meaning(std::string_view op, std::int64_t from, std::int64_t to);

}  // namespace quanta::graph::detail
