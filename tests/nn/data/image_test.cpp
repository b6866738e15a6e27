#include "quanta/nn/data/image.h"

#include <doctest/doctest.h>
#include <zlib.h>

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/nn/data/image_folder.h"
#include "quanta/runtime/error.h"
#include "runtime/file_test_util.h"

namespace {

using namespace quanta;
using data::ImageMode;
using quanta::test::TemporaryFolder;
using quanta::test::write_bytes;

// 8 rows of 16 pixels: the left half (200, 100, 50), the right half (40, 40, 200).
constexpr std::string_view kJpegHex =
    "ffd8ffdb00430002010101010102010101020202020204030202020205040403040605060606050606060709"
    "08060709070606080b08090a0a0a0a0a06080b0c0b0a0c090a0a0affdb004301020202020202050303050a07"
    "06070a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a"
    "0a0a0a0a0a0a0a0affc00011080008001003011100021101031101ffc4001500010100000000000000000000"
    "000000000509ffc40014100100000000000000000000000000000000ffc40015010101000000000000000000"
    "00000000000809ffc40014110100000000000000000000000000000000ffda000c03010002110311003f003c"
    "573613dd7a13cdffd9";

std::string from_hex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

void put_big_endian(std::string& text, std::uint32_t value) {
  for (const int shift : {24, 16, 8, 0}) text += static_cast<char>(value >> shift & 0xFFU);
}

void put_chunk(std::string& file, const std::string& type, const std::string& data) {
  put_big_endian(file, static_cast<std::uint32_t>(data.size()));
  const std::string body = type + data;
  file += body;
  put_big_endian(file,
                 static_cast<std::uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(body.data()),
                                                  static_cast<uInt>(body.size()))));
}

// An 8-bit PNG; `pixels` are its rows, colour_type 0 grey, 2 RGB, 6 RGB and alpha.
std::string png(std::uint32_t width, std::uint32_t height, char colour_type,
                const std::string& pixels) {
  std::string header;
  put_big_endian(header, width);
  put_big_endian(header, height);
  header += std::string("\x08", 1) + colour_type + std::string(3, '\0');
  std::string rows;
  const std::size_t row_bytes = pixels.size() / height;
  for (std::size_t row = 0; row < height; ++row) {
    rows += '\0' + pixels.substr(row * row_bytes, row_bytes);
  }
  uLongf length = compressBound(static_cast<uLong>(rows.size()));
  std::string packed(length, '\0');
  REQUIRE(compress(reinterpret_cast<Bytef*>(packed.data()), &length,
                   reinterpret_cast<const Bytef*>(rows.data()),
                   static_cast<uLong>(rows.size())) == Z_OK);
  packed.resize(length);
  std::string file = "\x89PNG\r\n\x1a\n";
  put_chunk(file, "IHDR", header);
  put_chunk(file, "IDAT", packed);
  put_chunk(file, "IEND", "");
  return file;
}

Tensor decode(std::string_view bytes, ImageMode mode) {
  return data::decode_image(test::as_bytes(bytes), mode, "test");
}
std::vector<std::int64_t> codes(std::string_view bytes, ImageMode mode) {
  return decode(bytes, mode).to_int64_vector();
}

void check_refused(std::string_view bytes, const char* text) {
  CHECK_THROWS_WITH_AS(decode(bytes, ImageMode::Rgb), doctest::Contains(text), FileError);
}

// Every cut copy is refused, every changed copy is read or refused.
void check_hostile(const std::string& bytes, std::size_t lost_at_end) {
  for (std::size_t length = 0; length + lost_at_end < bytes.size(); ++length) {
    CHECK_THROWS_AS(decode(std::string_view(bytes).substr(0, length), ImageMode::Rgb), FileError);
  }
  std::mt19937_64 random(1);
  for (int round = 0; round < 3000; ++round) {
    std::string changed = bytes;
    for (std::uint64_t i = 1 + random() % 4; i > 0; --i) {
      changed[random() % changed.size()] = static_cast<char>(random());
    }
    try {
      decode(changed, random() % 2 == 0 ? ImageMode::Rgb : ImageMode::Grey).to_float_vector();
    } catch (const FileError&) {
    }
  }
}

}  // namespace

