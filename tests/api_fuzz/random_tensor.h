#pragma once

#include "quanta/runtime/tensor.h"
#include "random.h"

/// Tensors that a caller may have: sizes, values, parameters and layouts at their edges. What a
/// tensor cannot be (codes of a scale that is refused), it is not: the given one comes back.
namespace quanta::api_fuzz {

/// Numbers of ordinary size. `like` gives the dtype and, where it fits the sizes, the quantizer.
Tensor fresh(const Tensor& like, const Dims& sizes, Random& random);
/// The same sizes with NaN, infinities, the largest and smallest numbers, all codes.
Tensor with_edge_values(const Tensor& x, Random& random);
/// Codes with scales and zero points at the ends of what is allowed; per tensor or per channel.
Tensor with_edge_quantizer(const Tensor& x, Random& random);
/// One dimension with another size: 0, 1, a few, some thousands.
Tensor with_other_size(const Tensor& x, Random& random);
/// Another number of dimensions.
Tensor with_other_rank(const Tensor& x, Random& random);
/// Another dtype, numbers of ordinary size.
Tensor with_other_dtype(const Tensor& x, Random& random);
/// No elements, and sizes whose product overflows.
Tensor empty_and_huge(const Tensor& x, Random& random);
/// The same values elsewhere in memory: a view of a view, gaps, other orders.
Tensor with_other_layout(const Tensor& x, Random& random);
/// Elements that share memory: expanded, or windows that overlap.
Tensor with_shared_elements(const Tensor& x, Random& random);

Quantizer edge_quantizer(DType dtype, const Dims& sizes, Random& random);
double edge_number(Random& random);
std::int64_t edge_integer(Random& random);

/// Whether a tensor of these sizes has few elements, also where those of size 0 had another.
bool is_small(const Dims& sizes);

/// The elements one after the other, as bytes.
std::vector<std::byte> bytes_of(const Tensor& x);

}  // namespace quanta::api_fuzz
