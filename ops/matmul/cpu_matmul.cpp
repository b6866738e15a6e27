#include "quanta/ops/matmul/cpu_matmul.h"

#include "quanta/ops/cpu/onednn/onednn.h"
#include "quanta/runtime/check.h"

namespace quanta::cpu {
namespace {

// oneDNN reads any strides, but fast only when rows or columns are contiguous.
Tensor readable(const Tensor& x) {
  const Dims& sizes = x.sizes();
  const Dims& strides = x.strides();
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] > 1 && strides[d] == 0) return x.contiguous();
  }
  const std::size_t rows = sizes.size() - 2;
  const bool unit = strides[rows] == 1 || strides[rows + 1] == 1;
  return unit ? x : x.contiguous();
}

onednn::Md describe(const Tensor& x) {
  return {x.sizes().to_vector(), onednn::DataType::f32, x.strides().to_vector()};
}

dnnl::memory wrap(const onednn::Md& desc, const Tensor& x) {
  return {desc, onednn::engine(), x.data_ptr()};
}

}  // namespace

void matmul(const Tensor& lhs, const Tensor& rhs, const Tensor& out) {
  const Tensor left = readable(lhs);
  const Tensor right = readable(rhs);
  onednn::checked("matmul", [&] {
    // oneDNN keeps the primitives it made and finds one again by its shapes and strides.
    const dnnl::matmul::primitive_desc description(onednn::engine(), describe(left),
                                                   describe(right), describe(out));
    dnnl::matmul(description)
        .execute(onednn::stream(), {{DNNL_ARG_SRC, wrap(description.src_desc(), left)},
                                    {DNNL_ARG_WEIGHTS, wrap(description.weights_desc(), right)},
                                    {DNNL_ARG_DST, wrap(description.dst_desc(), out)}});
    onednn::stream().wait();
  });
}

}  // namespace quanta::cpu