TEST_CASE("decode_image: PPM and PGM in both modes") {
  using namespace std::string_literals;
  using Codes = std::vector<std::int64_t>;
  const std::string colour = "P6\n# a comment\n2 1\n255\n\xFF\x80\x10\0\0\x64"s;
  CHECK(decode(colour, ImageMode::Rgb).sizes() == Dims{3, 1, 2});
  CHECK(codes(colour, ImageMode::Rgb) == Codes{255, 0, 128, 0, 16, 100});
  CHECK(codes(colour, ImageMode::Grey) == Codes{153, 11});
  const std::string grey = std::string("P5 2 1 15\n\x0F\x05", 12);
  CHECK(codes(grey, ImageMode::Grey) == Codes{255, 85});
  CHECK(codes(grey, ImageMode::Rgb) == Codes{255, 85, 255, 85, 255, 85});
}

TEST_CASE("decode_image: broken PPM files are refused by what is wrong") {
  check_refused("", "got an empty file");
  check_refused("BM rest", "expected a PNG, JPEG, PPM or PGM image, got something else");
  check_refused("P6", "width: expected a number, got none");
  check_refused("P6 #", "width: expected a number, got none");
  check_refused("P6 2 x", "height: expected a number, got none");
  check_refused("P6 2 9999999999 255 ", "height: expected at most nine digits");
  check_refused("P6 0 2 255 ", "size: expected 1 to 2^26 pixels, got 2 x 0");
  check_refused("P6 99999 99999 255 ", "size: expected 1 to 2^26 pixels");
  check_refused("P5 8000 8000 255 x", "expected at most 1 pixels for a byte of the file");
  check_refused("P6 1 1 65535 abcdef", "maximum: expected 1..255, got 65535");
  check_refused("P6 1 1 255", "header: expected white space");
  check_refused("P6 2 1 255 abc", "pixels: expected 6 bytes for 1 x 2, got 3");
  check_refused("P6 1 1 255 abcd", "pixels: expected 3 bytes for 1 x 1, got 4");
  check_refused("P5 1 1 9 x", "pixels: expected at most 9, got 120");
  check_hostile("P6 2 2 255 abcdefghijkl", 0);
}

TEST_CASE("decode_image: PNG files of each kind of colour") {
  if (!data::can_read(data::ImageFormat::Png)) {
    MESSAGE("skipped: this build reads no PNG");
    return;
  }
  using Codes = std::vector<std::int64_t>;
  const std::string grey = png(2, 2, 0, "\x01\x02\x03\x04");
  CHECK(decode(grey, ImageMode::Grey).sizes() == Dims{1, 2, 2});
  CHECK(codes(grey, ImageMode::Grey) == Codes{1, 2, 3, 4});
  CHECK(codes(grey, ImageMode::Rgb) == Codes{1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4});
  CHECK(codes(png(2, 1, 2, "abcdef"), ImageMode::Rgb) == Codes{97, 100, 98, 101, 99, 102});
  // Opaque and transparent.
  CHECK(codes(png(2, 1, 6, std::string("abc\xFFxyz\0", 8)), ImageMode::Rgb) ==
        Codes{97, 0, 98, 0, 99, 0});
}

TEST_CASE("decode_image: broken PNG files are refused") {
  if (!data::can_read(data::ImageFormat::Png)) {
    MESSAGE("skipped: this build reads no PNG");
    return;
  }
  const std::string file = png(3, 2, 2, "abcdefghijklmnopqr");
  check_refused(std::string_view(file).substr(0, 30), "corrupt PNG");
  std::string changed = file;
  changed[45] = static_cast<char>(changed[45] ^ 0x40);  // within the pixels
  check_refused(changed, "corrupt PNG");
  check_refused(png(100000, 1000, 0, std::string(1000, 'x')), "size: expected 1 to 2^26 pixels");
  check_refused(png(8000, 8000, 0, ""), "expected at most 8256 pixels for a byte of the file");
  std::string chunk = file;
  chunk.insert(33, std::string("\x7F\0\0\0tEXtTitle", 13));
  check_refused(chunk, "byte 33: expected a chunk within the file, got one of 2130706432 bytes");
  check_hostile(file, 16);  // the end marker is not needed, nor the last checksum
}

