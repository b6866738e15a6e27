#include "quanta/ops/detail/scatter.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "quanta/ops/cuda/runs.h"
#include "quanta/ops/cuda/targets.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/parallel.h"

namespace quanta::detail {
namespace {

// Work in float or double; gradients of the smaller floating dtypes are summed as float.
template <typename Body>
Tensor in_working_dtype(const Tensor& gradient, const Body& body) {
  const DType dtype = gradient.dtype();
  const Tensor from = is_float32_or_64(dtype) ? gradient : gradient.to(DType::Float32);
  return visit_floats(from.dtype(),
                      [&](auto zero) { return body(zero, from.contiguous()).to(dtype); });
}

const std::int64_t* numbers_of(const Tensor& positions) {
  return reinterpret_cast<const std::int64_t*>(positions.device_ptr());
}

// gradient [repeats, index.numel(), length] is added to zeros [repeats, ..., length] on a CUDA
// device.
Tensor add_on_device(const Tensor& gradient, const Tensor& index, const Dims& sizes,
                     std::int64_t repeats, std::int64_t length, Places places) {
  const DType dtype = gradient.dtype();
  const Tensor from =
      (is_float32_or_64(dtype) ? gradient : gradient.to(DType::Float32)).contiguous();
  const Tensor sum = Tensor::empty(sizes, from.dtype(), MemoryFormat::Contiguous, from.device());
  sum.fill_(0.0);
  if (from.numel() == 0) return sum.to(dtype);
  cuda::RunParams params;
  params.dtype = from.dtype();
  params.how = math::Combine::Add;
  params.targets = numbers_of(index);
  params.updates = index.numel();
  params.slices = sum.numel() / (repeats * length);
  params.length = length;
  params.repeats = repeats;
  params.from = from.device_ptr();
  params.from_slices = params.updates;
  params.to = sum.device_ptr();
  if (places == Places::Distinct) {
    cuda::combine_runs(from.device(), params);
  } else {
    cuda::combine_updates(from.device(), params);
  }
  return sum.to(dtype);
}

}  // namespace

// gradient [outer, index.numel(), inner] is added to zeros [outer, length, inner].
Tensor add_slices(const Tensor& gradient, const Tensor& index, const Dims& sizes,
                  std::int64_t dim) {
  const auto axis = static_cast<std::size_t>(dim);
  std::int64_t outer = 1;
  std::int64_t inner = 1;
  for (std::size_t d = 0; d < axis; ++d) outer *= sizes[d];
  for (std::size_t d = axis + 1; d < sizes.size(); ++d) inner *= sizes[d];
  if (gradient.device().is_cuda()) {
    return add_on_device(gradient, index, sizes, outer, inner, Places::Any);
  }
  const std::int64_t length = sizes.empty() ? 1 : sizes[axis];
  const auto* at = index.data<std::int64_t>();
  const std::int64_t count = index.numel();
  return in_working_dtype(gradient, [&](auto zero, const Tensor& from) {
    using T = decltype(zero);
    const Tensor sum = Tensor::zeros(sizes, from.dtype());
    const auto* slices = static_cast<const T*>(from.data_ptr());
    auto* to = static_cast<T*>(sum.data_ptr());
    // Columns go to threads, so that each sum is taken by one, in order.
    constexpr std::int64_t kBlock = 64;
    const std::int64_t blocks = ceil_div(inner, kBlock);
    const std::int64_t work = std::max<std::int64_t>(1, count * std::min(inner, kBlock));
    parallel_for(outer * blocks, std::max<std::int64_t>(1, 32768 / work),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t item = begin; item < end; ++item) {
                     const std::int64_t row = item / blocks;
                     const std::int64_t first = item % blocks * kBlock;
                     const std::int64_t width = std::min(kBlock, inner - first);
                     for (std::int64_t i = 0; i < count; ++i) {
                       const T* slice = slices + (row * count + i) * inner + first;
                       T* target = to + (row * length + at[i]) * inner + first;
                       for (std::int64_t k = 0; k < width; ++k) target[k] += slice[k];
                     }
                   }
                 });
    return sum;
  });
}

Tensor positions_of(const Dims& sizes, Device device) {
  if (device.is_cuda()) {
    const Tensor positions = Tensor::empty(sizes, DType::Int64, MemoryFormat::Contiguous, device);
    cuda::count_up(device, {.count = positions.numel(),
                            .to = reinterpret_cast<std::int64_t*>(positions.device_ptr())});
    return positions;
  }
  return Tensor::arange(product(sizes), DType::Int64).view(sizes);
}

Tensor wrapped_positions(const Tensor& positions, std::int64_t length) {
  if (positions.device().is_cuda()) {
    const cuda::PickedDim picked{positions, positions.strides(), -length, length, 1};
    return cuda::targets_of(positions.device(), positions.sizes(),
                            Dims::filled(positions.sizes().size(), 0), {&picked, 1});
  }
  const Tensor result = positions.clone();
  auto* at = result.mutable_data<std::int64_t>();
  for (std::int64_t i = 0; i < result.numel(); ++i) at[i] += at[i] < 0 ? length : 0;
  return result;
}

Tensor positions_along(const Tensor& index, std::int64_t dim, const Dims& sizes) {
  if (index.device().is_cuda()) {
    Dims steps = contiguous_strides(sizes);
    std::int64_t step = 0;  // of a 0-d tensor there is one element only
    std::int64_t length = 1;
    if (!sizes.empty()) {
      const auto axis = static_cast<std::size_t>(dim);
      step = steps[axis];
      steps[axis] = 0;
      length = sizes[axis];
    }
    const cuda::PickedDim picked{index, index.strides(), 0, length, step};
    return cuda::targets_of(index.device(), index.sizes(), steps, {&picked, 1});
  }
  const Tensor at = index.contiguous();
  const Tensor positions = Tensor::empty(at.sizes(), DType::Int64);
  if (positions.numel() == 0) return positions;
  const Dims strides = contiguous_strides(sizes);
  const auto* chosen = at.data<std::int64_t>();
  auto* to = positions.mutable_data<std::int64_t>();
  for (std::int64_t i = 0; i < positions.numel(); ++i) {
    std::int64_t rest = i;
    std::int64_t position = 0;
    for (std::size_t d = sizes.size(); d-- > 0;) {
      const std::int64_t here = rest % at.sizes()[d];
      rest /= at.sizes()[d];
      position += (static_cast<std::int64_t>(d) == dim ? chosen[i] : here) * strides[d];
    }
    // Of a 0-d tensor there is one element only.
    to[i] = position;
  }
  return positions;
}

Tensor scatter_add(const Tensor& gradient, const Tensor& positions, const Dims& sizes,
                   Places places) {
  const Tensor at = positions.contiguous();
  if (gradient.device().is_cuda()) return add_on_device(gradient, at, sizes, 1, 1, places);
  return in_working_dtype(gradient, [&](auto zero, const Tensor& from) {
    using T = decltype(zero);
    const Tensor sum = Tensor::zeros(sizes, from.dtype());
    const auto* gradients = static_cast<const T*>(from.data_ptr());
    const auto* where = at.data<std::int64_t>();
    auto* to = static_cast<T*>(sum.data_ptr());
    for (std::int64_t i = 0; i < from.numel(); ++i) to[where[i]] += gradients[i];
    return sum;
  });
}

}  // namespace quanta::detail
