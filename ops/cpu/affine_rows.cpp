#include "quanta/ops/cpu/affine_rows.h"

namespace quanta::cpu {
namespace {

// A row of more elements with one parameter is cut where its length allows, so that several threads
// can share it.
constexpr std::int64_t kLongestRow = 8192;

std::int64_t cut_length(std::int64_t length) {
  constexpr std::int64_t kShortestRow = 512;
  for (std::int64_t part = kLongestRow; part >= kShortestRow; part /= 2) {
    if (length % part == 0) return part;
  }
  return length;
}

}  // namespace

AffineRows::AffineRows(const AffineLayout& layout) {
  Dims sizes;
  Dims strides;
  for (std::size_t d = 0; d < layout.sizes.size(); ++d) {
    const std::int64_t size = layout.sizes[d];
    const std::int64_t stride = layout.strides[d];
    if (size == 1) continue;
    if (sizes.size() > 0 && strides.back() == stride * size) {
      sizes[sizes.size() - 1] *= size;
      strides[sizes.size() - 1] = stride;
    } else {
      sizes.push_back(size);
      strides.push_back(stride);
    }
  }
  if (product(layout.sizes) == 0) return;
  length_ = sizes.empty() ? 1 : sizes.back();
  step_ = sizes.empty() ? 0 : strides.back();
  if (!sizes.empty()) {
    sizes.erase(sizes.size() - 1);
    strides.erase(strides.size() - 1);
  }
  if (step_ == 0 && length_ > kLongestRow) {
    const std::int64_t part = cut_length(length_);
    sizes.push_back(length_ / part);
    strides.push_back(0);
    length_ = part;
  }
  count_ = product(sizes);
  if (!sizes.empty()) {
    run_ = sizes.back();
    run_stride_ = strides.back();
    sizes.erase(sizes.size() - 1);
    strides.erase(strides.size() - 1);
  }
  outer_sizes_ = sizes;
  outer_strides_ = strides;
}

std::int64_t AffineRows::run_start(std::int64_t index) const {
  std::int64_t start = 0;
  for (std::size_t d = outer_sizes_.size(); d-- > 0;) {
    start += index % outer_sizes_[d] * outer_strides_[d];
    index /= outer_sizes_[d];
  }
  return start;
}

}  // namespace quanta::cpu
