#pragma once

// Private: a file's bytes, mapped into memory.

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>

namespace quanta::detail {

/// A whole file in memory, private and copy on write: writing through `bytes()` never reaches the
/// file. Unmapped when the last owner is gone.
class MappedFile {
 public:
  /// Throws FileError `<op>: <path>: ...` when there is no regular file that can be read.
  static std::shared_ptr<MappedFile> open(const std::filesystem::path& path, std::string_view op);
  /// The one whose bytes these are; null for other memory.
  static std::shared_ptr<MappedFile> holding(std::span<const std::byte> bytes);

  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<std::byte> bytes() const noexcept { return bytes_; }
  /// The same bytes of the file in another mapping: memory that nobody else gets before it is
  /// given back with the last copy of the pointer. Null when somebody has part of them, or the
  /// system makes no mapping.
  std::shared_ptr<std::byte> lend_twin(std::span<const std::byte> bytes);

 private:
  struct Descriptor;
  MappedFile(std::shared_ptr<const Descriptor> file, std::span<std::byte> bytes);
  static std::shared_ptr<MappedFile> map(std::shared_ptr<const Descriptor> file, std::size_t size);

  std::shared_ptr<const Descriptor> file_;
  std::span<std::byte> bytes_;
  std::mutex twin_mutex_;
  std::weak_ptr<MappedFile> twin_;
  std::map<std::size_t, std::size_t> lent_;  // of a twin: begins and ends
};

}  // namespace quanta::detail
