#include "quanta/runtime/cuda/copy.h"

#include <cstddef>

#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/strided.h"
#include "quanta/runtime/tensor.h"

namespace quanta::cuda {

StridedWalk strided_walk(const Tensor& first, const Tensor& second) {
  static_assert(Dims::kMaxDims <= StridedWalk::kMostDims);
  const detail::StridedPair pair(first.sizes(), first.strides(), second.strides());
  StridedWalk walk;
  walk.rank = static_cast<int>(pair.sizes.size());
  walk.count = first.numel();
  for (std::size_t d = 0; d < pair.sizes.size(); ++d) {
    walk.sizes[d] = pair.sizes[d];
    walk.first[d] = pair.first[d];
    walk.second[d] = pair.second[d];
  }
  return walk;
}

void copy_same_dtype(const Tensor& to, const Tensor& from) {
  if (to.numel() == 0) return;
  const bool is_plain_copy =
      is_sub_byte(to.dtype()) || (to.strides() == from.strides() && to.is_dense());
  if (is_plain_copy) {
    driver(to.device()).copy_on_device(to.device_ptr(), from.device_ptr(), to.nbytes());
    return;
  }
  copy_items(to.device(), {.walk = strided_walk(to, from),
                           .from = from.device_ptr(),
                           .to = to.device_ptr(),
                           .item_bytes = static_cast<int>(item_size(to.dtype()))});
}

void copy_converting(const Tensor& to, const Tensor& from) {
  if (to.numel() == 0) return;
  convert_items(to.device(), {.walk = strided_walk(to, from),
                              .from = from.device_ptr(),
                              .to = to.device_ptr(),
                              .from_dtype = from.dtype(),
                              .to_dtype = to.dtype()});
}

void fill(const Tensor& to, double value) {
  if (to.numel() == 0) return;
  fill_items(
      to.device(),
      {.walk = strided_walk(to, to), .to = to.device_ptr(), .dtype = to.dtype(), .value = value});
}

void transfer(const Tensor& to, const Tensor& from) {
  const std::size_t bytes = to.nbytes();
  if (bytes == 0) return;
  if (from.device().is_cpu()) {
    driver(to.device()).copy_to_device(to.device_ptr(), from.data_ptr(), bytes);
  } else if (to.device().is_cpu()) {
    driver(from.device()).copy_to_host(to.data_ptr(), from.device_ptr(), bytes);
  } else {
    // Two devices have no way to each other that is always there.
    const Tensor between = from.cpu();
    driver(to.device()).copy_to_device(to.device_ptr(), between.data_ptr(), bytes);
  }
}

}  // namespace quanta::cuda
