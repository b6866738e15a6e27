#pragma once

// Private: each family adds its operations to the catalogue.

#include "quanta/ops/detail/dtypes.h"
#include "quanta/runtime/catalogue.h"

namespace quanta::detail {

// One a line, sorted.
void add_activations(Catalogue& catalogue);
void add_arithmetic(Catalogue& catalogue);
void add_attention(Catalogue& catalogue);
void add_block_quant(Catalogue& catalogue);
void add_cat(Catalogue& catalogue);
void add_compare(Catalogue& catalogue);
void add_convolutions(Catalogue& catalogue);
void add_elementwise(Catalogue& catalogue);
void add_embeddings(Catalogue& catalogue);
void add_factory(Catalogue& catalogue);
void add_fake_quantize(Catalogue& catalogue);
void add_indexing(Catalogue& catalogue);
void add_integer(Catalogue& catalogue);
void add_interpolate(Catalogue& catalogue);
void add_linears(Catalogue& catalogue);
void add_loss(Catalogue& catalogue);
void add_matmul(Catalogue& catalogue);
void add_norms(Catalogue& catalogue);
void add_pad(Catalogue& catalogue);
void add_pooling(Catalogue& catalogue);
void add_quantize(Catalogue& catalogue);
void add_quantize_affine(Catalogue& catalogue);
void add_quantize_linear(Catalogue& catalogue);
void add_recurrent(Catalogue& catalogue);
void add_reduce(Catalogue& catalogue);
void add_shape(Catalogue& catalogue);
void add_shuffle(Catalogue& catalogue);
void add_sort(Catalogue& catalogue);
void add_tensor_quant(Catalogue& catalogue);
void add_vision(Catalogue& catalogue);

}  // namespace quanta::detail
