#pragma once

// Files that tests read, and files of their own that go away.

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "support/paths.h"

namespace quanta::test {

/// Throws std::runtime_error for a file that cannot be read or written.
std::string read_bytes(const std::filesystem::path& path);
void write_bytes(const std::filesystem::path& path, std::string_view bytes);

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::size_t files_in(const std::filesystem::path& folder);

/// An empty folder, which goes with the object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// A path for a .safetensors file, in such a folder.
struct TemporaryFile {
  TemporaryFolder folder;
  std::filesystem::path path = folder / "file.safetensors";
};

}  // namespace quanta::test
