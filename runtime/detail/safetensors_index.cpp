#include "quanta/runtime/detail/safetensors_index.h"

#include <cstring>
#include <string_view>

#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/json.h"
#include "quanta/runtime/detail/safetensors_format.h"

namespace quanta::detail {
namespace {

constexpr std::size_t kMaxShards = 65536;
constexpr std::size_t kMaxFileName = 255;

/// Files beside the index only: a name with a folder could lead anywhere.
void check_shard_name(std::string_view name, const std::string& where) {
  bool is_plain = !name.empty() && name.size() <= kMaxFileName && name != "." && name != "..";
  for (const char c : name) {
    const auto code = static_cast<unsigned char>(c);
    if (code < 0x20 || code == 0x7F || c == '/' || c == '\\' || c == ':') is_plain = false;
  }
  if (!is_plain) {
    throw FileError(
        fmt::format("{}: weight_map: expected names of files in the folder of the index, got '{}'",
                    where, name.substr(0, kMaxFileName)));
  }
  if (!name.ends_with(".safetensors")) {
    throw FileError(
        fmt::format("{}: weight_map: expected names of .safetensors files, got '{}'", where, name));
  }
}

}  // namespace

bool is_safetensors_index(std::span<const std::byte> bytes) noexcept {
  if (bytes.size() < kHeaderLengthBytes || bytes[0] != std::byte{'{'}) return false;
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  return length > kMaxHeaderBytes;
}

SafetensorsIndex parse_safetensors_index(std::span<const std::byte> bytes,
                                         const std::string& where) {
  if (bytes.size() > kMaxHeaderBytes) {
    throw FileError(fmt::format("{}: expected an index of at most {} bytes, got {}", where,
                                kMaxHeaderBytes, bytes.size()));
  }
  const Json json = parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, where);
  const Json* map = json.find("weight_map");
  if (map == nullptr || map->as_object() == nullptr) {
    throw FileError(
        fmt::format("{}: expected the index of a model in shards, with an object 'weight_map', got "
                    "{}",
                    where, map == nullptr ? json.kind() : map->kind()));
  }
  SafetensorsIndex index;
  std::unordered_map<std::string_view, std::size_t> positions;
  for (const auto& [name, shard] : *map->as_object()) {
    if (shard.as_string() == nullptr) {
      throw FileError(fmt::format("{}: weight_map: '{}': expected the name of a file, got {}",
                                  where, name, shard.kind()));
    }
    const auto [found, is_new] = positions.emplace(*shard.as_string(), index.shards.size());
    if (is_new) {
      check_shard_name(*shard.as_string(), where);
      index.shards.push_back(*shard.as_string());
      if (index.shards.size() > kMaxShards) {
        throw FileError(fmt::format("{}: expected at most {} shards", where, kMaxShards));
      }
    }
    index.weight_map.emplace(name, found->second);
    index.names.push_back(name);
  }
  if (const Json* metadata = json.find("metadata")) {
    if (const Json* total = metadata->find("total_size")) {
      if (!total->is_number() || total->as_number() < 0.0 || total->as_number() > 9e15) {
        throw FileError(fmt::format("{}: metadata: total_size: expected a number of bytes, got {}",
                                    where, total->kind()));
      }
      index.total_size = static_cast<std::int64_t>(total->as_number());
    }
  }
  return index;
}

}  // namespace quanta::detail
