#include "quanta/nn/data/image.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "quanta/nn/data/detail/image_codecs.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/file_bytes.h"
#include "quanta/runtime/detail/reading.h"

namespace quanta::data {
namespace detail {

void check_image_size(std::int64_t height, std::int64_t width, std::size_t bytes,
                      std::int64_t pixels_per_byte, const std::string& where) {
  constexpr std::int64_t kMaxPixels = std::int64_t{1} << 26;
  if (height < 1 || width < 1 || height > kMaxPixels / width) {
    throw FileError(
        fmt::format("{}: size: expected 1 to 2^26 pixels, got {} x {}", where, height, width));
  }
  if (height * width / pixels_per_byte > static_cast<std::int64_t>(bytes)) {
    throw FileError(fmt::format(
        "{}: size: expected at most {} pixels for a byte of the file, got {} x {} in {} bytes",
        where, pixels_per_byte, height, width, bytes));
  }
}

Tensor to_planes(const Tensor& pixels) {
  if (pixels.size(2) == 1) return pixels.reshape({1, pixels.size(0), pixels.size(1)});
  return pixels.permute({2, 0, 1}).contiguous();
}

}  // namespace detail

namespace {

/// The header of a binary PPM (P6) or PGM (P5): numbers between white space and comments.
class PpmReader {
 public:
  PpmReader(std::string_view bytes, const std::string& where) : bytes_(bytes), where_(where) {}

  Tensor read(ImageMode mode) {
    const bool colour = bytes_[1] == '6';
    const std::int64_t width = number("width");
    const std::int64_t height = number("height");
    const std::int64_t max = number("maximum");
    detail::check_image_size(height, width, bytes_.size(), 1, where_);
    if (max < 1 || max > 255) fail(fmt::format("maximum: expected 1..255, got {}", max));
    if (at_ >= bytes_.size() || !is_space(bytes_[at_])) fail("header: expected white space");
    ++at_;
    const std::int64_t channels = colour ? 3 : 1;
    const Tensor pixels = Tensor::empty({height, width, channels}, DType::UInt8);
    if (bytes_.size() - at_ != pixels.nbytes()) {
      fail(fmt::format("pixels: expected {} bytes for {} x {}, got {}", pixels.nbytes(), height,
                       width, bytes_.size() - at_));
    }
    auto* to = pixels.mutable_data<std::uint8_t>();
    for (std::size_t i = 0; i < pixels.nbytes(); ++i) {
      const auto value = static_cast<std::int64_t>(static_cast<unsigned char>(bytes_[at_ + i]));
      if (value > max) fail(fmt::format("pixels: expected at most {}, got {}", max, value));
      to[i] = static_cast<std::uint8_t>((value * 255 + max / 2) / max);
    }
    return in_mode(detail::to_planes(pixels), mode);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw FileError(fmt::format("{}: {}", where_, what));
  }
  static bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

  std::int64_t number(std::string_view what) {
    while (at_ < bytes_.size() && (is_space(bytes_[at_]) || bytes_[at_] == '#')) {
      if (bytes_[at_] == '#') at_ = std::min(bytes_.find('\n', at_), bytes_.size() - 1);
      ++at_;
    }
    std::int64_t value = 0;
    std::size_t digits = 0;
    for (; at_ < bytes_.size() && bytes_[at_] >= '0' && bytes_[at_] <= '9'; ++at_, ++digits) {
      if (digits == 9) fail(fmt::format("{}: expected at most nine digits, got more", what));
      value = value * 10 + (bytes_[at_] - '0');
    }
    if (digits == 0) fail(fmt::format("{}: expected a number, got none", what));
    return value;
  }

  // Rec. 601, as libjpeg and Pillow weigh the colours.
  static Tensor in_mode(const Tensor& planes, ImageMode mode) {
    const std::int64_t wanted = detail::channels_of(mode);
    if (planes.size(0) == wanted) return planes;
    if (wanted == 3) return planes.expand({3, planes.size(1), planes.size(2)}).contiguous();
    const std::int64_t count = planes.size(1) * planes.size(2);
    const Tensor grey = Tensor::empty({1, planes.size(1), planes.size(2)}, DType::UInt8);
    const auto* from = planes.data<std::uint8_t>();
    auto* to = grey.mutable_data<std::uint8_t>();
    for (std::int64_t i = 0; i < count; ++i) {
      const int sum = from[i] * 299 + from[count + i] * 587 + from[2 * count + i] * 114;
      to[i] = static_cast<std::uint8_t>((sum + 500) / 1000);
    }
    return grey;
  }

  std::string_view bytes_;
  const std::string& where_;
  std::size_t at_ = 2;
};

Tensor decode(std::span<const std::byte> bytes, ImageMode mode, const std::string& where) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("\x89PNG")) return detail::decode_png(bytes, mode, where);
  if (text.starts_with("\xFF\xD8")) return detail::decode_jpeg(bytes, mode, where);
  if (text.starts_with("P5") || text.starts_with("P6")) return PpmReader(text, where).read(mode);
  throw FileError(fmt::format("{}: expected a PNG, JPEG, PPM or PGM image, got {}", where,
                              bytes.empty() ? "an empty file" : "something else"));
}

}  // namespace

bool can_read(ImageFormat format) noexcept {
  switch (format) {
    case ImageFormat::Png:
      return detail::kHasPng;
    case ImageFormat::Jpeg:
      return detail::kHasJpeg;
    case ImageFormat::Ppm:
      return true;
  }
  return false;
}

Tensor read_image(const std::filesystem::path& path, ImageMode mode) {
  const std::string where = "read_image: " + path.string();
  return quanta::detail::reading(where, [&] {
    const auto file = quanta::detail::FileBytes::open(path, "read_image");
    return decode(file->bytes(), mode, where);
  });
}

Tensor decode_image(std::span<const std::byte> bytes, ImageMode mode, const std::string& name) {
  const std::string where = "decode_image: " + name;
  return quanta::detail::reading(where, [&] { return decode(bytes, mode, where); });
}

}  // namespace quanta::data
