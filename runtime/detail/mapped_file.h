#pragma once

// Private: a file's bytes, mapped into memory.

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

namespace quanta::detail {

/// A whole file in memory, private and copy on write: writing through `bytes()` never reaches the
/// file. Unmapped when the last owner is gone.
class MappedFile {
 public:
  /// Throws FileError `<op>: <path>: ...` when there is no regular file that can be read.
  static std::shared_ptr<MappedFile> open(const std::filesystem::path& path, std::string_view op);

  explicit MappedFile(std::span<std::byte> bytes) noexcept : bytes_(bytes) {}
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

}  // namespace quanta::detail
