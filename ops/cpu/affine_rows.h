#pragma once

// Private: which parameter of a quantizer belongs to which element, when parameters are broadcast
// or belong to blocks.

#include <algorithm>
#include <cstdint>

#include "quanta/runtime/dims.h"

namespace quanta::cpu {

/// Which parameter belongs to which element of a contiguous tensor: the element at `index` of
/// `sizes` has the parameter at the scalar product of `index` and `strides`. A blocked axis is two
/// axes here, of which the inner one has a stride of 0.
struct AffineLayout {
  Dims sizes;
  Dims strides;
  std::int64_t parameters = 1;
};

/// The layout as rows: memory is rows of `length` elements. A row has one parameter, or (`step` 1)
/// neighbouring parameters for neighbouring elements. Rows come in runs of `run`, within which the
/// first parameter moves by `run_stride`.
class AffineRows {
 public:
  explicit AffineRows(const AffineLayout& layout);

  std::int64_t count() const noexcept { return count_; }
  std::int64_t length() const noexcept { return length_; }
  std::int64_t step() const noexcept { return step_; }
  std::int64_t run_stride() const noexcept { return run_stride_; }

  /// body(first row, number of rows, parameter of the first) for rows begin..end, run by run.
  template <typename Body>
  void for_each_run(std::int64_t begin, std::int64_t end, Body&& body) const {
    while (begin < end) {
      const std::int64_t within = begin % run_;
      const std::int64_t rows = std::min(run_ - within, end - begin);
      body(begin, rows, run_start(begin / run_) + within * run_stride_);
      begin += rows;
    }
  }

 private:
  std::int64_t run_start(std::int64_t index) const;

  Dims outer_sizes_;
  Dims outer_strides_;
  std::int64_t count_ = 0;
  std::int64_t length_ = 0;
  std::int64_t step_ = 0;
  std::int64_t run_ = 1;
  std::int64_t run_stride_ = 0;
};

}  // namespace quanta::cpu
