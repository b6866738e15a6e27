#pragma once

// Private: a file that is open for reading.

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace quanta::detail {

/// A descriptor for reading, which is closed with it.
class ReadDescriptor {
 public:
  /// `flags` beside those for reading. number() is -1, with errno, where nothing can be opened.
  explicit ReadDescriptor(const std::filesystem::path& path, int flags = 0) noexcept;
  ~ReadDescriptor();
  ReadDescriptor(const ReadDescriptor&) = delete;
  ReadDescriptor& operator=(const ReadDescriptor&) = delete;
  int number() const noexcept { return number_; }

 private:
  int number_ = -1;
};

/// A regular file and its size when it was opened. Safe from many threads.
class OpenFile {
 public:
  /// Throws FileError `<op>: <path>: ...` when there is no regular file that can be read.
  OpenFile(const std::filesystem::path& path, std::string_view op);

  int descriptor() const noexcept { return descriptor_.number(); }
  std::size_t size() const noexcept { return size_; }
  /// "<op>: <path>", for messages.
  const std::string& where() const noexcept { return where_; }
  /// Fills `to` with the bytes from `begin` on. Throws FileError for a file that ends before, as it
  /// was cut off since it was opened.
  void read(std::size_t begin, std::span<std::byte> to) const;

 private:
  std::string where_;
  ReadDescriptor descriptor_;
  std::size_t size_ = 0;
};

}  // namespace quanta::detail
