#pragma once

// Private: what the reader and the writer of .safetensors share.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

/// The tensor of the file in which the scales of most weights stand one after the other: Float32
/// where that is exact, else Float64.
inline constexpr std::string_view kScalesName = "quanta.scales";

/// dtype, shape, qscheme and parameters of a quantized tensor as a JSON object. The usual weight
/// (QInt8, per channel along axis 0, zero points 0) is a number instead: its scales are appended to
/// `scales`, and the number is the position of the first.
Json describe_quantized(const QTensor& tensor, std::vector<double>& scales);

/// The scales of a file's weights, and how many of them no weight has taken yet. Each belongs to one
/// weight: weights without elements would otherwise make a small file large.
struct PooledScales {
  Tensor scales;  ///< the tensor kScalesName, or undefined when there is none
  std::int64_t left = 0;

  explicit PooledScales(const Tensor* pooled);
};

/// The tensor that describe_quantized described, over its codes (or packed bytes).
/// Throws FileError `<where>: ...` when they do not fit.
QTensor restore_quantized(const Tensor& codes, const Json& description, PooledScales& pooled,
                          std::string_view where);

}  // namespace quanta::detail
