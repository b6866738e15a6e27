#pragma once

// Private: the index of a model whose tensors are spread over several .safetensors files
// (model.safetensors.index.json, as Hugging Face writes it).

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace quanta::detail {

struct SafetensorsIndex {
  /// In the order of their first tensor. Plain file names: no folders.
  std::vector<std::string> shards;
  /// The position in `shards` of each tensor's file.
  std::unordered_map<std::string, std::size_t> weight_map;
  /// The names of weight_map in the order of the index.
  std::vector<std::string> names;
  /// Bytes of all tensors together, where the index says so.
  std::optional<std::int64_t> total_size;
};

/// Whether the bytes begin as JSON does and as no .safetensors can: its header would be longer than
/// the format allows.
bool is_safetensors_index(std::span<const std::byte> bytes) noexcept;

/// Throws FileError `<where>: ...` for text that is no index, names of shards that are no plain file
/// names (folders, "..", control characters), and more than 65536 shards.
SafetensorsIndex parse_safetensors_index(std::span<const std::byte> bytes,
                                         const std::string& where);

}  // namespace quanta::detail
