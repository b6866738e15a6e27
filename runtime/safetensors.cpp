#include "quanta/runtime/safetensors.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/byte_reader.h"
#include "quanta/runtime/detail/file_bytes.h"
#include "quanta/runtime/detail/file_kind.h"
#include "quanta/runtime/detail/file_sizes.h"
#include "quanta/runtime/detail/json.h"
#include "quanta/runtime/detail/open_file.h"
#include "quanta/runtime/detail/reading.h"
#include "quanta/runtime/detail/safetensors_format.h"
#include "quanta/runtime/detail/safetensors_index.h"
#include "quanta/runtime/detail/torchao.h"

// Format: https://huggingface.co/docs/safetensors/index#format

namespace quanta {
namespace {

using detail::Json;

/// A tensor of the header, checked against the file's length.
struct Entry {
  std::string name;
  DType dtype = DType::Float32;
  Dims sizes;
  std::size_t begin = 0;  // from the beginning of the data
  std::size_t end = 0;
};

/// The data behind the header: in memory that tensors keep alive, in memory to be copied (no owner),
/// or still in the file, from `begin` on.
struct Source {
  std::span<std::byte> memory{};
  std::shared_ptr<void> owner{};
  const detail::OpenFile* file = nullptr;
  std::size_t begin = 0;

  std::size_t size() const { return file == nullptr ? memory.size() : file->size() - begin; }
  void copy(const Entry& entry, std::byte* to) const {
    const std::size_t bytes = entry.end - entry.begin;
    if (bytes == 0) return;
    if (file != nullptr) {
      file->read(begin + entry.begin, {to, bytes});
    } else {
      std::memcpy(to, memory.data() + entry.begin, bytes);
    }
  }
};

Entry read_entry(const Json::Member& member, std::size_t data_bytes, const std::string& file) {
  const std::string where = fmt::format("{}: tensor '{}'", file, member.first);
  const auto require = [&](bool condition, std::string_view what, std::string_view expected) {
    if (condition) return;
    const Json* value = member.second.find(what);
    throw FileError(fmt::format("{}: {}: expected {}, got {}", where, what, expected,
                                value == nullptr ? "nothing" : value->kind()));
  };
  if (member.second.as_object() == nullptr) {
    throw FileError(fmt::format("{}: expected an object, got {}", where, member.second.kind()));
  }
  for (const auto& [key, value] : *member.second.as_object()) {
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      throw FileError(
          fmt::format("{}: expected dtype, shape and data_offsets, got '{}'", where, key));
    }
  }

  Entry entry;
  entry.name = member.first;
  const Json* dtype = member.second.find("dtype");
  require(dtype != nullptr && dtype->as_string() != nullptr, "dtype", "a string");
  const std::optional<DType> known = detail::dtype_from_safetensors_name(*dtype->as_string());
  if (!known) {
    throw FileError(
        fmt::format("{}: dtype: expected F64, F32, F16, BF16, I64, I32, I16, U16, I8, U8, "
                    "BOOL, F8_E4M3 or F8_E5M2, got '{}'",
                    where, *dtype->as_string()));
  }
  entry.dtype = *known;

  const Json* shape = member.second.find("shape");
  require(shape != nullptr && shape->as_array() != nullptr, "shape", "an array");
  if (shape->as_array()->size() > Dims::kMaxDims) {
    throw FileError(fmt::format("{}: shape: expected at most {} dimensions, got {}", where,
                                Dims::kMaxDims, shape->as_array()->size()));
  }
  for (const Json& size : *shape->as_array()) {
    require(size.as_int() != nullptr, "shape", "an array of integers");
    entry.sizes.push_back(*size.as_int());
  }

