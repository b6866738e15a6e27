#include "safetensors_change.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "quanta/runtime/detail/safetensors_format.h"
#include "quanta/runtime/dtype.h"
#include "support.h"

namespace quanta::fuzz {
namespace {

using detail::Json;

constexpr std::int64_t kMostBytes = 1 << 16;  // of a tensor that a change made

/// The bytes that the entry's dtype and shape ask for; -1 for one that is no tensor.
std::int64_t entry_bytes(const Json& entry) {
  const Json* dtype = entry.find("dtype");
  const Json* shape = entry.find("shape");
  if (dtype == nullptr || dtype->as_string() == nullptr || shape == nullptr ||
      shape->as_array() == nullptr) {
    return -1;
  }
  const auto known = detail::dtype_from_safetensors_name(*dtype->as_string());
  if (!known) return -1;
  auto bytes = static_cast<std::int64_t>(item_size(*known));
  for (const Json& size : *shape->as_array()) {
    if (size.as_int() == nullptr || *size.as_int() < 0 || *size.as_int() > kMostBytes) return -1;
    bytes = std::min(bytes * *size.as_int(), kMostBytes + 1);
  }
  return bytes > kMostBytes ? -1 : bytes;
}

/// Offsets one behind the other, and data of that length.
Json with_offsets(const Json& header, std::string& data) {
  Json::Object result;
  std::int64_t position = 0;
  for (const auto& [name, entry] : *header.as_object()) {
    const std::int64_t bytes = name == detail::kMetadataKey ? -1 : entry_bytes(entry);
    if (bytes < 0) {
      result.emplace_back(name, entry);
      continue;
    }
    Json::Object members;
    for (const auto& [key, value] : *entry.as_object()) {
      members.emplace_back(
          key, key == "data_offsets" ? Json(Json::Array{position, position + bytes}) : value);
    }
    result.emplace_back(name, std::move(members));
    position += bytes;
  }
  data.resize(static_cast<std::size_t>(position), '\0');
  return result;
}

std::string assembled(std::string_view header, std::string_view data) {
  const std::uint64_t length = header.size();
  std::string file(sizeof(length), '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  return file.append(header).append(data);
}

}  // namespace

std::string changed_safetensors(std::string_view file, std::size_t max_size, Random& random) {
  std::uint64_t length = 0;
  if (file.size() < sizeof(length)) return changed_bytes(file, max_size);
  std::memcpy(&length, file.data(), sizeof(length));
  if (length > file.size() - sizeof(length)) return changed_bytes(file, max_size);
  const std::string_view header = file.substr(sizeof(length), length);
  std::string data(file.substr(sizeof(length) + length));
  const std::size_t room = max_size - std::min(max_size, file.size());
  switch (below(random, 8)) {
    case 0:
      return changed_bytes(file, max_size);
    case 1:
      return assembled(changed_bytes(header, header.size() + room), data);
    case 2:
    case 3:
      return assembled(header, changed_bytes(data, data.size() + room));
    default:
      break;
  }
  try {
    const Json json = changed_json(detail::parse_json(header, ""), random);
    const bool repair = json.as_object() != nullptr && random() % 4 != 0;
    const std::string text = detail::to_json_text(repair ? with_offsets(json, data) : json);
    return assembled(text, data);
  } catch (const Error&) {
    return changed_bytes(file, max_size);
  }
}

}  // namespace quanta::fuzz
