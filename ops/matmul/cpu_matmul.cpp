#include "quanta/ops/matmul/cpu_matmul.h"

#include <array>
#include <cstdint>
#include <optional>

#include "quanta/ops/cpu/onednn/onednn.h"
#include "quanta/runtime/check.h"

namespace quanta::cpu {
namespace {

// Where each dimension steps over all that the smaller ones reach, which is what oneDNN takes:
// the least stride of a dimension outside of them, or nothing. Dimensions of size 1 do not count.
std::optional<std::int64_t> outer_stride(const Tensor& x) {
  const Dims& sizes = x.sizes();
  const Dims& strides = x.strides();
  std::int64_t reach = 1;
  std::array<bool, Dims::kMaxDims> done{};
  for (std::size_t step = 0; step < sizes.size(); ++step) {
    std::size_t next = sizes.size();
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      if (done[d] || sizes[d] <= 1) continue;
      if (next == sizes.size() || strides[d] < strides[next]) next = d;
    }
    if (next == sizes.size()) break;
    if (strides[next] < reach) return std::nullopt;
    reach = strides[next] * sizes[next];
    done[next] = true;
  }
  return reach;
}

// oneDNN reads views whose dimensions stand apart, but fast only when rows or columns are
// contiguous. Windows that share elements and expanded dimensions are copied.
Tensor readable(const Tensor& x) {
  const std::size_t rows = x.sizes().size() - 2;
  const bool unit = x.strides()[rows] == 1 || x.strides()[rows + 1] == 1;
  return unit && outer_stride(x) ? x : x.contiguous();
}

// Views keep any stride in a dimension of size 1, where oneDNN wants one like the others.
onednn::Md describe(const Tensor& x) {
  Dims strides = x.strides();
  const std::int64_t outer = outer_stride(x).value();
  for (std::size_t d = 0; d < strides.size(); ++d) {
    if (x.sizes()[d] == 1 && strides[d] < outer && strides[d] != 1) strides[d] = outer;
  }
  return {x.sizes().to_vector(), onednn::DataType::f32, strides.to_vector()};
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
