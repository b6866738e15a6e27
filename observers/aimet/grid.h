#pragma once

#include <cstdint>
#include <string>

#include "quanta/runtime/dtype.h"

// Plain values: threads may share what none of them changes. What throws says so.

namespace quanta::aimet {

/// The integers that an affine quantizer maps to: qmin..qmax, both included. A plain value.
class Grid {
 public:
  /// Throws ArgumentError unless qmin < qmax, both within 2^52.
  Grid(std::int64_t qmin, std::int64_t qmax);
  /// -2^(bitwidth-1)..2^(bitwidth-1)-1, or 0..2^bitwidth-1. Throws ArgumentError for a bitwidth
  /// outside 1..52.
  static Grid from_bitwidth(std::int64_t bitwidth, bool is_signed);
  /// -ceil(n/2)..floor(n/2), or 0..n. Throws ArgumentError for n outside 1..2^52.
  static Grid from_num_steps(std::int64_t num_steps, bool is_signed);

  std::int64_t qmin() const noexcept { return qmin_; }
  std::int64_t qmax() const noexcept { return qmax_; }
  std::int64_t num_steps() const noexcept { return qmax_ - qmin_; }
  /// ceil((qmin + qmax) / 2).
  std::int64_t centroid() const noexcept;

  /// Whether bitwidth() and is_signed() have an answer: -127..127 has neither.
  bool has_bitwidth() const noexcept;
  bool has_sign() const noexcept { return qmin_ + qmax_ == -1 || qmin_ == 0; }
  /// Both throw ArgumentError for a grid that has none.
  std::int64_t bitwidth() const;
  bool is_signed() const;

  /// Another bitwidth with the same signedness, or another signedness for as many codes.
  Grid with_bitwidth(std::int64_t bitwidth) const;
  Grid with_signed(bool is_signed) const;

  /// The dtype that holds the codes: UInt8, Int8, Int16, or Int32 (for 0..65535 too).
  DType integer_dtype() const noexcept;

  bool operator==(const Grid&) const = default;

 private:
  std::int64_t qmin_;
  std::int64_t qmax_;
};

}  // namespace quanta::aimet
