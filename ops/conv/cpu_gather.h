#pragma once

// Private: convolutions of a few input channels (first layers), and 1x1 ones whose channels do not come
// in fours, as products of matrices: the codes under the kernel of each output pixel are gathered into a
// row, a few lines at a time, so that rows stay in the L1 cache. The border is filled in on the way.

#include <cstdint>

#include "quanta/ops/conv/codes_call.h"

namespace quanta::cpu {

/// Whether the weight is packed for gathered rows: few input channels, or one tap whose channels do not
/// come in fours.
bool gathers_rows(const ConvShape& shape);
/// Whether this was measured to be faster than oneDNN for the shape, on this machine.
bool prefers_gather(const ConvShape& shape);

/// `weight` is int8 in torch's order, [O, C, kD, kH, kW]; packed in that of the rows.
CodePanels pack_gathered_panels(const std::int8_t* weight, const ConvShape& shape,
                                detail::PackedForms& forms);

/// With a weight of pack_gathered_panels.
void conv_gather_u8(const ConvCodesCall& call, int threads);

/// Columns [0, columns) of a line of the input within its border, as many bytes each as there are
/// channels: the border on the left is the first ones, and line 0 its first line above. `plane` counts
/// images and depths; -1: all of it is border.
void bordered_line(const ConvCodesCall& call, std::int64_t plane, std::int64_t line,
                   std::int64_t columns, std::uint8_t* to);

}  // namespace quanta::cpu