  const Json* offsets = member.second.find("data_offsets");
  require(offsets != nullptr && offsets->as_array() != nullptr && offsets->as_array()->size() == 2,
          "data_offsets", "an array of two integers");
  const std::int64_t* begin = (*offsets->as_array())[0].as_int();
  const std::int64_t* end = (*offsets->as_array())[1].as_int();
  require(begin != nullptr && end != nullptr, "data_offsets", "an array of two integers");
  if (*begin < 0 || *end < *begin || static_cast<std::uint64_t>(*end) > data_bytes) {
    throw FileError(
        fmt::format("{}: data_offsets: expected a range within the {} bytes of data, got "
                    "[{}, {}]: the file is truncated or malformed",
                    where, data_bytes, *begin, *end));
  }
  entry.begin = static_cast<std::size_t>(*begin);
  entry.end = static_cast<std::size_t>(*end);
  const std::size_t bytes =
      storage_bytes(entry.dtype, detail::checked_file_numel(entry.sizes, where));
  if (bytes != entry.end - entry.begin) {
    throw FileError(fmt::format("{}: data_offsets: expected {} bytes for {} {}, got {}", where,
                                bytes, entry.dtype, entry.sizes, entry.end - entry.begin));
  }
  return entry;
}

// The format wants the tensors to cover the data without gaps and overlaps: no byte is read twice,
// and none can hide something else.
void check_coverage(const std::vector<Entry>& entries, std::size_t data_bytes,
                    const std::string& file) {
  std::vector<const Entry*> order;
  order.reserve(entries.size());
  for (const Entry& entry : entries) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const Entry* a, const Entry* b) {
    return a->begin != b->begin ? a->begin < b->begin : a->end < b->end;
  });
  std::size_t position = 0;
  for (const Entry* entry : order) {
    if (entry->begin != position) {
      throw FileError(fmt::format(
          "{}: tensor '{}': data_offsets: expected a begin at {}, got {}: {}", file, entry->name,
          position, entry->begin, entry->begin < position ? "tensors overlap" : "there is a gap"));
    }
    position = entry->end;
  }
  if (position != data_bytes) {
    throw FileError(
        fmt::format("{}: expected {} bytes of data, got {}", file, position, data_bytes));
  }
}

void check_bools(const Tensor& tensor, const Entry& entry, const std::string& file) {
  const auto* data = static_cast<const std::uint8_t*>(tensor.data_ptr());
  for (std::size_t i = 0; i < entry.end - entry.begin; ++i) {
    if (data[i] > 1) {
      throw FileError(
          fmt::format("{}: tensor '{}': expected BOOL values 0 and 1, got {} at byte {}", file,
                      entry.name, data[i], i));
    }
  }
}

Tensor make_tensor(const Entry& entry, const Source& source, const std::string& file) {
  Tensor result;
  std::byte* data = source.owner == nullptr ? nullptr : source.memory.data() + entry.begin;
  if (data != nullptr && entry.end > entry.begin &&
      reinterpret_cast<std::uintptr_t>(data) % item_size(entry.dtype) == 0) {
    result = Tensor::from_blob(data, entry.sizes, entry.dtype,
                               [owner = source.owner](void*) mutable { owner.reset(); });
  } else {
    result = Tensor::empty(entry.sizes, entry.dtype);
    source.copy(entry, static_cast<std::byte*>(result.data_ptr()));
  }
  if (entry.dtype == DType::Bool) check_bools(result, entry, file);
  return result;
}

std::map<std::string, std::string> read_metadata(const Json& json, const std::string& file) {
  if (json.as_object() == nullptr) {
    throw FileError(fmt::format("{}: __metadata__: expected an object, got {}", file, json.kind()));
  }
  std::map<std::string, std::string> result;
  for (const auto& [key, value] : *json.as_object()) {
    if (value.as_string() == nullptr) {
      throw FileError(fmt::format("{}: __metadata__: '{}': expected a string, got {}", file, key,
                                  value.kind()));
    }
    result.emplace(key, *value.as_string());
  }
  return result;
}

