#pragma once

// Private: convolutions of a few input channels whose output lines are two input lines apart, on
// tiles, without a row of codes for each pixel: lines 2j and 2j + 1 of the border-filled image are
// woven into one, a step of the output from the first, the same from the second, and what a pixel
// sees of a pair is one run of codes. An output line shares all but one pair with the line before.

#include <cstdint>

#include "quanta/ops/conv/cpu_gather.h"

namespace quanta::cpu {

/// Whether that is faster than gathering rows where there are tiles; the sizes of images do not matter.
bool fits_line_pairs(const ConvShape& shape);

/// `weight` as of pack_gathered_panels; packed in the order of the pairs' codes, for tiles.
CodePanels pack_line_pair_panels(const std::int8_t* weight, const ConvShape& shape,
                                 detail::PackedForms& forms);

/// Output lines [begin, end) of all images, on the calling thread; call.weight is of
/// pack_line_pair_panels.
void convolve_line_pairs(const ConvCodesCall& call, std::span<const std::byte> upcoming,
                         std::int64_t begin, std::int64_t end);

}  // namespace quanta::cpu
