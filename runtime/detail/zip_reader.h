#pragma once

// Private: the zip archives that torch.save writes, whose records are stored without compression.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace quanta::detail {

/// Whether the bytes begin as a zip archive does.
bool is_zip(std::span<const std::byte> bytes) noexcept;

/// CRC-32 as zip uses it.
std::uint32_t crc32(std::span<const std::byte> bytes) noexcept;

class ZipReader {
 public:
  struct Record {
    std::string name;
    std::span<const std::byte> data;
    std::uint32_t crc = 0;
  };

  /// Reads the central directory (zip64 too) and checks every record: stored, within the file, not
  /// overlapping another, name equal in both headers, unique, relative and without "..".
  /// Throws FileError `<where>: ...`.
  ZipReader(std::span<const std::byte> bytes, std::string where);
  ZipReader(const ZipReader&) = delete;
  ZipReader& operator=(const ZipReader&) = delete;

  const std::vector<Record>& records() const noexcept { return records_; }
  /// Null when there is none.
  const Record* find(std::string_view name) const noexcept;
  /// The record's bytes after comparing their checksum. Throws FileError when it differs.
  std::span<const std::byte> read(const Record& record) const;

 private:
  struct Directory {
    std::uint64_t count = 0;
    std::uint64_t offset = 0;
    std::uint64_t end = 0;
  };
  struct Extent {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::size_t record = 0;
  };

  Directory find_directory() const;
  void read_records(const Directory& directory);
  Extent locate(Record& record, std::uint64_t header_offset, std::uint64_t size,
                const Directory& directory) const;
  void check_overlaps(std::vector<Extent> extents) const;

  std::span<const std::byte> bytes_;
  std::string where_;
  std::vector<Record> records_;
  std::unordered_map<std::string_view, std::size_t> positions_;  // views of records_' names
};

}  // namespace quanta::detail
