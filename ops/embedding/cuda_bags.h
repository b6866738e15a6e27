#pragma once

// Private: the bags of a call on a CUDA device.

#include <optional>

#include "quanta/ops/cuda/fault.h"
#include "quanta/ops/embedding/cuda_kernels.h"
#include "quanta/ops/embedding/indices.h"

namespace quanta::detail {

/// Indices and offsets, dense on the device, and the flag that kernels raise for those that do not
/// fit.
class CudaBags {
 public:
  /// Of a table with so many rows. `bags` is what call.count() says.
  CudaBags(const BagCall& call, std::int64_t bags, std::int64_t rows,
           std::optional<std::int64_t> padding_idx);
  /// Each index is a bag.
  CudaBags(std::string_view op, const Tensor& indices, std::int64_t rows);

  const cuda::BagRows& rows() const noexcept { return rows_; }
  /// Waits for the device, once for each call: no result is handed out before its indices are known
  /// to be right. Throws what the CPU throws.
  void require_inside() const;

 private:
  cuda::Integers integers(const Tensor& x) const;

  std::string_view op_;
  Tensor indices_, offsets_;
  bool include_last_offset_ = false;
  cuda::Fault fault_;
  cuda::BagRows rows_;
};

}  // namespace quanta::detail
