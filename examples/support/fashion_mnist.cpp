#include "fashion_mnist.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>

#include "quanta/runtime/error.h"

namespace quanta::examples {
namespace {

constexpr std::int64_t kSide = 28;
constexpr std::int64_t kPixels = kSide * kSide;

struct GzipFile {
  gzFile file;
  std::string path;

  explicit GzipFile(const std::filesystem::path& from)
      : file(gzopen(from.c_str(), "rb")), path(from.string()) {
    if (file == nullptr) {
      throw FileError("fashion_mnist: " + path +
                      ": cannot be opened (install Debian's package dataset-fashion-mnist, or give "
                      "the folder with the four .gz files)");
    }
  }
  ~GzipFile() { gzclose(file); }
  GzipFile(const GzipFile&) = delete;
  GzipFile& operator=(const GzipFile&) = delete;

  void read(void* data, std::size_t bytes) {
    auto* to = static_cast<std::uint8_t*>(data);
    while (bytes > 0) {
      const auto part = static_cast<unsigned>(std::min<std::size_t>(bytes, 1U << 24));
      const int got = gzread(file, to, part);
      if (got <= 0) throw FileError("fashion_mnist: " + path + ": truncated or corrupt");
      to += got;
      bytes -= static_cast<std::size_t>(got);
    }
  }

  std::uint32_t read_big_endian() {
    std::array<std::uint8_t, 4> bytes{};
    read(bytes.data(), bytes.size());
    return (static_cast<std::uint32_t>(bytes[0]) << 24) |
           (static_cast<std::uint32_t>(bytes[1]) << 16) |
           (static_cast<std::uint32_t>(bytes[2]) << 8) | bytes[3];
  }

  void expect(std::uint32_t want, const char* what) {
    const std::uint32_t got = read_big_endian();
    if (got != want) {
      throw FileError("fashion_mnist: " + path + ": " + what + ": expected " +
                      std::to_string(want) + ", got " + std::to_string(got));
    }
  }
};

constexpr std::uint32_t kMaxImages = 1'000'000;

std::vector<std::uint8_t> read_images(const std::filesystem::path& path) {
  GzipFile file(path);
  file.expect(0x803, "idx magic number");
  const std::uint32_t count = file.read_big_endian();
  if (count > kMaxImages) throw FileError("fashion_mnist: " + file.path + ": absurd image count");
  file.expect(kSide, "rows");
  file.expect(kSide, "columns");
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(count) * kPixels);
  file.read(pixels.data(), pixels.size());
  return pixels;
}

std::vector<std::uint8_t> read_labels(const std::filesystem::path& path) {
  GzipFile file(path);
  file.expect(0x801, "idx magic number");
  const std::uint32_t count = file.read_big_endian();
  if (count > kMaxImages) throw FileError("fashion_mnist: " + file.path + ": absurd label count");
  std::vector<std::uint8_t> labels(count);
  file.read(labels.data(), labels.size());
  for (const std::uint8_t label : labels) {
    if (label > 9) throw FileError("fashion_mnist: " + file.path + ": a label above 9");
  }
  return labels;
}

}  // namespace

FashionMnist::FashionMnist(const std::filesystem::path& folder, Split split) {
  const std::string stem = split == Split::Train ? "train" : "t10k";
  pixels_ = read_images(folder / (stem + "-images-idx3-ubyte.gz"));
  labels_ = read_labels(folder / (stem + "-labels-idx1-ubyte.gz"));
  if (pixels_.size() != labels_.size() * static_cast<std::size_t>(kPixels)) {
    throw FileError("fashion_mnist: " + folder.string() + ": images and labels differ in number");
  }
}

Tensor FashionMnist::images(std::int64_t begin, std::int64_t count) const {
  if (begin < 0 || count < 0 || begin > size() - count) {
    throw ArgumentError("fashion_mnist: images: expected a range within " + std::to_string(size()) +
                        " images, got " + std::to_string(begin) + " + " + std::to_string(count));
  }
  Tensor batch = Tensor::empty({count, 1, kSide, kSide});
  auto* to = batch.mutable_data<float>();
  const std::uint8_t* from = pixels_.data() + begin * kPixels;
  for (std::int64_t i = 0; i < count * kPixels; ++i) {
    to[i] = (static_cast<float>(from[i]) / 255.0F - 0.2860F) / 0.3530F;
  }
  return batch;
}

}  // namespace quanta::examples