void restore_quantized(SafetensorsFile& result, const std::string& file) {
  const auto found = result.metadata.find(std::string(detail::kQuantizedKey));
  if (found == result.metadata.end()) return;
  const std::string where = fmt::format("{}: {}", file, detail::kQuantizedKey);
  const Json json = detail::parse_json(found->second, where);
  if (json.as_object() == nullptr) {
    throw FileError(fmt::format("{}: expected an object, got {}", where, json.kind()));
  }
  detail::PooledScales pooled(result.tensors.find(detail::kScalesName));
  for (const auto& [name, description] : *json.as_object()) {
    const Tensor* codes = result.tensors.find(name);
    if (codes == nullptr) {
      throw FileError(fmt::format("{}: expected names of tensors, got '{}'", where, name));
    }
    result.tensors.set(name, detail::restore_quantized(*codes, description, pooled,
                                                       fmt::format("{}: '{}'", where, name)));
  }
  if (pooled.scales.defined()) result.tensors.erase(detail::kScalesName);
  result.metadata.erase(found);
}

/// Files that are taken for .safetensors by mistake. The length that they begin with is absurd.
void refuse_foreign(std::span<const std::byte> bytes, const std::string& file) {
  const std::string known = detail::recognize_file(bytes);
  if (known.empty() || known.starts_with("a .safetensors")) return;
  throw FileError(fmt::format("{}: byte 0: expected a .safetensors file, got {}", file, known));
}

/// The weights of torchao's flatten_tensor_state_dict: "fc.weight" is described in the metadata, and
/// its parts are "fc._weight_qdata", "fc._weight_scale" and "fc._weight_zero_point".
void restore_torchao(SafetensorsFile& result, const std::string& file) {
  if (!result.metadata.contains("tensor_names")) return;
  // Weights and their names by the name of their codes.
  std::map<std::string, std::pair<std::string, QTensor>> weights;
  std::set<std::string> parts;
  for (const auto& [name, text] : result.metadata) {
    if (name == "tensor_names" || !text.starts_with('{')) continue;
    const std::string where = fmt::format("{}: metadata of '{}'", file, name);
    const Json json = detail::parse_json(text, where);
    const Json* type = json.find("_type");
    if (type == nullptr || type->as_string() == nullptr || *type->as_string() != "Int8Tensor") {
      continue;
    }
    const std::size_t dot = name.rfind('.');
    const std::string prefix =
        dot == std::string::npos
            ? fmt::format("_{}_", name)
            : fmt::format("{}._{}_", name.substr(0, dot), name.substr(dot + 1));
    detail::TorchaoInt8 int8;
    const auto take = [&](std::string_view part) {
      const Tensor* tensor = result.tensors.find(prefix + std::string(part));
      if (tensor == nullptr) return Tensor();
      parts.insert(prefix + std::string(part));
      return *tensor;
    };
    int8.qdata = take("qdata");
    int8.scale = take("scale");
    int8.zero_point = take("zero_point");
    const Json* data = json.find("_data");
    const Json* block = data == nullptr ? nullptr : data->find("block_size");
    const Json* activation = data == nullptr ? nullptr : data->find("act_quant_kwargs");
    if (activation != nullptr && !activation->is_null()) {
      throw FileError(fmt::format("{}: act_quant_kwargs: expected null (weights only), got {}",
                                  where, activation->kind()));
    }
    if (block != nullptr && block->as_array() != nullptr && block->as_array()->size() == 2) {
      for (const Json& size : *block->as_array()) {
        int8.block_size.push_back(size.as_int() == nullptr ? -1 : *size.as_int());
      }
    }
    if (result.tensors.contains(name)) {
      throw FileError(
          fmt::format("{}: expected its parts alone, got a tensor '{}' too", where, name));
    }
    weights.emplace(prefix + "qdata", std::pair(name, detail::restore_torchao_int8(int8, where)));
  }
  if (weights.empty()) return;
  StateDict restored;
  for (const auto& [name, tensor] : result.tensors) {
    const auto weight = weights.find(name);
    if (weight != weights.end()) {
      restored.set(weight->second.first, weight->second.second);
    } else if (!parts.contains(name)) {
      restored.set(name, tensor);
    }
  }
  result.tensors = std::move(restored);
}

