#include <png.h>

#include <string_view>

#include "quanta/nn/data/detail/image_codecs.h"
#include "quanta/runtime/check.h"

namespace quanta::data::detail {
namespace {

// libpng's simplified interface: no longjmp reaches us.
struct PngImage {
  png_image image{};
  PngImage() { image.version = PNG_IMAGE_VERSION; }
  ~PngImage() { png_image_free(&image); }
  PngImage(const PngImage&) = delete;
  PngImage& operator=(const PngImage&) = delete;

  // Warnings (a wrong checksum of a chunk without pixels) have the lowest bit alone.
  bool failed() const { return PNG_IMAGE_FAILED(image) != 0; }
  [[noreturn]] void fail(const std::string& where) const {
    throw FileError(fmt::format("{}: corrupt PNG: {}", where, image.message));
  }
};

// libpng asks for the memory of a chunk before it knows that the file is so long. Pixels come in
// pieces, and what follows them is not read.
void check_chunks(std::span<const std::byte> bytes, const std::string& where) {
  constexpr std::size_t kSignature = 8;
  constexpr std::size_t kFrame = 12;  // length, type and checksum
  for (std::size_t at = kSignature; bytes.size() >= at && bytes.size() - at >= kFrame;) {
    std::size_t length = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      length = length << 8 | static_cast<std::size_t>(bytes[at + i]);
    }
    const std::string_view type(reinterpret_cast<const char*>(bytes.data() + at + 4), 4);
    if (type == "IDAT" || type == "IEND") return;
    if (length > bytes.size() - at - kFrame) {
      throw FileError(
          fmt::format("{}: corrupt PNG: byte {}: expected a chunk within the file, got "
                      "one of {} bytes",
                      where, at, length));
    }
    at += kFrame + length;
  }
}

}  // namespace

const bool kHasPng = true;

Tensor decode_png(std::span<const std::byte> bytes, ImageMode mode, const std::string& where) {
  check_chunks(bytes, where);
  PngImage png;
  if (png_image_begin_read_from_memory(&png.image, bytes.data(), bytes.size()) == 0) {
    png.fail(where);
  }
  const auto height = static_cast<std::int64_t>(png.image.height);
  const auto width = static_cast<std::int64_t>(png.image.width);
  // deflate cannot do better than 1032 to 1, and a byte holds eight pixels at most.
  check_image_size(height, width, bytes.size(), std::int64_t{8} * 1032, where);
  png.image.format = mode == ImageMode::Grey ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  const Tensor pixels = Tensor::empty({height, width, channels_of(mode)}, DType::UInt8);
  const png_color black{};
  if (png_image_finish_read(&png.image, &black, pixels.mutable_data<std::uint8_t>(), 0, nullptr) ==
          0 ||
      png.failed()) {
    png.fail(where);
  }
  return to_planes(pixels);
}

}  // namespace quanta::data::detail
