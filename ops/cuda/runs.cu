#include "quanta/ops/cuda/runs.h"

#include <type_traits>

#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {
namespace {

template <typename T>
struct CombineRuns {
  static constexpr const char* kName = "combine_runs";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = RunParams;

  static SIMT_DEVICE T update_at(const Params& p, const T* from, std::int64_t update) {
    const std::int64_t source = p.sources == nullptr ? update : p.sources[update];
    const T value = from[source * p.length];
    if constexpr (std::is_floating_point_v<T>) {
      if (p.factors != nullptr) return value * static_cast<const T*>(p.factors)[update];
    }
    return value;
  }

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t row = simt::global_thread() / p.length;
    const std::int64_t element = simt::global_thread() - row * p.length;
    const std::int64_t part = row / p.updates;
    if (part >= p.repeats) return;
    std::int64_t k = row - part * p.updates;
    const std::int64_t target = p.targets[k];
    if (target < 0 || target >= p.slices) return;
    const T* const from = static_cast<const T*>(p.from) + part * p.from_slices * p.length + element;
    T* const to = static_cast<T*>(p.to) + (part * p.slices + target) * p.length + element;
    if (p.order == nullptr) {
      *to = math::combine(p.how, *to, update_at(p, from, k));
      return;
    }
    if (k > 0 && p.targets[k - 1] == target) return;  // not the first of its run
    T value = *to;
    do {
      value = math::combine(p.how, value, update_at(p, from, p.order[k]));
      ++k;
    } while (k < p.updates && p.targets[k] == target);
    *to = value;
  }
};

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void combine_runs(Device device, const RunParams& params) {
  const simt::Grid grid = simt::grid_for(params.repeats * params.updates * params.length);
  switch (params.dtype) {
    case DType::Float32:
      return simt::launch<CombineRuns<float>>(device, grid, params);
    case DType::Float64:
      return simt::launch<CombineRuns<double>>(device, grid, params);
    case DType::UInt8:
    case DType::Bool:
      return simt::launch<CombineRuns<std::uint8_t>>(device, grid, params);
    case DType::Int8:
      return simt::launch<CombineRuns<std::int8_t>>(device, grid, params);
    case DType::Int16:
      return simt::launch<CombineRuns<std::int16_t>>(device, grid, params);
    case DType::UInt16:
      return simt::launch<CombineRuns<std::uint16_t>>(device, grid, params);
    case DType::Int32:
      return simt::launch<CombineRuns<std::int32_t>>(device, grid, params);
    default:
      return simt::launch<CombineRuns<std::int64_t>>(device, grid, params);
  }
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
