#pragma once

// Private: what the reader and the writer of .safetensors share.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "quanta/runtime/detail/json.h"
#include "quanta/runtime/tensor.h"

namespace quanta::detail {

/// The bytes before the header: its length as a little-endian 64-bit number.
inline constexpr std::size_t kHeaderLengthBytes = 8;
/// The format's own limit.
inline constexpr std::size_t kMaxHeaderBytes = 100'000'000;
inline constexpr std::string_view kMetadataKey = "__metadata__";
/// The metadata key under which write_safetensors describes quantized tensors.
inline constexpr std::string_view kQuantizedKey = "quanta.quantized";

/// "F32", ... for a plain dtype; empty for a quantized one.
std::string_view safetensors_name(DType dtype);
std::optional<DType> dtype_from_safetensors_name(std::string_view name);

/// dtype, shape, qscheme and parameters of a quantized tensor as JSON.
Json describe_quantized(const QTensor& tensor);

/// The tensor that describe_quantized described, over its codes (or packed bytes).
/// Throws FileError `<where>: ...` when the two do not fit.
QTensor restore_quantized(const Tensor& codes, const Json& description, std::string_view where);

}  // namespace quanta::detail
