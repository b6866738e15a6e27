#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>

#include "quanta/runtime/tensor.h"

/// Joining tensors along a dimension that they have (ops/shape.h has stack, which adds one).
///
/// Many threads may call these functions at once while nobody writes to the arguments.
namespace quanta {

/// Joins tensors of one dtype along `dim`; their sizes may differ along `dim` only, and 1-d empty
/// tensors are skipped. Takes any dtype of whole bytes. A quantized result has the parameters of
/// the first tensor; the others are requantized. Same as torch.cat.
///
/// Throws ArgumentError for an empty list, unequal dtypes or sizes, or a bad `dim`.
Tensor cat(std::span<const Tensor> tensors, std::int64_t dim = 0);
/// The same for tensors that are named one by one: cat({a, b}, 1).
inline Tensor cat(std::initializer_list<Tensor> tensors, std::int64_t dim = 0) {
  return cat(std::span<const Tensor>(tensors.begin(), tensors.size()), dim);
}

namespace quantized {

/// Joins along `dim` into the given parameters (default: those of the first tensor). Tensors are
/// quantized per tensor: QUInt8, QInt8 or QInt32. Throws ArgumentError as cat does, and for
/// parameters that the dtype cannot have.
QTensor cat(std::span<const QTensor> tensors, std::int64_t dim, std::optional<double> scale = {},
            std::optional<std::int64_t> zero_point = {});
/// The same with relu at the end.
QTensor cat_relu(std::span<const QTensor> tensors, std::int64_t dim,
                 std::optional<double> scale = {}, std::optional<std::int64_t> zero_point = {});

}  // namespace quantized
}  // namespace quanta
