#pragma once

// Private: where index tensors say that updates go, on a CUDA device.

#include <optional>
#include <span>

#include "quanta/ops/cuda/pick.h"

namespace quanta {
class Tensor;
}

namespace quanta::cuda {

struct TargetParams {
  StridedWalk walk;  // over the updates; first: what each dimension adds to the target
  int count = 0;     // of index tensors
  PickParams::Index index[StridedWalk::kMostDims];
  std::int64_t* to = nullptr;
  std::int32_t* fault = nullptr;  // 0 before; null: nobody asks
};
/// A target for each update; -1 where a position is outside, which raises `fault`.
QUANTA_CUDA_ENTRY(name_targets, TargetParams)

/// For updates of these sizes: the number that `steps` (for each dimension) and the positions, each
/// times its step, add up to. Int64, dense. -1 where a position is outside.
Tensor targets_of(Device device, const Dims& sizes, const Dims& steps,
                  std::span<const PickedDim> positions);
/// The same; nothing when a position is outside. Waits for the device.
std::optional<Tensor> checked_targets(Device device, const Dims& sizes, const Dims& steps,
                                      std::span<const PickedDim> positions);

struct CountUpParams {
  std::int64_t count = 0;
  std::int64_t* to = nullptr;
};
/// to = 0, 1, ...
QUANTA_CUDA_ENTRY(count_up, CountUpParams)

}  // namespace quanta::cuda
