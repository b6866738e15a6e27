#include <csetjmp>
#include <cstdio>
// libjpeg's header needs the two above.
#include <jerror.h>
#include <jpeglib.h>

#include <array>

#include "quanta/nn/data/detail/image_codecs.h"
#include "quanta/runtime/check.h"

namespace quanta::data::detail {
namespace {

// libjpeg reports errors through a function that must not return, so it jumps. Each C++ object that
// needs a destructor lives outside of the functions between setjmp and the jump.
struct ErrorManager {
  jpeg_error_mgr base{};
  std::jmp_buf jump{};
  std::array<char, JMSG_LENGTH_MAX> message{};
};

ErrorManager& errors_of(j_common_ptr info) {
  return *reinterpret_cast<ErrorManager*>(info->err);  // base comes first
}

[[noreturn]] void on_error(j_common_ptr info) {
  ErrorManager& errors = errors_of(info);
  errors.base.format_message(info, errors.message.data());
  std::longjmp(errors.jump, 1);
}

// Data that is missing or wrong is only worth a warning to libjpeg, which then makes pixels up.
// Stray bytes between two markers do no harm.
void on_message(j_common_ptr info, int level) {
  if (level < 0 && info->err->msg_code != JWRN_EXTRANEOUS_DATA) on_error(info);
}

struct Decompressor {
  jpeg_decompress_struct info{};
  ErrorManager errors;

  Decompressor() {
    info.err = jpeg_std_error(&errors.base);
    errors.base.error_exit = on_error;
    errors.base.emit_message = on_message;
  }
  ~Decompressor() { jpeg_destroy_decompress(&info); }
  Decompressor(const Decompressor&) = delete;
  Decompressor& operator=(const Decompressor&) = delete;

  // False: errors.message says why.
  bool read_header(std::span<const std::byte> bytes, ImageMode mode) {
    if (setjmp(errors.jump) != 0) return false;
    jpeg_create_decompress(&info);
    jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(bytes.data()),
                 static_cast<unsigned long>(bytes.size()));
    jpeg_read_header(&info, TRUE);
    info.out_color_space = mode == ImageMode::Grey ? JCS_GRAYSCALE : JCS_RGB;
    return true;
  }

  bool read_pixels(std::uint8_t* to, std::size_t row_bytes) {
    if (setjmp(errors.jump) != 0) return false;
    jpeg_start_decompress(&info);
    while (info.output_scanline < info.output_height) {
      JSAMPROW row = to + static_cast<std::size_t>(info.output_scanline) * row_bytes;
      jpeg_read_scanlines(&info, &row, 1);
    }
    jpeg_finish_decompress(&info);
    return true;
  }
};

}  // namespace

const bool kHasJpeg = true;

Tensor decode_jpeg(std::span<const std::byte> bytes, ImageMode mode, const std::string& where) {
  Decompressor jpeg;
  const auto require = [&](bool done) {
    if (!done)
      throw FileError(fmt::format("{}: corrupt JPEG: {}", where, jpeg.errors.message.data()));
  };
  require(jpeg.read_header(bytes, mode));
  const auto height = static_cast<std::int64_t>(jpeg.info.image_height);
  const auto width = static_cast<std::int64_t>(jpeg.info.image_width);
  // Blocks of Huffman codes take a bit for each 512 pixels at least; arithmetic codes of an even
  // colour less.
  check_image_size(height, width, bytes.size(), 16384, where);
  const std::int64_t channels = channels_of(mode);
  const Tensor pixels = Tensor::empty({height, width, channels}, DType::UInt8);
  require(jpeg.read_pixels(pixels.mutable_data<std::uint8_t>(),
                           static_cast<std::size_t>(width * channels)));
  return to_planes(pixels);
}

}  // namespace quanta::data::detail
