#pragma once

// Private: a convolution, and both of its gradients, as plain loops over contiguous tensors in
// torch's order. For double precision, where proof counts and speed does not.

#include <array>
#include <cstdint>

#include "quanta/ops/cpu/conv_shape.h"

namespace quanta::detail {

/// visit(src index, weight index, dst index) for each product that the convolution sums up: dst +=
/// src * weight.
template <typename Visit>
void for_each_conv_product(const cpu::ConvShape& shape, Visit&& visit) {
  // A transposed convolution is the same set of products with input and output exchanged.
  const bool turned = shape.transposed;
  const std::int64_t ins = turned ? shape.out_channels : shape.in_channels;
  const std::int64_t outs = turned ? shape.in_channels : shape.out_channels;
  const auto& in = turned ? shape.out : shape.in;
  const auto& out = turned ? shape.in : shape.out;
  const std::int64_t group_in = ins / shape.groups;
  const std::int64_t group_out = outs / shape.groups;
  const auto count = [](const std::int64_t(&sizes)[3]) { return sizes[0] * sizes[1] * sizes[2]; };
  const auto split = [](std::int64_t i, const std::int64_t(&sizes)[3]) {
    return std::array<std::int64_t, 3>{i / (sizes[1] * sizes[2]), i / sizes[2] % sizes[1],
                                       i % sizes[2]};
  };
  for (std::int64_t n = 0; n < shape.batch; ++n) {
    for (std::int64_t o = 0; o < outs; ++o) {
      for (std::int64_t position = 0; position < count(out); ++position) {
        const auto at = split(position, out);
        const std::int64_t dst = (n * outs + o) * count(out) + position;
        for (std::int64_t tap = 0; tap < count(shape.kernel); ++tap) {
          const auto k = split(tap, shape.kernel);
          std::array<std::int64_t, 3> from{};
          bool inside = true;
          for (std::size_t d = 0; d < 3; ++d) {
            from[d] = at[d] * shape.stride[d] - shape.padding[d] + k[d] * shape.dilation[d];
            inside = inside && from[d] >= 0 && from[d] < in[d];
          }
          if (!inside) continue;
          for (std::int64_t i = 0; i < group_in; ++i) {
            const std::int64_t channel = o / group_out * group_in + i;
            const std::int64_t src =
                (n * ins + channel) * count(in) + (from[0] * in[1] + from[1]) * in[2] + from[2];
            const std::int64_t weight = (o * group_in + i) * count(shape.kernel) + tap;
            if (turned) {
              visit(dst, weight, src);
            } else {
              visit(src, weight, dst);
            }
          }
        }
      }
    }
  }
}

}  // namespace quanta::detail
