#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quanta/runtime/tensor.h"

/// Taking tensors apart and putting them together. Views and simple copies are methods of Tensor.
///
/// All throw ArgumentError for sizes and dimensions that do not fit, UnsupportedError for quantized
/// tensors that they do not take. Many threads may call them at once while nobody writes to the
/// arguments; resize_ writes to its own.
namespace quanta {

/// Joins tensors of equal sizes along a new dimension. Of tensors quantized per tensor the result
/// has the first one's parameters; the others are requantized, as in cat. Same as torch.stack.
Tensor stack(std::span<const Tensor> tensors, std::int64_t dim = 0);

// The functions from here to unbind give views along `dim`. Tensors quantized per channel are taken
// apart as well, along their axis too.

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

/// A copy of [..., rows, columns] with 0 below, or above, the diagonal that is `diagonal` columns to
/// the right of the main one. Plain or per-tensor quantized. Same as torch.triu and torch.tril.
Tensor triu(const Tensor& x, std::int64_t diagonal = 0);
Tensor tril(const Tensor& x, std::int64_t diagonal = 0);
/// A copy in which the first lengths[b] elements along `time_dim` of batch b come in reverse.
/// `lengths` is Int64 or Int32 [batch] with numbers 0..size. Plain or per-tensor quantized. Same as
/// ONNX's ReverseSequence.
Tensor reverse_sequence(const Tensor& x, const Tensor& lengths, std::int64_t time_dim = 0,
                        std::int64_t batch_dim = 1);

/// Gives `x` other sizes in place, contiguous, and returns it. The first elements of its memory
/// stay, new ones are undefined (false in new memory of a Bool tensor); where the memory is too small, the tensor gets new memory and
/// views of the old one keep that. Plain or per-tensor quantized, as in torch. Same as
/// Tensor.resize_.
const Tensor& resize_(const Tensor& x, const Dims& sizes);

}  // namespace quanta
