#include "quanta/runtime/detail/zip_reader.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "quanta/runtime/detail/byte_reader.h"
#include "quanta/runtime/detail/utf8.h"

// Format: PKWARE's APPNOTE.TXT 6.3. Names in comments are those of its sections 4.3 and 4.5.

namespace quanta::detail {
namespace {

constexpr std::uint32_t kLocalHeader = 0x04034b50;
constexpr std::uint32_t kCentralHeader = 0x02014b50;
constexpr std::uint32_t kEnd = 0x06054b50;
constexpr std::uint32_t kEnd64 = 0x06064b50;
constexpr std::uint32_t kEnd64Locator = 0x07064b50;
constexpr std::size_t kEndBytes = 22;
constexpr std::size_t kEnd64LocatorBytes = 20;
constexpr std::size_t kCentralHeaderBytes = 46;
constexpr std::size_t kMaxComment = 0xFFFF;
constexpr std::uint32_t kIn64 = 0xFFFFFFFF;  // the number stands in a zip64 field instead
constexpr std::uint16_t kEncrypted = 1;

// Eight tables, so that eight bytes are folded in a step: table[k][b] is the remainder of byte b
// followed by k zero bytes.
constexpr auto kCrcTables = [] {
  std::array<std::array<std::uint32_t, 256>, 8> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) {
      remainder = (remainder >> 1) ^ ((remainder & 1U) != 0 ? 0xEDB88320U : 0U);
    }
    tables[0][byte] = remainder;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t previous = tables[k - 1][byte];
      tables[k][byte] = (previous >> 8) ^ tables[0][previous & 0xFFU];
    }
  }
  return tables;
}();

template <typename T>
T number_at(std::span<const std::byte> bytes, std::size_t position) {
  T value{};
  std::memcpy(&value, bytes.data() + position, sizeof(T));
  return value;
}

void check_name(const ByteReader& reader, std::size_t position, std::string_view name) {
  const auto refuse = [&](std::string_view why) {
    reader.fail_at(position, fmt::format("expected a relative record name, got {}", why));
  };
  if (name.empty()) refuse("an empty one");
  if (!is_utf8(name)) refuse("bytes that are not UTF-8");
  for (const char c : name) {
    if (static_cast<unsigned char>(c) < 0x20) refuse("one with control characters");
  }
  if (name.front() == '/' || name.find('\\') != std::string_view::npos ||
      (name.size() > 1 && name[1] == ':')) {
    refuse(fmt::format("'{}'", name));
  }
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    if (name.substr(begin, end - begin) == "..") refuse(fmt::format("'{}'", name));
    begin = end + 1;
  }
}

}  // namespace

bool is_zip(std::span<const std::byte> bytes) noexcept {
  if (bytes.size() < 4) return false;
  const auto magic = number_at<std::uint32_t>(bytes, 0);
  return magic == kLocalHeader || magic == kEnd;
}

std::uint32_t crc32(std::span<const std::byte> bytes) noexcept {
  std::uint32_t crc = 0xFFFFFFFF;
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    const std::uint32_t low = number_at<std::uint32_t>(bytes, i) ^ crc;
    const auto high = number_at<std::uint32_t>(bytes, i + 4);
    crc = kCrcTables[7][low & 0xFF] ^ kCrcTables[6][(low >> 8) & 0xFF] ^
          kCrcTables[5][(low >> 16) & 0xFF] ^ kCrcTables[4][low >> 24] ^
          kCrcTables[3][high & 0xFF] ^ kCrcTables[2][(high >> 8) & 0xFF] ^
          kCrcTables[1][(high >> 16) & 0xFF] ^ kCrcTables[0][high >> 24];
  }
  for (; i < bytes.size(); ++i) {
    crc = (crc >> 8) ^ kCrcTables[0][(crc ^ static_cast<std::uint32_t>(bytes[i])) & 0xFF];
  }
  return ~crc;
}

ZipReader::ZipReader(std::span<const std::byte> bytes, std::string where)
    : bytes_(bytes), where_(std::move(where)) {
  read_records(find_directory());
}

const ZipReader::Record* ZipReader::find(std::string_view name) const noexcept {
  const auto found = positions_.find(name);
  return found == positions_.end() ? nullptr : &records_[found->second];
}

