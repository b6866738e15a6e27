#include "quanta/ops/embedding/cuda_gradient.h"

#include "quanta/ops/embedding/cuda_bag.h"
#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {
namespace {

// The last bag that begins at index i or before it; -1 for an index behind the last bag.
SIMT_DEVICE std::int64_t bag_with(const BagRows& p, std::int64_t i) {
  if (p.offsets.data == nullptr) return i / p.bag_size;
  if (p.has_last_offset && i >= at(p.offsets, p.bags)) return -1;
  std::int64_t low = 0;
  std::int64_t high = p.bags;
  while (low + 1 < high) {
    const std::int64_t middle = (low + high) / 2;
    if (at(p.offsets, middle) <= i) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// The bag that counts index i; -1: none.
SIMT_DEVICE std::int64_t counting_bag(const BagRows& p, std::int64_t i) {
  return at(p.indices, i) == p.padding ? -1 : bag_with(p, i);
}

struct CountUsedIndices {
  static constexpr const char* kName = "count_used_indices";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = BagGradientParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.bags.count) return;
    const std::int64_t bag = counting_bag(p.bags, i);
    if (bag >= 0) simt::atomic_add(p.used + bag, 1);
  }
};

template <typename T>
struct ShareBags {
  static constexpr const char* kName = "share_bags";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = BagGradientParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.bags.count) return;
    const std::int64_t bag = counting_bag(p.bags, i);
    p.rows[i] = bag < 0 ? p.bags.rows : at(p.bags.indices, i);
    p.sources[i] = bag;
    if (bag < 0) return;
    const T share = p.mode == BagMode::Mean ? T{1} / static_cast<T>(p.used[bag]) : T{1};
    static_cast<T*>(p.shares)[i] =
        p.factors == nullptr ? share : static_cast<const T*>(p.factors)[i] * share;
  }
};

template <typename T>
struct SumFactorGradients {
  static constexpr const char* kName = "sum_factor_gradients";
  static constexpr int kThreads = 128;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = BagGradientParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.bags.count) return;
    const std::int64_t bag = counting_bag(p.bags, i);
    T sum{};
    if (bag >= 0) {
      const T* const row = static_cast<const T*>(p.table) + at(p.bags.indices, i) * p.columns;
      const T* const gradient = static_cast<const T*>(p.gradient) + bag * p.columns;
      for (std::int64_t c = 0; c < p.columns; ++c) sum += gradient[c] * row[c];
    }
    static_cast<T*>(p.factor_gradients)[i] = T{} + sum;
  }
};

template <typename T>
struct FindLargestRows {
  static constexpr const char* kName = "find_largest_rows";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = BagGradientParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.bags.bags * p.columns) return;
    const Bag bag = bag_of(p.bags, i / p.columns);
    const std::int64_t column = i % p.columns;
    const T* const table = static_cast<const T*>(p.table) + column;
    std::int64_t best = p.bags.rows;
    T largest{};
    for (std::int64_t k = bag.begin; k < bag.end; ++k) {
      const std::int64_t row = at(p.bags.indices, k);
      if (row == p.bags.padding) continue;
      const T value = table[row * p.columns];
      if (best < p.bags.rows && !(value > largest)) continue;
      best = row;
      largest = value;
    }
    p.largest[i] = best < p.bags.rows ? best * p.columns + column : p.bags.rows * p.columns;
  }
};

template <template <typename> typename Kernel>
void launch_for(Device device, std::int64_t count, const BagGradientParams& params) {
  const simt::Grid grid = simt::grid_for(count, Kernel<float>::kThreads);
  if (params.dtype == DType::Float32) return simt::launch<Kernel<float>>(device, grid, params);
  simt::launch<Kernel<double>>(device, grid, params);
}

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void count_used_indices(Device device, const BagGradientParams& params) {
  simt::launch<CountUsedIndices>(device, simt::grid_for(params.bags.count), params);
}
void share_bags(Device device, const BagGradientParams& params) {
  launch_for<ShareBags>(device, params.bags.count, params);
}
void sum_factor_gradients(Device device, const BagGradientParams& params) {
  launch_for<SumFactorGradients>(device, params.bags.count, params);
}
void find_largest_rows(Device device, const BagGradientParams& params) {
  launch_for<FindLargestRows>(device, params.bags.bags * params.columns, params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
