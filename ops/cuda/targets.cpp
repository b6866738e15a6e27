#include "quanta/ops/cuda/targets.h"

#include <algorithm>

#include "quanta/ops/cuda/fault.h"
#include "quanta/runtime/tensor.h"

namespace quanta::cuda {
namespace {

Tensor name(Device device, const Dims& sizes, const Dims& steps,
            std::span<const PickedDim> positions, std::int32_t* fault) {
  const Tensor targets = Tensor::empty(sizes, DType::Int64, MemoryFormat::Contiguous, device);
  TargetParams params;
  params.walk.rank = static_cast<int>(sizes.size());
  params.walk.count = targets.numel();
  std::copy(sizes.begin(), sizes.end(), params.walk.sizes);
  std::copy(steps.begin(), steps.end(), params.walk.first);
  for (const PickedDim& dim : positions) params.index[params.count++] = index_of(dim);
  params.to = reinterpret_cast<std::int64_t*>(targets.device_ptr());
  params.fault = fault;
  name_targets(device, params);
  return targets;
}

}  // namespace

Tensor targets_of(Device device, const Dims& sizes, const Dims& steps,
                  std::span<const PickedDim> positions) {
  return name(device, sizes, steps, positions, nullptr);
}

std::optional<Tensor> checked_targets(Device device, const Dims& sizes, const Dims& steps,
                                      std::span<const PickedDim> positions) {
  const Fault fault(device);
  Tensor targets = name(device, sizes, steps, positions, fault.flag());
  if (fault.is_raised()) return std::nullopt;
  return targets;
}

}  // namespace quanta::cuda