TEST_CASE("decode_image: a JPEG file in both modes") {
  if (!data::can_read(data::ImageFormat::Jpeg)) {
    MESSAGE("skipped: this build reads no JPEG");
    return;
  }
  const std::string file = from_hex(kJpegHex);
  const Tensor colour = decode(file, ImageMode::Rgb);
  REQUIRE(colour.sizes() == Dims{3, 8, 16});
  const std::vector<std::int64_t> values = colour.to_int64_vector();
  constexpr std::int64_t kExpected[3][2] = {{200, 40}, {100, 40}, {50, 200}};
  for (std::size_t c = 0; c < 3; ++c) {
    for (std::size_t i = 0; i < 128; ++i) {
      CHECK(std::abs(values[c * 128 + i] - kExpected[c][i % 16 < 8 ? 0 : 1]) <= 3);
    }
  }
  CHECK(decode(file, ImageMode::Grey).sizes() == Dims{1, 8, 16});
}

TEST_CASE("decode_image: broken JPEG files are refused") {
  if (!data::can_read(data::ImageFormat::Jpeg)) {
    MESSAGE("skipped: this build reads no JPEG");
    return;
  }
  const std::string file = from_hex(kJpegHex);
  check_refused("\xFF\xD8\xFF", "corrupt JPEG");
  check_refused(std::string_view(file).substr(0, file.size() - 5), "Premature end of JPEG file");
  std::string large = file;
  const std::size_t sizes = large.find("\xFF\xC0") + 5;  // height and width, two bytes each
  large.replace(sizes, 4, "\x1F\x40\x1F\x40");
  check_refused(large, "expected at most 16384 pixels for a byte of the file");
  check_hostile(file, 2);
}

TEST_CASE("read_image: a missing file is told by its path") {
  CHECK_THROWS_WITH_AS(data::read_image("/nonexistent/a.png"),
                       doctest::Contains("read_image: /nonexistent/a.png: opening"), FileError);
}

TEST_CASE("ImageFolder: classes and files stand in the order of their names") {
  const TemporaryFolder folder;
  for (const char* name : {"dog", "cat/more"}) std::filesystem::create_directories(folder / name);
  write_bytes(folder / "dog/2.PGM", std::string("P5 1 1 255 \x02", 12));
  write_bytes(folder / "dog/1.pgm", std::string("P5 1 1 255 \x01", 12));
  write_bytes(folder / "cat/more/3.ppm", "P6 1 1 255 abc");
  write_bytes(folder / "cat/notes.txt", "no image");
  write_bytes(folder / "readme.txt", "no class");
  const data::ImageFolder images(folder.path(), ImageMode::Grey);
  CHECK(images.classes() == std::vector<std::string>{"cat", "dog"});
  REQUIRE(images.size() == 3);
  CHECK(images.path(0) == folder / "cat/more/3.ppm");
  CHECK(images.item(0).target.dtype() == DType::Int64);
  CHECK(images.item(0).target.item() == 0.0);
  CHECK(images.item(1).input.item() == 1.0);
  CHECK(images.item(2).input.item() == 2.0);
  CHECK(images.item(2).target.item() == 1.0);
  CHECK_THROWS_AS(images.item(3), ArgumentError);
  write_bytes(folder / "dog/1.pgm", "P5 1");
  CHECK_THROWS_WITH_AS(images.item(1), doctest::Contains("dog/1.pgm: height"), FileError);
}

TEST_CASE("ImageFolder: what is wrong with the folder is told") {
  const TemporaryFolder folder;
  CHECK_THROWS_WITH_AS(data::ImageFolder(folder / "none"), doctest::Contains("No such file"),
                       FileError);
  CHECK_THROWS_WITH_AS(data::ImageFolder(folder.path()),
                       doctest::Contains("expected a folder for each class, got none"), FileError);
  std::filesystem::create_directories(folder / "empty");
  CHECK_THROWS_WITH_AS(data::ImageFolder(folder.path()),
                       doctest::Contains("empty: expected .png, .jpg"), FileError);
}
