#include "quanta/ops/cuda/pick.h"

#include <algorithm>

#include "quanta/ops/cuda/fault.h"
#include "quanta/runtime/tensor.h"

namespace quanta::cuda {
namespace {

bool is_even(std::int64_t number) { return number % 2 == 0; }

// Whether neighbours in the last dimension lie side by side, whatever the positions are, and two of
// them can be moved as one item.
bool can_move_two(const PickParams& params) {
  const StridedWalk& walk = params.walk;
  const int last = walk.rank - 1;
  const auto item = std::uintptr_t{2} * static_cast<std::uintptr_t>(params.item_bytes);
  if (last < 0 || params.item_bytes == 16 || !is_even(walk.sizes[last]) || walk.first[last] != 1 ||
      walk.second[last] != 1 || reinterpret_cast<std::uintptr_t>(params.from) % item != 0 ||
      reinterpret_cast<std::uintptr_t>(params.to) % item != 0) {
    return false;
  }
  for (int d = 0; d < last; ++d) {
    if (!is_even(walk.first[d]) || !is_even(walk.second[d])) return false;
  }
  return std::all_of(params.index, params.index + params.count,
                     [&](const PickParams::Index& index) {
                       return index.strides[last] == 0 && is_even(index.step);
                     });
}

void move_two(PickParams& params) {
  StridedWalk& walk = params.walk;
  const int last = walk.rank - 1;
  params.item_bytes *= 2;
  walk.count /= 2;
  walk.sizes[last] /= 2;
  for (int d = 0; d < last; ++d) {
    walk.first[d] /= 2;
    walk.second[d] /= 2;
  }
  for (int i = 0; i < params.count; ++i) params.index[i].step /= 2;
}

}  // namespace

PickParams::Index index_of(const PickedDim& dim) {
  PickParams::Index index;
  index.positions = dim.positions.device_ptr();
  index.is_long = dim.positions.dtype() == DType::Int64;
  std::copy(dim.strides.begin(), dim.strides.end(), index.strides);
  index.low = dim.low;
  index.length = dim.length;
  index.step = dim.step;
  return index;
}

bool pick(const Tensor& x, const Tensor& out, const Dims& strides,
          std::span<const PickedDim> positions) {
  static_assert(Dims::kMaxDims <= StridedWalk::kMostDims);
  if (out.numel() == 0) return true;
  PickParams params;
  params.walk.rank = static_cast<int>(out.dim());
  params.walk.count = out.numel();
  params.from = x.device_ptr();
  params.to = out.device_ptr();
  params.item_bytes = static_cast<int>(item_size(x.dtype()));
  for (std::size_t d = 0; d < out.sizes().size(); ++d) {
    params.walk.sizes[d] = out.sizes()[d];
    params.walk.first[d] = out.strides()[d];
    params.walk.second[d] = strides[d];
  }
  for (const PickedDim& dim : positions) params.index[params.count++] = index_of(dim);
  while (can_move_two(params)) move_two(params);
  const Fault fault(out.device());
  params.fault = fault.flag();
  pick_items(out.device(), params);
  return !fault.is_raised();
}

}  // namespace quanta::cuda
