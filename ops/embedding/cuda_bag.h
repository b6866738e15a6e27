#pragma once

// Private, for .cu files only: bags and the indices in them.

#include "quanta/ops/embedding/cuda_kernels.h"
#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {

SIMT_DEVICE std::int64_t at(const Integers& integers, std::int64_t i) {
  if (integers.data == nullptr) return i;
  return integers.is_long ? static_cast<const std::int64_t*>(integers.data)[i]
                          : static_cast<const std::int32_t*>(integers.data)[i];
}

SIMT_DEVICE bool is_row(const BagRows& p, std::int64_t index) {
  return index >= 0 && index < p.rows;
}

struct Bag {
  std::int64_t begin;
  std::int64_t end;
};
/// Empty where the offsets do not fit.
SIMT_DEVICE Bag bag_of(const BagRows& p, std::int64_t b) {
  if (p.offsets.data == nullptr) return {b * p.bag_size, (b + 1) * p.bag_size};
  const std::int64_t begin = at(p.offsets, b);
  const bool goes_on = !p.has_last_offset && b + 1 == p.bags;
  const std::int64_t end = goes_on ? p.count : at(p.offsets, b + 1);
  const bool fits = begin >= 0 && begin <= end && end <= p.count && (b > 0 || begin == 0);
  if (fits) return {begin, end};
  simt::atomic_max(p.fault, 1);
  return {0, 0};
}

}  // namespace quanta::cuda
