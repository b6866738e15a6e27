#include "quanta/runtime/detail/gradient_math.h"

#include <algorithm>
#include <vector>

#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/cuda/sums.h"
#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/detail/strided.h"
#include "quanta/runtime/parallel.h"

namespace quanta::autograd {
namespace {

// Work with T as float or double; other floating dtypes are summed as float.
template <typename Body>
Tensor in_working_dtype(const Tensor& x, Body&& body) {
  if (x.dtype() == DType::Float64) return body(double{}, x);
  if (x.dtype() == DType::Float32) return body(float{}, x);
  return body(float{}, x.to(DType::Float32)).to(x.dtype());
}

template <typename T>
void add_elements(const Tensor& sum, const Tensor& gradient) {
  if (!sum.device().is_cpu()) {
    sum.storage()->bump_version();
    return cuda::add_items(sum.device(), {.walk = cuda::strided_walk(sum, gradient),
                                          .is_double = sum.dtype() == DType::Float64,
                                          .to = sum.device_ptr(),
                                          .from = gradient.device_ptr()});
  }
  T* to = sum.mutable_data<T>();
  const T* from = gradient.data<T>();
  const quanta::detail::StridedPair pair(sum.sizes(), sum.strides(), gradient.strides());
  const std::int64_t to_step = pair.first.back();
  const std::int64_t from_step = pair.second.back();
  pair.for_each_run([&](std::int64_t a, std::int64_t b, std::int64_t count) {
    if (to_step == 1 && from_step == 1) {
      for (std::int64_t i = 0; i < count; ++i) to[a + i] += from[b + i];
    } else {
      for (std::int64_t i = 0; i < count; ++i) to[a + i * to_step] += from[b + i * from_step];
    }
  });
}

// x [outer, middle, inner] contiguous to [outer, inner], summed in double.
template <typename T>
Tensor sum_middle(const Tensor& x, std::int64_t outer, std::int64_t middle, std::int64_t inner) {
  Tensor result = Tensor::empty({outer, inner}, x.dtype(), MemoryFormat::Contiguous, x.device());
  if (!x.device().is_cpu()) {
    cuda::sum_middle(x.device(), {.is_double = x.dtype() == DType::Float64,
                                  .outer = outer,
                                  .middle = middle,
                                  .inner = inner,
                                  .x = x.device_ptr(),
                                  .sums = result.device_ptr()});
    return result;
  }
  const T* from = x.data<T>();
  T* to = result.mutable_data<T>();
  // Columns in blocks, so that one long row of sums is shared out as well.
  constexpr std::int64_t kBlock = 256;
  const std::int64_t blocks = ceil_div(inner, kBlock);
  const std::int64_t grain = std::max<std::int64_t>(
      1, 32768 / std::max<std::int64_t>(1, middle * std::min(inner, kBlock)));
  parallel_for(outer * blocks, grain, [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> sums;
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t row = task / blocks;
      const std::int64_t first = task % blocks * kBlock;
      const std::int64_t count = std::min(kBlock, inner - first);
      sums.assign(static_cast<std::size_t>(count), 0.0);
      const T* line = from + row * middle * inner + first;
      for (std::int64_t m = 0; m < middle; ++m, line += inner) {
        for (std::int64_t i = 0; i < count; ++i) {
          sums[static_cast<std::size_t>(i)] += static_cast<double>(line[i]);
        }
      }
      for (std::int64_t i = 0; i < count; ++i) {
        to[row * inner + first + i] = static_cast<T>(sums[static_cast<std::size_t>(i)]);
      }
    }
  });
  return result;
}

}  // namespace

namespace detail {

bool is_exclusive(const Tensor& tensor) {
  return tensor.impl()->use_count() == 1 && tensor.storage()->use_count() == 1 && tensor.is_dense();
}

void accumulate(Tensor& sum, const Tensor& gradient) {
  if (!sum.defined()) {
    sum = gradient;
    return;
  }
  if (!is_exclusive(sum)) sum = sum.clone(MemoryFormat::Preserve);
  switch (sum.dtype()) {
    case DType::Float32:
      add_elements<float>(sum, gradient);
      return;
    case DType::Float64:
      add_elements<double>(sum, gradient);
      return;
    default: {
      Tensor wide = sum.to(DType::Float32);
      add_elements<float>(wide, gradient.to(DType::Float32));
      sum = wide.to(sum.dtype());
    }
  }
}

}  // namespace detail

Tensor sum_to_size(const Tensor& gradient, const Dims& sizes) {
  if (gradient.sizes() == sizes) return gradient;
  QUANTA_CHECK(broadcast_sizes(gradient.sizes(), sizes, "sum_to_size") == gradient.sizes(),
               "sum_to_size: sizes: expected some that broadcast to {}, got {}", gradient.sizes(),
               sizes);
  return in_working_dtype(gradient, [&](auto zero, const Tensor& x) {
    using T = decltype(zero);
    const std::size_t rank = x.sizes().size();
    const std::size_t leading = rank - sizes.size();
    const auto is_summed = [&](std::size_t d) {
      return d < leading || (sizes[d - leading] == 1 && x.sizes()[d] != 1);
    };
    Tensor rest = x.contiguous();
    std::int64_t outer = 1;
    for (std::size_t d = 0; d < rank;) {
      if (!is_summed(d)) {
        outer *= x.sizes()[d++];
        continue;
      }
      std::int64_t middle = 1;
      while (d < rank && is_summed(d)) middle *= x.sizes()[d++];
      std::int64_t inner = 1;
      for (std::size_t i = d; i < rank; ++i) inner *= x.sizes()[i];
      rest = sum_middle<T>(rest, outer, middle, inner);
    }
    return rest.view(sizes);
  });
}

}  // namespace quanta::autograd
