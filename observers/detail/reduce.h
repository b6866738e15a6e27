#pragma once

// Private: ranges of the elements of tensors, which all collectors take in.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "quanta/observers/value_range.h"
#include "quanta/ops/detail/affine_layout.h"
#include "quanta/runtime/dims.h"
#include "quanta/runtime/tensor.h"

namespace quanta::detail {

/// The largest magnitude of each entry, NaN where there is one.
std::vector<float> largest_magnitudes(const ValueRange& range);

/// `x` as Float32 without gaps in memory, in whatever order of the dimensions.
Tensor dense_floats(const Tensor& x);

/// Throws ArgumentError `op: x: expected finite values, ...` for a batch with an infinity or a NaN.
void require_finite(std::string_view op, const ValueRange& batch);

// Ranges of tensors on CUDA are found there; the host waits for them.

/// Range of all elements of a dense, not empty Float32 tensor.
ValueRange tensor_range(const Tensor& dense);

/// That of its finite elements; infinity..-infinity when there are none. NaN makes it NaN.
ValueRange finite_range(const Tensor& dense);

/// Range of each index along `axis` (>= 0) of a dense, not empty Float32 tensor.
ValueRange channel_range(const Tensor& dense, std::int64_t axis);

/// Range of a tensor of any floating dtype and memory order: of all elements, or of each index along
/// `axis` (>= 0). Infinity..-infinity where it is empty.
ValueRange batch_range(const Tensor& x, std::optional<std::int64_t> axis);

/// The elements of a tensor by the entry of the statistics to which they belong.
class EntryElements {
 public:
  /// Statistics of `shape` (with blocks, if there are any: see affine_layout) over the floating
  /// tensor `x`. Throws ArgumentError `op: shape: ...` when x cannot be reduced to that.
  EntryElements(std::string_view op, const Tensor& x, const Dims& shape,
                const Dims& block_size = {});

  std::size_t entries() const noexcept { return static_cast<std::size_t>(layout_.parameters); }
  /// The range of each entry; the tensor is not empty.
  ValueRange range() const;

  // Of a tensor on a CUDA device, where they are found; the host waits for them.

  /// The range of the finite elements of each entry; infinity..-infinity where there are none.
  ValueRange finite_range() const;
  /// How many elements of each entry lie in each of `bins` equal bins of its range; what lies outside
  /// counts in the first and the last one, NaN does not. One entry after the other.
  std::vector<std::int64_t> counts(std::int64_t bins, const ValueRange& ranges) const;

  /// visit(entry, value) for every element, in order; of a tensor on the CPU.
  template <typename Visit>
  void for_each(Visit&& visit) const {
    const cpu::AffineRows rows(layout_);
    const auto* values = values_.data<float>();
    rows.for_each_run(0, rows.count(),
                      [&](std::int64_t first, std::int64_t count, std::int64_t at) {
                        for (std::int64_t row = 0; row < count; ++row) {
                          const float* from = values + (first + row) * rows.length();
                          const std::int64_t entry = at + row * rows.run_stride();
                          for (std::int64_t i = 0; i < rows.length(); ++i) {
                            visit(static_cast<std::size_t>(entry + i * rows.step()), from[i]);
                          }
                        }
                      });
  }

 private:
  cpu::AffineLayout layout_;
  Tensor values_;
};

}  // namespace quanta::detail
