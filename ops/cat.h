#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "quanta/runtime/tensor.h"

namespace quanta {

/// Joins along `dim`: all of the same dtype, and of the same sizes but along `dim` (1-d empty
/// tensors are skipped). Any dtype of whole bytes. Quantized tensors: the result has the first
/// one's parameters, the others are requantized. Same as torch.cat.
///
/// Throws ArgumentError for an empty list, unequal dtypes or sizes, or a bad `dim`.
Tensor cat(std::span<const Tensor> tensors, std::int64_t dim = 0);

namespace quantized {

/// Joins along `dim` into the given parameters (default: those of the first tensor). Tensors are
/// quantized per tensor: QUInt8, QInt8 or QInt32.
QTensor cat(std::span<const QTensor> tensors, std::int64_t dim, std::optional<double> scale = {},
            std::optional<std::int64_t> zero_point = {});
/// The same, with a relu at the end.
QTensor cat_relu(std::span<const QTensor> tensors, std::int64_t dim,
                 std::optional<double> scale = {}, std::optional<std::int64_t> zero_point = {});

}  // namespace quantized
}  // namespace quanta
