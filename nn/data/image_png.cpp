#include <png.h>

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

}  // namespace

const bool kHasPng = true;

Tensor decode_png(std::span<const std::byte> bytes, ImageMode mode, const std::string& where) {
  PngImage png;
  if (png_image_begin_read_from_memory(&png.image, bytes.data(), bytes.size()) == 0) {
    png.fail(where);
  }
  const auto height = static_cast<std::int64_t>(png.image.height);
  const auto width = static_cast<std::int64_t>(png.image.width);
  check_image_size(height, width, where);
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
