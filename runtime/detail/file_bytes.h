#pragma once

// Private: a file's bytes in memory.

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>

#include "quanta/runtime/detail/open_file.h"
#include "quanta/runtime/file_access.h"

namespace quanta::detail {

/// The bytes of a file in memory, to be written to without reaching the file: read into memory of
/// their own, or mapped, private and copy on write. Given back when the last owner is gone.
class FileBytes {
 public:
  /// All of a file. Throws FileError `<op>: <path>: ...` when there is no regular file that can be
  /// read.
  static std::shared_ptr<FileBytes> open(const std::filesystem::path& path, std::string_view op,
                                         FileAccess access = FileAccess::Copy);
  /// A copy of a part that lies within the file.
  static std::shared_ptr<FileBytes> read(const OpenFile& file, std::size_t begin, std::size_t size);
  /// The mapped file whose bytes these are; null for other memory.
  static std::shared_ptr<FileBytes> holding(std::span<const std::byte> bytes);

  ~FileBytes();
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;

  std::span<std::byte> bytes() const noexcept { return bytes_; }
  /// Of a mapped file: the same bytes in another mapping, memory that nobody else gets before it is
  /// given back with the last copy of the pointer. Null when somebody has part of them, or the
  /// system makes no mapping.
  std::shared_ptr<std::byte> lend_twin(std::span<const std::byte> bytes);

 private:
  FileBytes(std::shared_ptr<const OpenFile> file, std::span<std::byte> bytes);
  static std::shared_ptr<FileBytes> map(std::shared_ptr<const OpenFile> file);

  std::shared_ptr<const OpenFile> file_;  // null for a copy
  std::span<std::byte> bytes_;
  std::mutex twin_mutex_;
  std::weak_ptr<FileBytes> twin_;
  std::map<std::size_t, std::size_t> lent_;  // of a twin: begins and ends
};

}  // namespace quanta::detail
