#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "quanta/runtime/tensor.h"

// Many threads may read files at once.

namespace quanta::data {

enum class ImageMode : std::uint8_t {
  Grey,  ///< one channel
  Rgb,   ///< three channels
};
enum class ImageFormat : std::uint8_t { Png, Jpeg, Ppm };

/// Whether this build reads such files: PPM always, PNG with libpng, JPEG with libjpeg(-turbo).
bool can_read(ImageFormat format) noexcept;

/// Reads a PNG, JPEG or binary PPM/PGM file, told apart by its first bytes, as UInt8 [C, H, W].
/// What is transparent becomes black. Throws FileError (path, what) when the file is missing,
/// truncated, corrupt, none of these or of more than 2^26 pixels; UnsupportedError for a format
/// that this build does not read.
Tensor read_image(const std::filesystem::path& path, ImageMode mode = ImageMode::Rgb);

/// The same from memory; `name` stands in messages.
Tensor decode_image(std::span<const std::byte> bytes, ImageMode mode, const std::string& name);

}  // namespace quanta::data
