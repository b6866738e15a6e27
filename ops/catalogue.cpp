#include "quanta/ops/catalogue.h"

#include "quanta/ops/detail/families.h"

namespace quanta {
namespace {

Catalogue& catalogue() {
  static Catalogue all = [] {
    Catalogue made;
    // One a line, sorted.
    detail::add_activations(made);
    detail::add_arithmetic(made);
    detail::add_attention(made);
    detail::add_block_quant(made);
    detail::add_cat(made);
    detail::add_compare(made);
    detail::add_convolutions(made);
    detail::add_elementwise(made);
    detail::add_embeddings(made);
    detail::add_factory(made);
    detail::add_fake_quantize(made);
    detail::add_indexing(made);
    detail::add_integer(made);
    detail::add_interpolate(made);
    detail::add_linears(made);
    detail::add_loss(made);
    detail::add_matmul(made);
    detail::add_norms(made);
    detail::add_pad(made);
    detail::add_pooling(made);
    detail::add_quantize(made);
    detail::add_quantize_affine(made);
    detail::add_quantize_linear(made);
    detail::add_recurrent(made);
    detail::add_reduce(made);
    detail::add_shape(made);
    detail::add_shuffle(made);
    detail::add_sort(made);
    detail::add_tensor_quant(made);
    detail::add_vision(made);
    return made;
  }();
  return all;
}

}  // namespace

const Catalogue& operations() { return catalogue(); }

void register_operation(const OperationInfo& info, SampleFunction sample) {
  catalogue().add(info, sample);
}

}  // namespace quanta
