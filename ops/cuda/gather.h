#pragma once

// Private: results whose elements are elements of the input, each dimension by a rule of its own
// (padding, repeating, turning round, nearest neighbours), on a CUDA device.

#include <cstdint>
#include <span>

#include "quanta/runtime/cuda/launch.h"
#include "quanta/runtime/detail/resample_math.h"

namespace quanta {
class Tensor;
}

namespace quanta::cuda {

/// A dimension of the result.
struct GatherAxis {
  math::SourceAxis source;
  const std::int64_t* table = nullptr;  ///< on the device: the sources, instead of the rule
  std::int64_t stride = 0;              ///< of the input, in items

  /// Whether every position is its own source.
  bool is_kept() const noexcept {
    return table == nullptr && source.rule == math::SourceRule::Shifted && source.before == 0 &&
           source.input == source.output;
  }
};

struct GatherParams {
  static constexpr int kMostAxes = 10;
  int rank = 0;
  std::int64_t count = 0;      // of items of the result
  GatherAxis axes[kMostAxes];  // in the order of the result's memory, the innermost last
  int item_bytes = 0;          // 1, 2, 4, 8 or 16
  std::uint64_t other = 0;     // over and over: the bits of what has no source
  const void* from = nullptr;
  void* to = nullptr;
};
QUANTA_CUDA_ENTRY(gather_items, GatherParams)

/// An axis that keeps its elements.
GatherAxis kept_axis(std::int64_t size, std::int64_t stride);

/// `axes` are those of the result in its logical order, with strides into `x`; the result is dense.
/// `other`: the bits of an element without a source.
void gather(const Tensor& x, std::span<const GatherAxis> axes, const Tensor& out,
            std::uint64_t other = 0);

/// The bits of `value` as an element of x, rounded or quantized as fill_ does it.
std::uint64_t bits_of(const Tensor& x, double value);

}  // namespace quanta::cuda
