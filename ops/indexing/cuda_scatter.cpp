#include "quanta/ops/indexing/cuda_scatter.h"

#include <limits>

#include "quanta/ops/cuda/runs.h"
#include "quanta/ops/cuda/sort.h"
#include "quanta/runtime/cuda/memory.h"
#include "quanta/runtime/tensor.h"

namespace quanta::cuda {
namespace {

// Dimensions that lie behind each other are one.
StridedWalk walk_over(const Dims& sizes, const Dims& strides) {
  StridedWalk walk;
  walk.count = product(sizes);
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 1) continue;
    if (walk.rank > 0 && walk.first[walk.rank - 1] == strides[d] * sizes[d]) {
      walk.sizes[walk.rank - 1] *= sizes[d];
      walk.first[walk.rank - 1] = strides[d];
      continue;
    }
    walk.sizes[walk.rank] = sizes[d];
    walk.first[walk.rank++] = strides[d];
  }
  return walk;
}

bool is_even(std::int64_t number) { return number % 2 == 0; }

bool are_aligned(const void* one, const void* other, const void* third, int bytes) {
  const auto all = reinterpret_cast<std::uintptr_t>(one) | reinterpret_cast<std::uintptr_t>(other) |
                   reinterpret_cast<std::uintptr_t>(third);
  return all % static_cast<std::uintptr_t>(bytes) == 0;
}

// Whether two neighbours in a slice can be moved as one item.
bool can_move_two(const PutParams& params) {
  const StridedWalk& items = params.items;
  const int last = items.rank - 1;
  if (last < 0 || params.item_bytes == 16 || items.first[last] != 1 ||
      !is_even(items.sizes[last]) ||
      !are_aligned(params.from, params.to, nullptr, 2 * params.item_bytes)) {
    return false;
  }
  for (int d = 0; d < last; ++d) {
    if (!is_even(items.first[d])) return false;
  }
  for (int d = 0; d < params.slices.rank; ++d) {
    if (!is_even(params.slices.first[d])) return false;
  }
  return true;
}

void move_two(PutParams& params) {
  params.item_bytes *= 2;
  params.length /= 2;
  params.items.sizes[params.items.rank - 1] /= 2;
  for (int d = 0; d + 1 < params.items.rank; ++d) params.items.first[d] /= 2;
  for (int d = 0; d < params.slices.rank; ++d) params.slices.first[d] /= 2;
}

const std::int64_t* numbers_of(const Tensor& targets) {
  return reinterpret_cast<const std::int64_t*>(targets.device_ptr());
}

}  // namespace

int widest_item(int bytes, std::int64_t count, const void* one, const void* other,
                const void* third) {
  while (bytes < 16 && is_even(count) && are_aligned(one, other, third, 2 * bytes)) {
    bytes *= 2;
    count /= 2;
  }
  return bytes;
}

void put_updates(const Tensor& targets, const Tensor& updates, const Tensor& out,
                 const SlicePlaces& places) {
  if (updates.numel() == 0) return;
  const Device device = out.device();
  PutParams params;
  params.targets = numbers_of(targets);
  params.updates = targets.numel();
  params.length = product(places.rest);
  params.slices = walk_over(places.sizes, places.strides);
  params.items = walk_over(places.rest, places.rest_strides);
  params.from = updates.device_ptr();
  params.to = out.device_ptr();
  params.item_bytes = static_cast<int>(item_size(out.dtype()));
  while (can_move_two(params)) move_two(params);
  // What fits in a tile is put in order by one block; beyond, a look at each target costs less, but
  // for a few in a large tensor.
  constexpr std::int64_t kManySlices = 16;  // for each update
  const std::int64_t slices = params.slices.count;
  const bool is_sparse = slices / kManySlices > params.updates;
  if (params.updates <= kSortTile || is_sparse ||
      params.updates > std::numeric_limits<std::int32_t>::max()) {
    const Runs runs = sort_targets(device, params.targets, params.updates, slices);
    params.targets = runs.targets.as<std::int64_t>();
    params.order = runs.order.as<std::int64_t>();
    put_items(device, params);
    return;
  }
  const Buffer winners(device, static_cast<std::size_t>(slices) * sizeof(std::int32_t));
  driver(device).fill(winners.as<void>(), 0xFF, winners.bytes());
  choose_winners(device, {params.targets, params.updates, winners.as<std::int32_t>()});
  params.winners = winners.as<std::int32_t>();
  put_items(device, params);
}

void combine_updates(math::Combine how, const Tensor& targets, std::int64_t length,
                     const Tensor& updates, const Tensor& out) {
  combine_updates(out.device(), {.dtype = out.dtype(),
                                 .how = how,
                                 .targets = numbers_of(targets),
                                 .updates = targets.numel(),
                                 .slices = out.numel() / length,
                                 .length = length,
                                 .from = updates.device_ptr(),
                                 .to = out.device_ptr()});
}

}  // namespace quanta::cuda
