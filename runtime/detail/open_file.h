#pragma once

// Private: a file that is open for reading.

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace quanta::detail {

/// A regular file and its size when it was opened. Safe from many threads.
class OpenFile {
 public:
  /// Throws FileError `<op>: <path>: ...` when there is no regular file that can be read.
  OpenFile(const std::filesystem::path& path, std::string_view op);
  ~OpenFile();
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  int descriptor() const noexcept { return descriptor_; }
  std::size_t size() const noexcept { return size_; }
  /// "<op>: <path>", for messages.
  const std::string& where() const noexcept { return where_; }
  /// Fills `to` with the bytes from `begin` on. Throws FileError for a file that ends before, as it
  /// was cut off since it was opened.
  void read(std::size_t begin, std::span<std::byte> to) const;

 private:
  std::string where_;
  int descriptor_ = -1;
  std::size_t size_ = 0;
};

}  // namespace quanta::detail