std::span<const std::byte> ZipReader::read(const Record& record) const {
  // Zero: torch.serialization.set_crc32_options(False) writes no checksums.
  if (record.crc != 0) {
    const std::uint32_t crc = crc32(record.data);
    if (crc != record.crc) {
      throw FileError(
          fmt::format("{}: record '{}': expected CRC-32 {:08x}, got {:08x}: the file is damaged",
                      where_, record.name, record.crc, crc));
    }
  }
  return record.data;
}

ZipReader::Directory ZipReader::find_directory() const {
  // The end record is the last one, followed by a comment whose length it holds.
  if (bytes_.size() < kEndBytes) {
    throw FileError(fmt::format("{}: expected a zip archive, got {} bytes", where_, bytes_.size()));
  }
  const std::size_t last = bytes_.size() - kEndBytes;
  const std::size_t first = last > kMaxComment ? last - kMaxComment : 0;
  std::size_t end = last + 1;
  while (end-- > first) {
    if (number_at<std::uint32_t>(bytes_, end) == kEnd &&
        number_at<std::uint16_t>(bytes_, end + 20) == last - end) {
      break;
    }
    if (end == first) {
      throw FileError(fmt::format(
          "{}: expected a zip archive, got no end record in {} bytes: the file is truncated",
          where_, bytes_.size()));
    }
  }

  ByteReader reader(bytes_, where_, end + 4);
  const auto disk = reader.take_number<std::uint16_t>("the zip end record");
  const auto directory_disk = reader.take_number<std::uint16_t>("the zip end record");
  reader.take_number<std::uint16_t>("the zip end record");
  std::uint64_t count = reader.take_number<std::uint16_t>("the zip end record");
  std::uint64_t size = reader.take_number<std::uint32_t>("the zip end record");
  std::uint64_t offset = reader.take_number<std::uint32_t>("the zip end record");
  std::uint64_t limit = end;
  if (count == 0xFFFF || size == kIn64 || offset == kIn64) {
    if (end < kEnd64LocatorBytes ||
        number_at<std::uint32_t>(bytes_, end - kEnd64LocatorBytes) != kEnd64Locator) {
      reader.fail_at(end, "expected a zip64 locator before the zip end record, got none");
    }
    const auto end64 = number_at<std::uint64_t>(bytes_, end - kEnd64LocatorBytes + 8);
    if (end64 > end - kEnd64LocatorBytes || end - kEnd64LocatorBytes - end64 < 56 ||
        number_at<std::uint32_t>(bytes_, static_cast<std::size_t>(end64)) != kEnd64) {
      reader.fail_at(end - kEnd64LocatorBytes,
                     fmt::format("expected the place of the zip64 end record, got {}", end64));
    }
    limit = end64;
    count = number_at<std::uint64_t>(bytes_, static_cast<std::size_t>(end64) + 32);
    size = number_at<std::uint64_t>(bytes_, static_cast<std::size_t>(end64) + 40);
    offset = number_at<std::uint64_t>(bytes_, static_cast<std::size_t>(end64) + 48);
  } else if (disk != 0 || directory_disk != 0) {
    reader.fail_at(end, "expected an archive of one part, got a part of several");
  }
  if (offset > limit || size > limit - offset) {
    reader.fail_at(end, fmt::format("expected a zip directory before byte {}, got {} bytes at {}",
                                    limit, size, offset));
  }
  if (count > size / kCentralHeaderBytes) {
    reader.fail_at(
        end, fmt::format("expected a zip directory for {} records, got {} bytes", count, size));
  }
  return {count, offset, offset + size};
}

