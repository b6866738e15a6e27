#include "quanta/ops/embedding/cuda_kernels.h"

#include "quanta/ops/embedding/cuda_bag.h"
#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {
namespace {

struct CheckBagRows {
  static constexpr const char* kName = "check_bag_rows";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = BagRows;
  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i < p.count && !is_row(p, at(p.indices, i))) simt::atomic_max(p.fault, 1);
  }
};

/// A thread sums four columns of a bag, one row after the other as the CPU does.
struct SumCodeBags {
  static constexpr const char* kName = "sum_code_bags";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  static constexpr int kEach = 4;
  using Params = CodeBagParams;

  struct alignas(16) Sums {
    float values[kEach];
  };

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t columns = p.layout.columns;
    const std::int64_t pieces = (columns + kEach - 1) / kEach;
    const std::int64_t i = simt::global_thread();
    if (i >= p.bags.bags * pieces) return;
    const std::int64_t b = i / pieces;
    const std::int64_t first = i % pieces * kEach;
    const Bag bag = bag_of(p.bags, b);
    Sums sums = {};
    for (std::int64_t k = bag.begin; k < bag.end; ++k) {
      const std::int64_t index = at(p.bags.indices, k);
      if (!is_row(p.bags, index)) return simt::atomic_max(p.bags.fault, 1);
      const std::uint8_t* const row = p.table + index * p.layout.row_bytes();
      // A factor of 0 leaves a padding row out.
      const float given = p.factors == nullptr ? 1.0F : p.factors[k];
      const float factor = index == p.bags.padding ? 0.0F : given;
      const detail::RowParameters parameters = p.layout.parameters(row);
      const float scale = parameters.scale * factor;
      const float bias = parameters.bias * factor;
      for (int c = 0; c < kEach; ++c) {
        if (first + c >= columns) break;
        sums.values[c] += detail::EmbeddingRows::value(p.layout.code(row, first + c), scale, bias);
      }
    }
    float* const out = p.out + b * columns + first;
    if (columns % kEach == 0) {
      simt::store(out, sums);
    } else {
      for (int c = 0; c < kEach && first + c < columns; ++c) out[c] = sums.values[c];
    }
  }
};

template <typename T>
struct ReduceFloatBags {
  static constexpr const char* kName = "reduce_float_bags";
  static constexpr int kThreads = 256;
  static constexpr int kShared = 0;
  static constexpr bool kTogether = false;
  using Params = FloatBagParams;

  static SIMT_DEVICE void run(const Params& p, unsigned char*) {
    const std::int64_t i = simt::global_thread();
    if (i >= p.bags.bags * p.columns) return;
    const Bag bag = bag_of(p.bags, i / p.columns);
    const T* const column = static_cast<const T*>(p.table) + i % p.columns;
    T result = T{0};
    std::int64_t used = 0;
    for (std::int64_t k = bag.begin; k < bag.end; ++k) {
      const std::int64_t index = at(p.bags.indices, k);
      if (!is_row(p.bags, index)) return simt::atomic_max(p.bags.fault, 1);
      if (index == p.bags.padding) continue;
      const T value = column[index * p.columns];
      if (p.mode == BagMode::Max) {
        if (used == 0 || value > result) result = value;
      } else {
        result += value * (p.factors == nullptr ? T{1} : static_cast<const T*>(p.factors)[k]);
      }
      ++used;
    }
    if (p.mode == BagMode::Mean && used > 1) result /= static_cast<T>(used);
    static_cast<T*>(p.out)[i] = result;
  }
};

}  // namespace

namespace QUANTA_SIMT_BACKEND {

void check_bag_rows(Device device, const BagRows& params) {
  simt::launch<CheckBagRows>(device, simt::grid_for(params.count), params);
}
void sum_code_bags(Device device, const CodeBagParams& params) {
  constexpr int kEach = SumCodeBags::kEach;
  const std::int64_t pieces = (params.layout.columns + kEach - 1) / kEach;
  simt::launch<SumCodeBags>(device, simt::grid_for(params.bags.bags * pieces), params);
}
void reduce_float_bags(Device device, const FloatBagParams& params) {
  const simt::Grid grid = simt::grid_for(params.bags.bags * params.columns);
  if (params.dtype == DType::Float32) {
    return simt::launch<ReduceFloatBags<float>>(device, grid, params);
  }
  simt::launch<ReduceFloatBags<double>>(device, grid, params);
}

}  // namespace QUANTA_SIMT_BACKEND
}  // namespace quanta::cuda
