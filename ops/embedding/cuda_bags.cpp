#include "quanta/ops/embedding/cuda_bags.h"

#include "quanta/runtime/check.h"

namespace quanta::detail {

cuda::Integers CudaBags::integers(const Tensor& x) const {
  return {x.device_ptr(), x.dtype() == DType::Int64};
}

CudaBags::CudaBags(const BagCall& call, std::int64_t bags, std::int64_t rows,
                   std::optional<std::int64_t> padding_idx)
    : op_(call.op),
      indices_(call.indices.contiguous()),
      offsets_(call.offsets.defined() ? call.offsets.contiguous() : Tensor()),
      include_last_offset_(call.include_last_offset),
      fault_(indices_.device()) {
  rows_.indices = integers(indices_);
  rows_.count = indices_.numel();
  if (offsets_.defined()) {
    rows_.offsets = integers(offsets_);
    rows_.has_last_offset = include_last_offset_;
  } else {
    rows_.bag_size = indices_.sizes()[1];
  }
  rows_.bags = bags;
  rows_.rows = rows;
  rows_.padding = padding_idx.value_or(-1);
  rows_.fault = fault_.flag();
  // Bags may end before the indices do.
  if (rows_.has_last_offset) cuda::check_bag_rows(indices_.device(), rows_);
}

CudaBags::CudaBags(std::string_view op, const Tensor& indices, std::int64_t rows)
    : op_(op), indices_(indices.contiguous()), fault_(indices.device()) {
  rows_.indices = integers(indices_);
  rows_.count = indices_.numel();
  rows_.bag_size = 1;
  rows_.bags = indices_.numel();
  rows_.rows = rows;
  rows_.fault = fault_.flag();
}

void CudaBags::require_inside() const {
  if (!fault_.is_raised()) return;
  const Tensor indices = indices_.cpu();
  checked_indices(op_, indices, rows_.rows);
  const Tensor offsets = offsets_.defined() ? offsets_.cpu() : Tensor();
  BagCall{op_, indices, offsets, include_last_offset_}.ends();
  throw InternalError("embedding: indices: expected a fault that the host finds as well");
}

}  // namespace quanta::detail
