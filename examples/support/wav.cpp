#include "support/wav.h"

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "quanta/runtime/error.h"

// Format: RIFF. Chunks of a name, a length and so many bytes (one more where that is odd).

namespace quanta::examples {
namespace {

std::uint32_t number(const std::string& bytes, std::size_t at, std::size_t width) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < width; ++i) {
    value |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  }
  return value;
}

}  // namespace

Wav read_wav(const std::filesystem::path& path) {
  const auto fail = [&](const std::string& what) {
    throw FileError("read_wav: " + path.string() + ": " + what);
  };
  std::ifstream file(path, std::ios::binary);
  if (!file) fail("cannot be opened");
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (bytes.size() < 12 || bytes.compare(0, 4, "RIFF") != 0 || bytes.compare(8, 4, "WAVE") != 0) {
    fail("expected a .wav file, got something else");
  }
  Wav wav;
  std::size_t channels = 0;
  for (std::size_t at = 12; bytes.size() - at >= 8;) {
    const std::string name = bytes.substr(at, 4);
    const std::size_t size = number(bytes, at + 4, 4);
    at += 8;
    if (size > bytes.size() - at) fail("a chunk is cut off");
    if (name == "fmt ") {
      if (size < 16 || number(bytes, at, 2) != 1 || number(bytes, at + 14, 2) != 16) {
        fail("expected PCM of 16 bits, got another format");
      }
      channels = number(bytes, at + 2, 2);
      wav.rate = number(bytes, at + 4, 4);
    } else if (name == "data") {
      if (channels == 0) fail("expected the format before the data");
      std::vector<float> samples(size / (2 * channels));
      for (std::size_t i = 0; i < samples.size(); ++i) {
        std::int64_t sum = 0;
        for (std::size_t c = 0; c < channels; ++c) {
          sum += static_cast<std::int16_t>(number(bytes, at + 2 * (i * channels + c), 2));
        }
        samples[i] = static_cast<float>(sum) / (32768.0F * static_cast<float>(channels));
      }
      wav.samples = Tensor::from_values(samples, {static_cast<std::int64_t>(samples.size())});
      return wav;
    }
    at = std::min(at + size + size % 2, bytes.size());
  }
  fail("expected a data chunk, got none");
  return wav;
}

}  // namespace quanta::examples
