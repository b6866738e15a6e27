#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>

namespace quanta::test {

/// A path for a .safetensors file, which goes with the object.
struct TemporaryFile {
  std::filesystem::path path;
  explicit TemporaryFile(const char* name)
      : path(std::filesystem::temp_directory_path() /
             (std::string(name) + std::to_string(::getpid()) + ".safetensors")) {}
  ~TemporaryFile() { std::filesystem::remove(path); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
};

}  // namespace quanta::test
