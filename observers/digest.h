#pragma once

#include <cstdint>
#include <vector>

#include "quanta/observers/value_range.h"
#include "quanta/runtime/dims.h"
#include "quanta/runtime/tensor.h"

// Plain values: nothing here throws, and threads may share what none of them changes.

namespace quanta {

/// Whether a collector's update() has two halves, and what the first of them rests on.
enum class DigestKind : std::uint8_t {
  None,    ///< no halves: only update() itself
  Alone,   ///< the tensor alone
  Framed,  ///< also the frame: the bins that the collector has at that moment
};

/// What a collector's update() found out about a tensor, and takes in then: see Collector::digest. Each
/// class fills what it needs; all fields are empty where there is nothing to take in. A frame is fixed
/// by the `range` of all tensors before, one after the other.
struct Digest {
  /// Smallest and largest values, of all elements or of each entry. Of a Framed collector: what moves
  /// the frame.
  ValueRange range{};
  /// Maxima, means, errors, or counts in Float32.
  std::vector<float> values{};
  /// Counts of each entry, in its bins.
  std::vector<std::vector<std::int64_t>> counts{};
  /// The frame that was counted in.
  std::vector<float> frame{};
  /// The sizes of `values`.
  Dims shape{};
  /// The sizes of the tensor itself.
  Dims input{};
  /// Scales that follow from the tensor alone.
  std::vector<float> scale{};
  /// The tensor itself.
  Tensor tensor{};
  /// Something came that the class does not look at.
  bool passed = false;

  bool is_empty() const noexcept {
    return range.min.empty() && values.empty() && counts.empty() && !tensor.defined() && !passed;
  }
};

}  // namespace quanta
