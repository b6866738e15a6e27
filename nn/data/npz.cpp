#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/nn/data/detail/npy_array.h"
#include "quanta/nn/data/npy.h"
#include "quanta/runtime/atomic_file.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/file_bytes.h"
#include "quanta/runtime/detail/reading.h"

// Format: PKWARE's APPNOTE. An end record points to a directory, whose entries point to members;
// sizes are taken from the directory. A field of all ones stands for one of zip64's.

namespace quanta::data {
namespace {

constexpr std::uint64_t kAllOnes16 = 0xFFFF;
constexpr std::uint64_t kAllOnes32 = 0xFFFFFFFF;
constexpr std::size_t kEndRecord = 22;
constexpr std::size_t kLocator = 20;
constexpr std::size_t kEndRecord64 = 56;
constexpr std::size_t kEntry = 46;
constexpr std::size_t kLocalHeader = 30;
/// No byte of a deflated member gives more than this many.
constexpr std::uint64_t kMostInflated = 1032;
constexpr std::string_view kSuffix = ".npy";

struct Member {
  std::string name;
  bool deflated = false;
  std::uint32_t crc = 0;
  std::uint64_t packed_bytes = 0;
  std::uint64_t bytes = 0;
  std::uint64_t header = 0;  ///< where its local header lies
};

class Archive {
 public:
  Archive(std::shared_ptr<quanta::detail::FileBytes> file, std::string where)
      : file_(std::move(file)), bytes_(file_->bytes()), where_(std::move(where)) {}

  std::vector<Member> members() const {
    auto [count, at, end] = directory();
    std::vector<Member> found;
    for (; count > 0; --count) {
      if (end - at < kEntry || number(at, 4) != 0x02014b50) fail("a directory entry is damaged");
      const std::uint64_t name_bytes = number(at + 28, 2);
      const std::uint64_t extra_bytes = number(at + 30, 2);
      const std::uint64_t size = kEntry + name_bytes + extra_bytes + number(at + 32, 2);
      if (end - at < size) fail("a directory entry is cut off");
      Member member{.name = text(at + kEntry, name_bytes),
                    .deflated = number(at + 10, 2) == 8,
                    .crc = static_cast<std::uint32_t>(number(at + 16, 4)),
                    .packed_bytes = number(at + 20, 4),
                    .bytes = number(at + 24, 4),
                    .header = number(at + 42, 4)};
      if ((number(at + 8, 2) & 1U) != 0) fail("'" + member.name + "' is encrypted");
      if (!member.deflated && number(at + 10, 2) != 0) {
        fail("'" + member.name + "': expected a member that is stored or deflated");
      }
      read_long_sizes(member, at + kEntry + name_bytes, extra_bytes);
      found.push_back(std::move(member));
      at += size;
    }
    return found;
  }

  /// The member's bytes, and who keeps them.
  std::pair<std::span<std::byte>, std::shared_ptr<void>> read(const Member& member) const {
    const std::string quoted = "'" + member.name + "'";
    if (member.header > bytes_.size() || bytes_.size() - member.header < kLocalHeader ||
        number(member.header, 4) != 0x04034b50) {
      fail(quoted + " does not begin where the directory says");
    }
    const std::uint64_t data = member.header + kLocalHeader + number(member.header + 26, 2) +
                               number(member.header + 28, 2);
    if (data > bytes_.size() || bytes_.size() - data < member.packed_bytes) {
      fail(quoted + " is cut off");
    }
    const std::span<std::byte> packed = bytes_.subspan(data, member.packed_bytes);
    std::pair<std::span<std::byte>, std::shared_ptr<void>> result{packed, file_};
    if (member.deflated) {
      result = inflate_all(member, packed);
    } else if (member.bytes != member.packed_bytes) {
      fail(quoted + ": a stored member has two sizes");
    }
    if (checksum(result.first) != member.crc) fail(quoted + ": the checksum is wrong");
    return result;
  }

  static std::uint32_t checksum(std::span<const std::byte> bytes) {
    return static_cast<std::uint32_t>(
        crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw FileError(fmt::format("{}: {}", where_, what));
  }

 private:
  struct Directory {
    std::uint64_t count;
    std::uint64_t begin;
    std::uint64_t end;
  };

  std::uint64_t number(std::uint64_t at, std::size_t width) const {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < width; ++i) {
      value |= static_cast<std::uint64_t>(std::to_integer<unsigned>(bytes_[at + i])) << (8 * i);
    }
    return value;
  }
  std::string text(std::uint64_t at, std::uint64_t size) const {
    return {reinterpret_cast<const char*>(bytes_.data()) + at, size};
  }

