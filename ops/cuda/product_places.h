#pragma once

// Private, for .cu files only: where the rows of a product of codes lie in the input.

#include <limits>

#include "quanta/ops/cuda/int8_product.h"
#include "quanta/runtime/cuda/simt.h"

namespace quanta::cuda {

/// Where an output pixel reads, before padding and taps.
struct RowPlace {
  std::int64_t origin =
      0;  // offset of the first tap, within the image or not; transposed: of the image
  int at[3] = {0, 0, 0};  // output position times stride, less padding (transposed: plus padding)
};

/// Sets where a pixel begins in its image, and gives the number of the image. Int: one that holds all
/// pixels, as a division of 64 bits takes many times as long as one of 32.
template <typename Int>
SIMT_DEVICE std::int64_t image_of(const ProductParams& p, Int pixel, RowPlace& place) {
  for (int d = 2; d >= 0; --d) {
    const auto size = static_cast<Int>(p.out[d]);
    const int position = static_cast<int>(pixel % size);
    pixel /= size;
    place.at[d] = p.transposed ? position + p.padding[d] : position * p.stride[d] - p.padding[d];
  }
  return static_cast<std::int64_t>(pixel);
}

/// How far a position lies behind the first one of its image, in elements.
SIMT_DEVICE std::int64_t offset_of(const ProductParams& p, std::int64_t at0, std::int64_t at1,
                                   std::int64_t at2) {
  return ((at0 * p.in[1] + at1) * p.in[2] + at2) * p.channels;
}

/// The place of an output pixel. Behind the last one every tap lies beyond the image.
SIMT_DEVICE RowPlace place_of(const ProductParams& p, std::int64_t pixel, int matrix) {
  RowPlace place;
  if (pixel >= p.pixels) {
    place.at[0] = std::numeric_limits<std::int32_t>::min() / 2;
    return place;
  }
  const std::int64_t image = p.pixels >> 32 == 0
                                 ? image_of(p, static_cast<std::uint32_t>(pixel), place)
                                 : image_of(p, static_cast<std::uint64_t>(pixel), place);
  place.origin = offset_of(p, image * p.in[0], 0, 0) + matrix * p.matrix_x;
  if (!p.transposed) place.origin += offset_of(p, place.at[0], place.at[1], place.at[2]);
  return place;
}

/// How far a tap lies behind the first one, in elements, where the convolution is not transposed.
SIMT_DEVICE std::int64_t tap_offset(const ProductParams& p, const int (&tap)[3]) {
  return offset_of(p, tap[0] * p.dilation[0], tap[1] * p.dilation[1], tap[2] * p.dilation[2]);
}

/// Whether a position is one of `count`.
SIMT_DEVICE bool is_within(int position, int count) {
  return static_cast<unsigned>(position) < static_cast<unsigned>(count);
}

SIMT_DEVICE std::int64_t transposed_offset(const ProductParams& p, const RowPlace& place,
                                           const int (&tap)[3]) {
  std::int64_t pixel = 0;
  for (int d = 0; d < 3; ++d) {
    int position = place.at[d] - tap[d] * p.dilation[d];
    if (position < 0 || position % p.stride[d] != 0) return -1;
    position /= p.stride[d];
    if (position >= p.in[d]) return -1;
    pixel = pixel * p.in[d] + position;
  }
  return place.origin + pixel * p.channels;
}

/// The offset of the input pixel that a tap reads, in elements from x; -1 beyond the image.
/// `ahead`: tap_offset, which is the same for all rows.
SIMT_DEVICE std::int64_t source_offset(const ProductParams& p, const RowPlace& place,
                                       const int (&tap)[3], std::int64_t ahead) {
  if (p.transposed) return transposed_offset(p, place, tap);
  for (int d = 0; d < 3; ++d) {
    if (!is_within(place.at[d] + tap[d] * p.dilation[d], p.in[d])) return -1;
  }
  return place.origin + ahead;
}

}  // namespace quanta::cuda