/// `head` begins the file and holds its header at least; `data` gives what follows that.
template <typename Data>
SafetensorsFile parse(std::span<const std::byte> head, const std::string& file, const Data& data) {
  refuse_foreign(head, file);
  detail::ByteReader reader(head, file);
  const auto length = reader.take_number<std::uint64_t>("the header's length");
  if (length > detail::kMaxHeaderBytes) {
    reader.fail_at(0, fmt::format("expected a header of at most {} bytes, got {}",
                                  detail::kMaxHeaderBytes, length));
  }
  const std::string_view header = reader.take_text(length, "the header");
  if (!header.starts_with('{')) {
    reader.fail_at(detail::kHeaderLengthBytes,
                   "expected a header that begins with '{', got another");
  }
  const Json json = detail::parse_json(header, fmt::format("{}: header", file));
  const Source source = data(reader.position());

  SafetensorsFile result;
  std::vector<Entry> entries;
  for (const Json::Member& member : *json.as_object()) {
    if (member.first == detail::kMetadataKey) {
      result.metadata = read_metadata(member.second, file);
    } else {
      entries.push_back(read_entry(member, source.size(), file));
    }
  }
  check_coverage(entries, source.size(), file);
  for (const Entry& entry : entries) {
    result.tensors.set(entry.name, make_tensor(entry, source, file));
  }
  restore_quantized(result, file);
  restore_torchao(result, file);
  return result;
}

/// From memory, which tensors keep alive where they have its owner.
SafetensorsFile parse_memory(std::span<std::byte> bytes, const std::shared_ptr<void>& owner,
                             const std::string& where) {
  return parse(bytes, where, [&](std::size_t begin) {
    return Source{.memory = bytes.subspan(begin), .owner = owner};
  });
}

/// The length of the header and the header; nothing of a file that does not begin with them.
std::vector<std::byte> read_head(const detail::OpenFile& file) {
  std::vector<std::byte> head(detail::kHeaderLengthBytes);
  if (file.size() < head.size()) return {};
  file.read(0, head);
  std::uint64_t length = 0;
  std::memcpy(&length, head.data(), sizeof(length));
  if (length > detail::kMaxHeaderBytes || length > file.size() - head.size()) return {};
  head.resize(head.size() + length);
  file.read(detail::kHeaderLengthBytes, std::span(head).subspan(detail::kHeaderLengthBytes));
  return head;
}

constexpr std::size_t kBytesThatTell = std::size_t{1} << 16U;
/// Of an index, and of a file that ends within its header.
constexpr std::size_t kMostWithoutHeader = detail::kMaxHeaderBytes + detail::kHeaderLengthBytes;

/// Whether a file begins with the length of a header that no .safetensors file has.
bool claims_too_much(std::span<const std::byte> begin) noexcept {
  std::uint64_t length = 0;
  std::memcpy(&length, begin.data(), sizeof(length));
  return length > detail::kMaxHeaderBytes;
}

/// Each tensor is read into memory of its own; `whole` gets the bytes of a file of another kind.
template <typename Whole>
SafetensorsFile read_copied(const detail::OpenFile& file, const Whole& whole) {
  const std::vector<std::byte> head = read_head(file);
  if (head.empty()) {
    // An index, or a file of another kind: its first bytes say which, however large it is.
    const auto begin = detail::FileBytes::read(file, 0, std::min(file.size(), kBytesThatTell));
    if (begin->bytes().size() == file.size()) return whole(begin);
    if (!detail::is_safetensors_index(begin->bytes()) && claims_too_much(begin->bytes())) {
      return whole(begin);
    }
    if (file.size() > kMostWithoutHeader) {
      throw FileError(fmt::format("{}: expected an index of at most {} bytes, got {}", file.where(),
                                  kMostWithoutHeader, file.size()));
    }
    return whole(detail::FileBytes::read(file, 0, file.size()));
  }
  return parse(head, file.where(),
               [&](std::size_t begin) { return Source{.file = &file, .begin = begin}; });
}

