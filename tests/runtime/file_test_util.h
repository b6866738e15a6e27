#pragma once

// Small writers for zip archives and pickles that no honest program would write.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/runtime/detail/zip_reader.h"
#include "support/files.h"

namespace quanta::test {

template <typename T>
void put(std::string& text, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  text.append(bytes, sizeof(T));
}

inline void put16(std::string& text, int value) { put(text, static_cast<std::uint16_t>(value)); }

inline std::string safetensors(std::string_view header, std::string_view data) {
  std::string file;
  put<std::uint64_t>(file, header.size());
  file += header;
  file += data;
  return file;
}

struct ZipRecord {
  std::string name;
  std::string data;
  std::uint16_t method = 0;
  std::string central_name = {};  // another name in the directory
  std::uint32_t crc_xor = 0;
  std::int64_t reuse = -1;  // directory points to this record's header
};

inline std::string make_zip(const std::vector<ZipRecord>& records) {
  std::string file;
  std::string directory;
  std::vector<std::uint32_t> offsets;
  for (const ZipRecord& record : records) {
    const auto size = static_cast<std::uint32_t>(record.data.size());
    const std::uint32_t crc = detail::crc32(as_bytes(record.data)) ^ record.crc_xor;
    const std::string& central = record.central_name.empty() ? record.name : record.central_name;
    offsets.push_back(static_cast<std::uint32_t>(file.size()));
    const std::uint32_t offset =
        record.reuse < 0 ? offsets.back() : offsets[static_cast<std::size_t>(record.reuse)];
    if (record.reuse < 0) {
      put<std::uint32_t>(file, 0x04034b50);
      for (const int field : {0, 0, int{record.method}, 0, 0}) put16(file, field);
      put(file, crc);
      put(file, size);
      put(file, size);
      put(file, static_cast<std::uint16_t>(record.name.size()));
      put<std::uint16_t>(file, 0);
      file += record.name + record.data;
    }
    put<std::uint32_t>(directory, 0x02014b50);
    for (const int field : {0, 0, 0, int{record.method}, 0, 0}) put16(directory, field);
    put(directory, crc);
    put(directory, size);
    put(directory, size);
    put(directory, static_cast<std::uint16_t>(central.size()));
    for (int i = 0; i < 4; ++i) put<std::uint16_t>(directory, 0);
    put<std::uint32_t>(directory, 0);
    put(directory, offset);
    directory += central;
  }
  const auto offset = static_cast<std::uint32_t>(file.size());
  file += directory;
  put<std::uint32_t>(file, 0x06054b50);
  put<std::uint32_t>(file, 0);
  put(file, static_cast<std::uint16_t>(records.size()));
  put(file, static_cast<std::uint16_t>(records.size()));
  put(file, static_cast<std::uint32_t>(directory.size()));
  put(file, offset);
  put<std::uint16_t>(file, 0);
  return file;
}

/// A file of torch.save around the given pickle, with one storage "0".
inline std::string make_pt(const std::string& pickle, const std::string& storage = {}) {
  return make_zip({{.name = "m/data.pkl", .data = pickle},
                   {.name = "m/byteorder", .data = "little"},
                   {.name = "m/data/0", .data = storage},
                   {.name = "m/version", .data = "3\n"}});
}

// Checksums would catch a change before the code behind them sees it; zero means none was written.
inline std::string without_checksums(std::string file) {
  for (std::size_t i = 0; i + 46 <= file.size(); ++i) {
    if (file.compare(i, 4, "PK\x01\x02") == 0) std::memset(file.data() + i + 16, 0, 4);
  }
  return file;
}

// Pickle opcodes.
inline std::string text(std::string_view value) {
  std::string result = "X";
  put(result, static_cast<std::uint32_t>(value.size()));
  result += value;
  return result;
}
inline std::string integer(std::int64_t value) {
  std::string result = "\x8a\x08";
  put(result, value);
  return result;
}
inline std::string global(std::string_view module, std::string_view name) {
  return "c" + std::string(module) + "\n" + std::string(name) + "\n";
}
inline std::string tuple(const std::vector<std::string>& items) {
  std::string result = "(";
  for (const std::string& item : items) result += item;
  return result + "t";
}
inline std::string integers(const std::vector<std::int64_t>& values) {
  std::vector<std::string> items;
  for (const std::int64_t value : values) items.push_back(integer(value));
  return tuple(items);
}
inline std::string pickle(const std::string& body) { return "\x80\x02" + body + "."; }
inline std::string storage_id(std::string_view type, std::int64_t numel) {
  return tuple({text("storage"), global("torch", type), text("0"), text("cpu"), integer(numel)}) +
         "Q";
}
inline std::string tensor_call(const std::string& storage, std::int64_t offset,
                               const std::vector<std::int64_t>& size,
                               const std::vector<std::int64_t>& stride) {
  return global("torch._utils", "_rebuild_tensor_v2") +
         tuple({storage, integer(offset), integers(size), integers(stride), "\x89",
                global("collections", "OrderedDict") + ")R"}) +
         "R";
}

}  // namespace quanta::test