void ZipReader::read_records(const Directory& directory) {
  ByteReader reader(bytes_.first(static_cast<std::size_t>(directory.end)), where_,
                    static_cast<std::size_t>(directory.offset));
  records_.reserve(static_cast<std::size_t>(directory.count));
  std::vector<Extent> extents;
  extents.reserve(records_.capacity());
  for (std::uint64_t i = 0; i < directory.count; ++i) {
    const std::size_t begin = reader.position();
    const auto header = reader.take(kCentralHeaderBytes, "a zip directory entry");
    if (number_at<std::uint32_t>(header, 0) != kCentralHeader) {
      reader.fail_at(begin, "expected a zip directory entry, got other bytes");
    }
    const auto flags = number_at<std::uint16_t>(header, 8);
    const auto method = number_at<std::uint16_t>(header, 10);
    std::uint64_t compressed = number_at<std::uint32_t>(header, 20);
    std::uint64_t size = number_at<std::uint32_t>(header, 24);
    std::uint64_t offset = number_at<std::uint32_t>(header, 42);
    Record record;
    record.crc = number_at<std::uint32_t>(header, 16);
    record.name = reader.take_text(number_at<std::uint16_t>(header, 28), "a record name");
    check_name(reader, begin, record.name);

    ByteReader extra(reader.take(number_at<std::uint16_t>(header, 30), "an extra field"),
                     fmt::format("{}: extra field of record '{}'", where_, record.name));
    reader.take(number_at<std::uint16_t>(header, 32), "a record comment");
    while (extra.remaining() >= 4) {
      const auto id = extra.take_number<std::uint16_t>("an extra field");
      const auto length = extra.take_number<std::uint16_t>("an extra field");
      ByteReader field(extra.take(length, "an extra field"), extra.where());
      if (id != 1) continue;
      if (size == kIn64) size = field.take_number<std::uint64_t>("a zip64 size");
      if (compressed == kIn64) compressed = field.take_number<std::uint64_t>("a zip64 size");
      if (offset == kIn64) offset = field.take_number<std::uint64_t>("a zip64 offset");
    }

    if (method != 0 || compressed != size || (flags & kEncrypted) != 0) {
      reader.fail_at(
          begin,
          fmt::format("record '{}': expected stored bytes, got {} (method {}, {} bytes "
                      "from {}); torch.save does not compress",
                      record.name, (flags & kEncrypted) != 0 ? "encrypted ones" : "compressed ones",
                      method, size, compressed));
    }
    extents.push_back(locate(record, offset, size, directory));
    extents.back().record = records_.size();
    records_.push_back(std::move(record));
  }
  if (reader.remaining() != 0) {
    reader.fail(fmt::format("expected the end of the zip directory, got {} more bytes",
                            reader.remaining()));
  }
  for (std::size_t i = 0; i < records_.size(); ++i) {
    if (!positions_.emplace(records_[i].name, i).second) {
      throw FileError(fmt::format("{}: expected different record names, got '{}' twice", where_,
                                  records_[i].name));
    }
  }
  check_overlaps(std::move(extents));
}

ZipReader::Extent ZipReader::locate(Record& record, std::uint64_t header_offset, std::uint64_t size,
                                    const Directory& directory) const {
  const std::string where = fmt::format("{}: record '{}'", where_, record.name);
  if (header_offset > directory.offset) {
    throw FileError(fmt::format("{}: expected a header before byte {}, got {}", where,
                                directory.offset, header_offset));
  }
  ByteReader reader(bytes_.first(static_cast<std::size_t>(directory.offset)), where,
                    static_cast<std::size_t>(header_offset));
  const auto header = reader.take(30, "the local header");
  if (number_at<std::uint32_t>(header, 0) != kLocalHeader) {
    reader.fail_at(static_cast<std::size_t>(header_offset),
                   "expected a local header, got other bytes");
  }
  if (number_at<std::uint16_t>(header, 8) != 0) {
    reader.fail_at(static_cast<std::size_t>(header_offset),
                   "expected the directory's method (stored) in the local header too");
  }
  const std::string_view name =
      reader.take_text(number_at<std::uint16_t>(header, 26), "a record name");
  if (name != record.name) {
    reader.fail_at(static_cast<std::size_t>(header_offset),
                   "expected the directory's name in the local header too, got another");
  }
  // The local header's sizes are zero in torch's files (they follow the data); the directory's
  // hold.
  reader.take(number_at<std::uint16_t>(header, 28), "an extra field");
  record.data = reader.take(size, "the record");
  return {header_offset, reader.position(), 0};
}

void ZipReader::check_overlaps(std::vector<Extent> extents) const {
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  for (std::size_t i = 1; i < extents.size(); ++i) {
    if (extents[i].begin < extents[i - 1].end) {
      throw FileError(
          fmt::format("{}: expected records apart, got '{}' and '{}' overlapping at byte {}",
                      where_, records_[extents[i - 1].record].name,
                      records_[extents[i].record].name, extents[i].begin));
    }
  }
}

}  // namespace quanta::detail