  /// The end record is the last of its kind: a comment may follow it.
  std::uint64_t end_record() const {
    if (bytes_.size() < kEndRecord || number(0, 2) != 0x4b50) {
      fail("expected a .npz file (a zip archive), got something else");
    }
    const std::uint64_t last = bytes_.size() - kEndRecord;
    const std::uint64_t first = last - std::min(last, kAllOnes16);
    for (std::uint64_t at = last;; --at) {
      if (number(at, 4) == 0x06054b50 && number(at + 20, 2) == last - at) return at;
      if (at == first) fail("expected a zip archive with its directory, got one that is cut off");
    }
  }

  Directory directory() const {
    const std::uint64_t record = end_record();
    std::uint64_t count = number(record + 10, 2);
    std::uint64_t size = number(record + 12, 4);
    std::uint64_t begin = number(record + 16, 4);
    if (count == kAllOnes16 || size == kAllOnes32 || begin == kAllOnes32) {
      if (record < kLocator || number(record - kLocator, 4) != 0x07064b50) {
        fail("expected zip64's end record, got none");
      }
      const std::uint64_t at = number(record - kLocator + 8, 8);
      if (at > record || record - at < kEndRecord64 || number(at, 4) != 0x06064b50) {
        fail("zip64's end record is damaged");
      }
      count = number(at + 32, 8);
      size = number(at + 40, 8);
      begin = number(at + 48, 8);
    }
    if (begin > record || record - begin < size || count > size / kEntry) {
      fail("the directory does not lie in the file");
    }
    return {count, begin, begin + size};
  }

  /// Zip64's field has those of the sizes that do not fit, in this order.
  void read_long_sizes(Member& member, std::uint64_t at, std::uint64_t size) const {
    for (const std::uint64_t end = at + size; end - at >= 4;) {
      const std::uint64_t field_end = at + 4 + number(at + 2, 2);
      if (field_end > end) fail("'" + member.name + "': an extra field is cut off");
      if (number(at, 2) == 1) {
        at += 4;
        for (std::uint64_t* value : {&member.bytes, &member.packed_bytes, &member.header}) {
          if (*value != kAllOnes32) continue;
          if (field_end - at < 8) fail("'" + member.name + "': a zip64 field is cut off");
          *value = number(at, 8);
          at += 8;
        }
        return;
      }
      at = field_end;
    }
  }

  std::pair<std::span<std::byte>, std::shared_ptr<void>> inflate_all(
      const Member& member, std::span<const std::byte> packed) const {
    const auto damaged = [&] { fail("'" + member.name + "': the compressed data are damaged"); };
    if (member.bytes / kMostInflated > member.packed_bytes) damaged();
    const std::shared_ptr<std::byte[]> out(new std::byte[member.bytes + 1]);  // NOLINT
    z_stream stream{};
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) fail("zlib does not start");
    const std::unique_ptr<z_stream, int (*)(z_stream*)> guard(&stream, inflateEnd);
    std::uint64_t taken = 0;
    std::uint64_t made = 0;
    // zlib counts in 32 bits. One byte more than declared is offered, to see who goes beyond.
    constexpr std::uint64_t kChunk = 1U << 30U;
    int status = Z_OK;
    while (status == Z_OK) {
      const auto in = static_cast<uInt>(std::min(kChunk, packed.size() - taken));
      const auto room = static_cast<uInt>(std::min(kChunk, member.bytes + 1 - made));
      // zlib's struct is not const-correct; it does not write here.
      stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(packed.data()) + taken);
      stream.avail_in = in;
      stream.next_out = reinterpret_cast<Bytef*>(out.get()) + made;
      stream.avail_out = room;
      status = inflate(&stream, Z_NO_FLUSH);
      if (stream.avail_in == in && stream.avail_out == room && status == Z_OK) damaged();
      taken += in - stream.avail_in;
      made += room - stream.avail_out;
    }
    if (status != Z_STREAM_END || made != member.bytes || taken != packed.size()) damaged();
    return {{out.get(), member.bytes}, out};
  }

  std::shared_ptr<quanta::detail::FileBytes> file_;
  std::span<std::byte> bytes_;
  std::string where_;
};

void append(std::string& to, std::uint64_t value, std::size_t width) {
  for (std::size_t i = 0; i < width; ++i) to += static_cast<char>((value >> (8 * i)) & 0xFFU);
}

