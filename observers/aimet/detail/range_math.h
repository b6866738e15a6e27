#pragma once

// Private: what the analyzers share.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "quanta/observers/aimet/analyzer.h"
#include "quanta/ops/detail/affine_layout.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/tensor.h"

namespace quanta::aimet::detail {

struct Ends {
  float min;
  float max;
};

/// Whether a symmetric range of two bits leaves out its lowest code, so that no code is wasted.
enum class TwoBitRule : bool { None, SkipLowestCode };

inline Ends clamp_to_finite(Ends ends) {
  constexpr float kMost = std::numeric_limits<float>::max();
  return {std::clamp(ends.min, -kMost, kMost), std::clamp(ends.max, -kMost, kMost)};
}

/// A range that includes 0 and is at least num_steps minimum scales wide; a symmetric one has ends
/// that are -ceil(n / 2) and floor(n / 2) times one scale.
inline Ends widen(Ends ends, std::int64_t num_steps, bool symmetric, TwoBitRule rule) {
  const auto n = static_cast<float>(num_steps);
  const auto positive = static_cast<float>(num_steps / 2);
  const auto negative = static_cast<float>((num_steps + 1) / 2);
  const float smallest = minimum_scale(num_steps);
  float low = ends.min < 0.0F ? ends.min : 0.0F;
  float high = ends.max > 0.0F ? ends.max : 0.0F;
  const float added = (high - low) / n < smallest ? smallest : 0.0F;
  if (!symmetric) return clamp_to_finite({low, high + n * added});
  high += positive * added;
  low -= negative * added;
  const bool skips = rule == TwoBitRule::SkipLowestCode && num_steps == 3;
  const float delta = std::max(high / (positive + (skips ? 1.0F : 0.0F)), -low / negative);
  return clamp_to_finite({-negative * delta, positive * delta});
}

/// The elements of a batch by the entry of the statistics that they belong to.
class EntryElements {
 public:
  /// Throws ArgumentError `op: ...` unless x is floating and can be reduced to the shape.
  EntryElements(std::string_view op, const Tensor& x, const Dims& shape, const Dims& block_size) {
    QUANTA_CHECK(x.defined() && x.is_floating_point(), "{}: x: expected a floating tensor, got {}",
                 op, x.defined() ? to_string(x.dtype()) : "an undefined one");
    if (x.numel() == 0) return;
    layout_ = quanta::detail::affine_layout(op, "shape", x.sizes(), shape, block_size);
    values_ = x.detach().to(DType::Float32).contiguous();
  }

  bool empty() const noexcept { return !values_.defined(); }
  std::size_t entries() const noexcept { return static_cast<std::size_t>(layout_.parameters); }

  /// visit(entry, value) for every element.
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

}  // namespace quanta::aimet::detail
