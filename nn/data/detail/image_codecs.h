#pragma once

// Private: one function a format. What stands for a missing library throws UnsupportedError.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "quanta/nn/data/image.h"
#include "quanta/runtime/tensor.h"

namespace quanta::data::detail {

extern const bool kHasPng;
extern const bool kHasJpeg;

/// Each gives UInt8 [C, H, W]; errors begin with `where`.
Tensor decode_png(std::span<const std::byte> bytes, ImageMode mode, const std::string& where);
Tensor decode_jpeg(std::span<const std::byte> bytes, ImageMode mode, const std::string& where);

inline std::int64_t channels_of(ImageMode mode) { return mode == ImageMode::Grey ? 1 : 3; }
/// Throws FileError for an image without pixels, with too many, and with more than `bytes` bytes of
/// file can stand for, at most `pixels_per_byte` each: before there is memory for them.
void check_image_size(std::int64_t height, std::int64_t width, std::size_t bytes,
                      std::int64_t pixels_per_byte, const std::string& where);
/// [H, W, C] to [C, H, W], contiguous.
Tensor to_planes(const Tensor& pixels);

}  // namespace quanta::data::detail