/// From "version needed" to the length of the extra field: alike in both headers.
std::string fields(const Member& member) {
  std::string text;
  append(text, 20, 2);
  append(text, 0x800, 2);        // names are UTF-8
  append(text, 0, 2);            // stored
  append(text, 0x00210000U, 4);  // 1980-01-01: equal arrays give equal files
  append(text, member.crc, 4);
  append(text, member.packed_bytes, 4);
  append(text, member.bytes, 4);
  append(text, member.name.size(), 2);
  append(text, 0, 2);
  return text;
}

std::span<const std::byte> as_bytes_of(const Tensor& x) {
  return {static_cast<const std::byte*>(x.data_ptr()), x.nbytes()};
}

NamedArrays read_archive(const std::filesystem::path& path, const std::string& where,
                         FileAccess access) {
  const Archive archive(quanta::detail::FileBytes::open(path, "read_npz", access), where);
  NamedArrays arrays;
  // Members of one place, many times over, are a way to fill memory.
  std::uint64_t begin = 0;
  std::vector<Member> members = archive.members();
  std::sort(members.begin(), members.end(),
            [](const Member& a, const Member& b) { return a.header < b.header; });
  for (const Member& member : members) {
    if (member.header < begin) archive.fail("'" + member.name + "' lies within another member");
    if (!member.name.ends_with(kSuffix)) {
      archive.fail("expected .npy members, got '" + member.name + "'");
    }
    const auto [bytes, owner] = archive.read(member);
    begin = member.header + kLocalHeader + member.packed_bytes;
    const std::string name = member.name.substr(0, member.name.size() - kSuffix.size());
    const Tensor array = detail::npy_array(bytes, where + ": " + member.name, owner);
    if (!arrays.emplace(name, array).second) archive.fail("'" + name + "' is there twice");
  }
  return arrays;
}

}  // namespace

NamedArrays read_npz(const std::filesystem::path& path, FileAccess access) {
  const std::string where = "read_npz: " + path.string();
  return quanta::detail::reading(where, [&] { return read_archive(path, where, access); });
}

void write_npz(const NamedArrays& arrays, const std::filesystem::path& path) {
  struct Part {
    Member member;
    std::string begin;  ///< local header and the array's
    Tensor values;
  };
  std::vector<Part> parts;
  std::uint64_t offset = 0;
  for (const auto& [name, array] : arrays) {
    QUANTA_CHECK(!name.empty() && name.size() < kAllOnes16 - kSuffix.size(),
                 "write_npz: arrays: expected names of 1 to 65530 bytes, got {}", name.size());
    Part part;
    const std::string header = detail::npy_header(array, "write_npz");
    part.values = array.contiguous();
    part.member.name = name + std::string(kSuffix);
    part.member.header = offset;
    part.member.bytes = part.member.packed_bytes = header.size() + part.values.nbytes();
    const auto values = as_bytes_of(part.values);
    part.member.crc = Archive::checksum(std::as_bytes(std::span(header)));
    if (!values.empty()) {
      const auto* data = reinterpret_cast<const Bytef*>(values.data());
      part.member.crc = static_cast<std::uint32_t>(crc32_z(part.member.crc, data, values.size()));
    }
    append(part.begin, 0x04034b50, 4);
    part.begin += fields(part.member) + part.member.name + header;
    offset += part.begin.size() + values.size();
    // What the directory needs at most is left over.
    QUANTA_CHECK(
        offset < kAllOnes32 - 2 * (parts.size() + 1) * kAllOnes16 && parts.size() + 1 < kAllOnes16,
        "write_npz: arrays: expected less than 4 GiB in all, got more");
    parts.push_back(std::move(part));
  }
  std::string directory;
  for (const Part& part : parts) {
    append(directory, 0x02014b50, 4);
    append(directory, 20, 2);
    directory += fields(part.member);
    append(directory, 0, 8);  // no comment, one disk, no attributes
    append(directory, 0, 2);
    append(directory, part.member.header, 4);
    directory += part.member.name;
  }
  const std::uint64_t directory_bytes = directory.size();
  append(directory, 0x06054b50, 4);
  append(directory, 0, 4);
  append(directory, parts.size(), 2);
  append(directory, parts.size(), 2);
  append(directory, directory_bytes, 4);
  append(directory, offset, 4);
  append(directory, 0, 2);
  write_file_atomically(path, [&](const auto& sink) {
    for (const Part& part : parts) {
      sink(std::as_bytes(std::span(part.begin)));
      sink(as_bytes_of(part.values));
    }
    sink(std::as_bytes(std::span(directory)));
  });
}

}  // namespace quanta::data
