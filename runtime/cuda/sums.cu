#include "quanta/runtime/cuda/sums.h"

#include "quanta/runtime/cuda/simt.h"
#include "quanta/runtime/cuda/walk.h"

namespace quanta::cuda {
namespace {

struct AddItems {
  static constexpr const char* kName = "add_items";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = AddParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.walk.count) return;
    const Places at = places_of(p.walk, i);
    if (p.is_double) {
      static_cast<double*>(p.to)[at.first] += static_cast<const double*>(p.from)[at.second];
    } else {
      static_cast<float*>(p.to)[at.first] += static_cast<const float*>(p.from)[at.second];
    }
  }
};

// Columns side by side: a thread for each.
template <typename T>
struct SumColumns {
  static constexpr const char* kName = "sum_columns";
  static constexpr int kThreads = 128;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = SumMiddleParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.outer * p.inner) return;
    const std::int64_t row = i / p.inner;
    const T* const x = static_cast<const T*>(p.x) + row * p.middle * p.inner + (i - row * p.inner);
    double sum = 0.0;
    for (std::int64_t m = 0; m < p.middle; ++m) sum += static_cast<double>(x[m * p.inner]);
    static_cast<T*>(p.sums)[i] = static_cast<T>(sum);
  }
};

// Few columns: a block for each, whose threads bring the elements that one of them adds up.
template <typename T>
struct SumColumn {
  static constexpr const char* kName = "sum_column";
  static constexpr int kThreads = 128;
  static constexpr int kTile = 8 * kThreads;
  static constexpr int kShared = kTile * static_cast<int>(sizeof(T));
  static constexpr bool kTogether = true;
  using Params = SumMiddleParams;
  static SIMT_DEVICE void run(const Params& p, unsigned char* shared) {
    T* const tile = reinterpret_cast<T*>(shared);
    const std::int64_t i = simt::block_x();
    const std::int64_t row = i / p.inner;
    const T* const x = static_cast<const T*>(p.x) + row * p.middle * p.inner + (i - row * p.inner);
    double sum = 0.0;
    for (std::int64_t begin = 0; begin < p.middle; begin += kTile) {
      const std::int64_t left = p.middle - begin;
      const int count = left < kTile ? static_cast<int>(left) : kTile;
      for (int k = simt::thread(); k < count; k += kThreads) tile[k] = x[(begin + k) * p.inner];
      simt::sync();
      if (simt::thread() == 0) {
        for (int k = 0; k < count; ++k) sum += static_cast<double>(tile[k]);
      }
      simt::sync();
    }
    if (simt::thread() == 0) static_cast<T*>(p.sums)[i] = static_cast<T>(sum);
  }
};

template <typename T>
void sum_middle_of(Device device, const SumMiddleParams& params) {
  constexpr std::int64_t kFewColumns = 32;
  const std::int64_t count = params.outer * params.inner;
  if (params.inner < kFewColumns && params.middle > 1) {
    simt::launch<SumColumn<T>>(device, simt::Grid{count, 1, 1}, params);
  } else {
    simt::launch<SumColumns<T>>(device, simt::grid_for(count, SumColumns<T>::kThreads), params);
  }
}

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void add_items(Device device, const AddParams& params) {
  simt::launch<AddItems>(device, simt::grid_for(params.walk.count), params);
}
void sum_middle(Device device, const SumMiddleParams& params) {
  params.is_double ? sum_middle_of<double>(device, params) : sum_middle_of<float>(device, params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
