#pragma once

// Private: copies, conversions and fills on a CUDA device.

#include <cstdint>

#include "quanta/runtime/cuda/launch.h"
#include "quanta/runtime/dtype.h"

namespace quanta {
class Tensor;
}

namespace quanta::cuda {

/// Where the elements of two tensors of the same sizes lie, the innermost dimension last. Strides
/// in elements.
struct StridedWalk {
  static constexpr int kMostDims = 10;
  int rank = 0;
  std::int64_t count = 0;
  std::int64_t sizes[kMostDims] = {};
  std::int64_t first[kMostDims] = {};
  std::int64_t second[kMostDims] = {};
};

struct StridedCopyParams {
  StridedWalk walk;  // first: to, second: from
  const void* from = nullptr;
  void* to = nullptr;
  int item_bytes = 0;  // 1, 2, 4 or 8
};
QUANTA_CUDA_ENTRY(copy_items, StridedCopyParams)

struct ConvertParams {
  StridedWalk walk;  // first: to, second: from
  const void* from = nullptr;
  void* to = nullptr;
  DType from_dtype{};
  DType to_dtype{};
};
QUANTA_CUDA_ENTRY(convert_items, ConvertParams)

struct FillParams {
  StridedWalk walk;  // first
  void* to = nullptr;
  DType dtype{};
  double value = 0.0;
};
QUANTA_CUDA_ENTRY(fill_items, FillParams)

/// The walk over tensors of the same sizes.
StridedWalk strided_walk(const Tensor& first, const Tensor& second);

/// The bytes of `from`, which has the dtype and sizes of `to`, any strides; both on one device.
void copy_same_dtype(const Tensor& to, const Tensor& from);
/// Between plain dtypes, as Tensor::to converts.
void copy_converting(const Tensor& to, const Tensor& from);
/// Plain dtypes.
void fill(const Tensor& to, double value);

/// Between devices, or the host and one: tensors of the same dtype, sizes and strides whose
/// elements lie without gaps.
void transfer(const Tensor& to, const Tensor& from);

}  // namespace quanta::cuda
