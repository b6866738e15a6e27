#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quanta/runtime/tensor.h"

namespace quanta {

// Taking apart and putting together. Views and simple copies are methods of Tensor.

/// Joins tensors of equal sizes along a new dimension. Quantized per tensor: the result has the
/// first one's parameters, the others are requantized, as in cat. Same as torch.stack.
Tensor stack(std::span<const Tensor> tensors, std::int64_t dim = 0);

// Views along `dim`; per-channel tensors are followed, along their axis as well.

/// At most `chunks` (> 0) equal parts, the last one smaller where it does not come out even. Same
/// as torch.chunk.
std::vector<Tensor> chunk(const Tensor& x, std::int64_t chunks, std::int64_t dim = 0);
/// Parts of `split_size`, the last one smaller where it does not come out even. Same as
/// torch.split.
std::vector<Tensor> split(const Tensor& x, std::int64_t split_size, std::int64_t dim = 0);
/// Parts of these sizes, which add up to the dimension's. Same as torch.split with a list.
std::vector<Tensor> split_with_sizes(const Tensor& x, const std::vector<std::int64_t>& split_sizes,
                                     std::int64_t dim = 0);
/// x[0], x[1], ... along `dim`. Same as torch.unbind.
std::vector<Tensor> unbind(const Tensor& x, std::int64_t dim = 0);

/// Windows of `size` elements, `step` apart, along `dimension`, as a last dimension: a view whose
/// elements can share memory. Plain or per-tensor quantized. Same as Tensor.unfold.
Tensor unfold(const Tensor& x, std::int64_t dimension, std::int64_t size, std::int64_t step);

/// A copy with the order reversed along `dims`. Plain or per-tensor quantized. Same as torch.flip.
Tensor flip(const Tensor& x, const Dims& dims);
/// A copy with the elements repeated: at least as many numbers (>= 0) as x has dimensions. Plain or
/// per-tensor quantized. Same as Tensor.repeat.
Tensor repeat(const Tensor& x, const Dims& repeats);

/// Other sizes for this tensor, contiguous, in place: the first elements of its memory stay, new
/// ones are undefined. Where its memory does not reach the tensor gets new memory, and views of the
/// old one stay there. Plain or per-tensor quantized (torch refuses per channel as well). Returns
/// `x`. Same as Tensor.resize_.
const Tensor& resize_(const Tensor& x, const Dims& sizes);

}  // namespace quanta
