#pragma once

// The files that Quanta writes and reads, each in two versions.

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace quanta::reliability {

struct FileKind {
  std::string name;
  /// Writes version 0 or 1.
  std::function<void(int version, const std::filesystem::path& path)> save;
  /// Reads a file; the text tells versions apart. Empty for what only people read.
  std::function<std::string(const std::filesystem::path& path)> load;
};

std::vector<FileKind> file_kinds();

/// The bytes of a file.
std::string bytes_of(const std::filesystem::path& path);

}  // namespace quanta::reliability
