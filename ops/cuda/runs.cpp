#include "quanta/ops/cuda/runs.h"

#include <bit>

#include "quanta/ops/cuda/sort.h"

namespace quanta::cuda {

Runs sort_targets(Device device, const std::int64_t* targets, std::int64_t updates,
                  std::int64_t slices) {
  const std::size_t bytes = static_cast<std::size_t>(updates) * sizeof(std::int64_t);
  Runs runs{Buffer(device, bytes), Buffer(device, bytes)};
  SortCall call;
  call.dtype = DType::Int64;
  call.x = targets;
  call.length = updates;
  call.keep = updates;
  // Targets below 0 get the largest key of so many bits.
  call.key_bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(slices)));
  call.values = runs.targets.as<void>();
  call.positions = runs.order.as<std::int64_t>();
  sort_rows(device, call);
  return runs;
}

void combine_updates(Device device, RunParams params) {
  if (params.updates == 0 || params.length == 0) return;
  const Runs runs = sort_targets(device, params.targets, params.updates, params.slices);
  params.targets = runs.targets.as<std::int64_t>();
  params.order = runs.order.as<std::int64_t>();
  combine_runs(device, params);
}

}  // namespace quanta::cuda
