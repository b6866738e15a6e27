#pragma once

// Private: convolutions as products of matrices whose rows lie in the image: what is under the
// kernel of neighbouring outputs overlaps, and is read where it is (an implicit GEMM). Bands of
// lines are copied with their border into a buffer that the L2 cache holds; for strides each pixel
// goes to the copy of its remainder, so that outputs are neighbours there too.

#include <cstdint>
#include <vector>

#include "quanta/ops/conv/codes_call.h"

namespace quanta::cpu {

/// Whether this was measured to be faster than oneDNN for the shape, on this machine.
bool prefers_implicit(const ConvShape& shape);

/// `weight` is int8 in torch's order, [O, C, kD, kH, kW]; packed in the order of the rows, or found
/// among `forms`.
CodePanels pack_implicit_panels(const std::int8_t* weight, const ConvShape& shape,
                                detail::PackedForms& forms);

/// Where the rows of a shape lie in the copy of a band, found once.
class ImplicitRows {
 public:
  ImplicitRows() = default;
  explicit ImplicitRows(const ConvShape& shape);

  /// The most output lines of a band.
  std::int64_t lines() const { return lines_; }
  std::int64_t bytes() const { return plane_bytes_ * planes_ + kBeyond; }
  /// Copies what output lines [line, line + lines) of image and depth `plane` see.
  void copy(const ConvShape& shape, const std::uint8_t* src, std::int32_t src_zero_point,
            std::int64_t plane, std::int64_t line, std::int64_t lines, std::uint8_t* dst) const;
  /// The rows of that many lines in the copy.
  CodeRows rows(const ConvShape& shape, const std::uint8_t* copy, std::int64_t lines) const;

 private:
  /// Pixels whose line and column have these remainders by the strides.
  struct Phase {
    std::int64_t line, column;
    std::int64_t begin;     ///< in a plane's copy
    std::int64_t last = 0;  ///< the most lines that a tap is below its output's
  };
  static constexpr std::int64_t kBeyond = 64;

  void copy_line(const ConvShape& shape, const std::uint8_t* src, std::int32_t src_zero_point,
                 std::int64_t column, std::uint8_t* dst) const;

  std::int64_t lines_ = 0, pitch_ = 0, planes_ = 0, plane_bytes_ = 0, run_ = 0;
  std::vector<Phase> phases_;
  std::vector<std::int64_t> offsets_;
};

/// With a weight of pack_implicit_panels.
void conv_implicit_u8(const ConvCodesCall& call, const ImplicitRows& rows, int threads);

}  // namespace quanta::cpu
