#pragma once

// A Hugging Face directory as one input: for each file its length (little-endian, 32 bits) and its
// bytes. A file of length 0 is not there.

#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>

#include "support.h"

namespace quanta::fuzz {

inline constexpr std::array<const char*, 5> kBertFiles{"config.json", "vocab.txt",
                                                       "tokenizer_config.json", "model.safetensors",
                                                       "1_Pooling/config.json"};
using Parts = std::array<std::string, kBertFiles.size()>;

/// Lengths beyond the end stand for what is left.
inline Parts split_parts(std::string_view input) {
  Parts parts;
  for (std::string& part : parts) {
    std::uint32_t length = 0;
    if (input.size() < sizeof(length)) break;
    std::memcpy(&length, input.data(), sizeof(length));
    input.remove_prefix(sizeof(length));
    part = input.substr(0, length);
    input.remove_prefix(part.size());
  }
  return parts;
}

inline std::string joined_parts(const Parts& parts) {
  std::string result;
  for (const std::string& part : parts) {
    const auto length = static_cast<std::uint32_t>(part.size());
    result.append(reinterpret_cast<const char*>(&length), sizeof(length));
    result += part;
  }
  return result;
}

/// A folder in memory where there is one, which goes with the program.
class Folder {
 public:
  Folder() {
    const bool in_memory = std::filesystem::is_directory("/dev/shm");
    path_ =
        (in_memory ? std::filesystem::path("/dev/shm") : std::filesystem::temp_directory_path()) /
        ("quanta_fuzz_" + std::to_string(::getpid()));
    std::filesystem::create_directories(path_ / "1_Pooling");
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Puts the file there; without bytes, takes it away.
  void write(const char* name, std::string_view bytes) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::remove(file);
    if (bytes.empty()) return;
    std::FILE* out = std::fopen(file.c_str(), "wb");
    if (out == nullptr || std::fwrite(bytes.data(), 1, bytes.size(), out) != bytes.size())
      std::abort();
    std::fclose(out);
  }

 private:
  std::filesystem::path path_;
};

}  // namespace quanta::fuzz
