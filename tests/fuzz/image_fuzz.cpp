#include "quanta/nn/data/image.h"

#include <zlib.h>

#include <algorithm>

#include "support.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace quanta;
  for (const data::ImageMode mode : {data::ImageMode::Rgb, data::ImageMode::Grey}) {
    try {
      const Tensor image = data::decode_image(fuzz::as_bytes(data, size), mode, "fuzz");
      fuzz::expect(image.dim() == 3 && image.dtype() == DType::UInt8, "an image is [C, H, W]");
      image.sizes();
    } catch (const FileError&) {
    }
  }
  return 0;
}

namespace {

std::uint32_t big_endian(const std::uint8_t* bytes) {
  return static_cast<std::uint32_t>(bytes[0]) << 24 | static_cast<std::uint32_t>(bytes[1]) << 16 |
         static_cast<std::uint32_t>(bytes[2]) << 8 | bytes[3];
}

}  // namespace

// The chunks of a PNG end in checksums, which are made to fit again.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned /*seed*/) {
  constexpr std::uint8_t kSignature[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
  const std::size_t changed = LLVMFuzzerMutate(data, size, max_size);
  if (changed < sizeof(kSignature) ||
      !std::equal(kSignature, kSignature + sizeof(kSignature), data)) {
    return changed;
  }
  for (std::size_t at = sizeof(kSignature); changed - at >= 12;) {
    const std::uint32_t length = big_endian(data + at);
    if (length > changed - at - 12) break;
    const auto sum = static_cast<std::uint32_t>(crc32(0, data + at + 4, length + 4));
    for (std::size_t i = 0; i < 4; ++i) {
      data[at + 8 + length + i] = static_cast<std::uint8_t>(sum >> (24 - 8 * i));
    }
    at += 12 + length;
  }
  return changed;
}