/// One file of tensors: an index within an index is refused. `whole` gets the bytes where they are
/// in memory at once.
template <typename Whole>
SafetensorsFile load_file(const std::filesystem::path& path, FileAccess access,
                          const Whole& whole) {
  if (access == FileAccess::Map) {
    return whole(detail::FileBytes::open(path, "read_safetensors", access));
  }
  return read_copied(detail::OpenFile(path, "read_safetensors"), whole);
}

SafetensorsFile load_safetensors_file(const std::filesystem::path& path, FileAccess access) {
  return load_file(path, access, [&](const std::shared_ptr<detail::FileBytes>& file) {
    return parse_memory(file->bytes(), file, fmt::format("read_safetensors: {}", path.string()));
  });
}

/// The bytes that a tensor takes in its file.
std::int64_t file_bytes(const Tensor& tensor) {
  return static_cast<std::int64_t>(storage_bytes(tensor.dtype(), tensor.numel()));
}

/// All tensors of the shards, in the order of the index, and the metadata that is the same in each.
SafetensorsFile load_shards(const std::filesystem::path& path,
                            const detail::SafetensorsIndex& index, const std::string& where,
                            FileAccess access) {
  std::vector<SafetensorsFile> shards;
  std::int64_t total = 0;
  for (const std::string& name : index.shards) {
    shards.push_back(load_safetensors_file(path.parent_path() / name, access));
    for (const auto& [tensor_name, tensor] : shards.back().tensors) {
      const auto found = index.weight_map.find(tensor_name);
      if (found == index.weight_map.end() || found->second != shards.size() - 1) {
        throw FileError(fmt::format(
            "{}: weight_map: expected '{}' to be in {}, which holds it, got {}", where, tensor_name,
            name, found == index.weight_map.end() ? "no such name" : index.shards[found->second]));
      }
      total += file_bytes(tensor);
    }
  }
  if (index.total_size && *index.total_size != total) {
    throw FileError(
        fmt::format("{}: metadata: total_size: expected the {} bytes of the shards' tensors, got "
                    "{}: shards of another model, or of another version",
                    where, total, *index.total_size));
  }
  SafetensorsFile result;
  for (const std::string& name : index.names) {
    const std::size_t shard = index.weight_map.at(name);
    const Tensor* tensor = shards[shard].tensors.find(name);
    if (tensor == nullptr) {
      throw FileError(fmt::format("{}: weight_map: expected '{}' in {}, got no such tensor", where,
                                  name, index.shards[shard]));
    }
    result.tensors.set(name, *tensor);
  }
  if (!shards.empty()) result.metadata = shards.front().metadata;
  for (const SafetensorsFile& shard : shards) {
    std::erase_if(result.metadata, [&](const auto& entry) {
      const auto other = shard.metadata.find(entry.first);
      return other == shard.metadata.end() || other->second != entry.second;
    });
  }
  return result;
}

}  // namespace

SafetensorsFile load_safetensors(const std::filesystem::path& path, FileAccess access) {
  const std::string where = fmt::format("read_safetensors: {}", path.string());
  return detail::reading(where, [&] {
    return load_file(path, access, [&](const std::shared_ptr<detail::FileBytes>& file) {
      if (detail::is_safetensors_index(file->bytes())) {
        return load_shards(path, detail::parse_safetensors_index(file->bytes(), where), where,
                           access);
      }
      return parse_memory(file->bytes(), file, where);
    });
  });
}

StateDict read_safetensors(const std::filesystem::path& path, FileAccess access) {
  return load_safetensors(path, access).tensors;
}

SafetensorsFile parse_safetensors(std::span<const std::byte> bytes, const std::string& name) {
  // Without an owner nothing points into the bytes afterwards, and parse() does not write.
  std::byte* data = const_cast<std::byte*>(bytes.data());  // NOLINT(*-const-cast)
  const std::string where = fmt::format("read_safetensors: {}", name);
  return detail::reading(where, [&] { return parse_memory({data, bytes.size()}, nullptr, where); });
}

}  // namespace quanta
