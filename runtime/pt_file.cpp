#include "quanta/runtime/pt_file.h"

#include <string_view>
#include <unordered_map>
#include <utility>

#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/byte_reader.h"
#include "quanta/runtime/detail/file_bytes.h"
#include "quanta/runtime/detail/file_kind.h"
#include "quanta/runtime/detail/pickle_reader.h"
#include "quanta/runtime/detail/pt_builder.h"
#include "quanta/runtime/detail/pt_select.h"
#include "quanta/runtime/detail/reading.h"
#include "quanta/runtime/detail/zip_reader.h"

namespace quanta {
namespace {

using detail::ByteOrder;
using detail::PickleNode;
using detail::StorageReference;

constexpr std::string_view kLegacyMagic = "119547037146038801333356";  // 0x1950a86a20f9469cfc6c
constexpr std::int64_t kLegacyProtocol = 1001;
/// The packed weights of a dynamically quantized LSTM or GRU.
constexpr std::string_view kCellParams = "__torch__.torch.classes.rnn.CellParamsBase";
constexpr std::string_view kTorchScript =
    "a TorchScript archive of torch.jit.save; save the module's state_dict() instead: "
    "torch.save(torch.jit.load(path).state_dict(), new_path)";
constexpr std::int64_t kMaxVersion = 10;  // torch's kMaxSupportedFileFormatVersion

/// What is read of a file.
struct Request {
  std::string_view key;
  bool is_state_dict = false;  ///< refuse what holds one somewhere below
  std::string where;
};

/// The node that is asked for, checked before any storage is read.
const PickleNode& select(const detail::Pickle& pickle, const Request& request) {
  const PickleNode& value = detail::select_value(*pickle.root, request.key, request.where);
  if (request.is_state_dict || value.kind == PickleNode::Kind::Opaque) {
    detail::expect_state_dict(value, request.key, request.where);
  }
  return value;
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The zip container
// ---------------------------------------------------------------------------------

/// "<root>/" of the one record "<root>/data.pkl".
std::string find_root(const detail::ZipReader& zip, const std::string& where) {
  std::string root;
  for (const auto& record : zip.records()) {
    const std::size_t slash = record.name.find('/');
    if (slash == std::string::npos || record.name.substr(slash + 1) != "data.pkl") continue;
    if (!root.empty()) {
      throw FileError(fmt::format("{}: expected one record data.pkl, got '{}data.pkl' and '{}'",
                                  where, root, record.name));
    }
    root = record.name.substr(0, slash + 1);
  }
  const auto refuse = [&](std::string_view what) {
    throw FileError(fmt::format("{}: expected a file of torch.save, got {}", where, what));
  };
  for (const auto& record : zip.records()) {
    if (record.name.ends_with(".npy")) {
      refuse("an .npz archive of numpy: data::read_npz reads its arrays, numpy.load in Python");
    }
    if (record.name.ends_with("/archive_format") ||
        record.name.ends_with("serialized_exported_program.json")) {
      refuse(
          "an exported program (.pt2 of torch.export.save); save its weights instead: "
          "torch.save(exported_program.state_dict, path)");
    }
  }
  if (root.empty()) refuse("a zip archive without a record data.pkl");
  if (zip.find(root + "constants.pkl") != nullptr) {
    refuse(kTorchScript);
  }
  return root;
}

void check_version(const detail::ZipReader& zip, const std::string& root,
                   const std::string& where) {
  const auto* record = zip.find(root + "version");
  if (record == nullptr) return;
  std::string_view text = as_text(zip.read(*record));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.remove_suffix(1);
  std::int64_t version = 0;
  for (const char c : text) {
    version =
        c >= '0' && c <= '9' && version <= kMaxVersion ? version * 10 + (c - '0') : kMaxVersion + 1;
  }
  if (version < 1 || version > kMaxVersion) {
    throw FileError(
        fmt::format("{}: record '{}version': expected a version from 1 to {}, got {} bytes "
                    "that say otherwise",
                    where, root, kMaxVersion, record->data.size()));
  }
}

ByteOrder read_byte_order(const detail::ZipReader& zip, const std::string& root,
                          const std::string& where) {
  const auto* record = zip.find(root + "byteorder");
  if (record == nullptr) return ByteOrder::Little;
  const std::string_view text = as_text(zip.read(*record));
  if (text == "little") return ByteOrder::Little;
  if (text == "big") return ByteOrder::Big;
  throw FileError(
      fmt::format("{}: record '{}byteorder': expected 'little' or 'big', got {} other bytes", where,
                  root, text.size()));
}

/// torch.save does not compress; of archives that do, some are told by the names in them.
detail::ZipReader open_zip(std::span<const std::byte> bytes, const std::string& where) {
  try {
    return {bytes, where};
  } catch (const FileError& error) {
    const std::string_view text = as_text(bytes);
    if (std::string_view(error.what()).find("compressed ones") == std::string_view::npos) throw;
    if (text.find("/code/__torch__") != std::string_view::npos) {
      throw FileError(
          fmt::format("{}: expected a file of torch.save, got {}", where, kTorchScript));
    }
    const std::string known = detail::recognize_file(bytes);
    if (!known.starts_with("an .npz")) throw;
    throw FileError(fmt::format("{}: expected a file of torch.save, got {}", where, known));
  }
}

PickleValue parse_zip(std::span<const std::byte> bytes, const Request& request) {
  const std::string& where = request.where;
  const detail::ZipReader zip = open_zip(bytes, where);
  const std::string root = find_root(zip, where);
  check_version(zip, root, where);
  const ByteOrder order = read_byte_order(zip, root, where);
  const std::string pickle_where = fmt::format("{}: record '{}data.pkl'", where, root);
  const auto pickle_bytes = zip.read(*zip.find(root + "data.pkl"));
  const detail::Pickle pickle = detail::read_pickle(pickle_bytes, 0, pickle_where);
  if (pickle.end != pickle_bytes.size()) {
    throw FileError(fmt::format("{}: byte {}: expected the end after STOP, got {} more bytes",
                                pickle_where, pickle.end, pickle_bytes.size() - pickle.end));
  }
  detail::PtBuilder builder(pickle, pickle_bytes.size(), pickle_where);
  const auto read_storage = [&](const StorageReference& storage) {
    const std::string name = fmt::format("{}data/{}", root, storage.key);
    const auto* record = zip.find(name);
    if (record == nullptr) {
      throw FileError(fmt::format("{}: expected a record '{}', got none", where, name));
    }
    const std::size_t item = storage.element_bytes();
    const auto numel = static_cast<std::uint64_t>(storage.numel);
    if (record->data.size() % item != 0 || record->data.size() / item != numel) {
      throw FileError(fmt::format("{}: record '{}': expected {} elements of {} bytes, got {} bytes",
                                  where, name, numel, item, record->data.size()));
    }
    return zip.read(*record);
  };
  return builder.build(select(pickle, request), read_storage, order);
}

// The older stream of pickles
// -----------------------------------------------------------------------

const PickleNode* find_key(const PickleNode& dict, std::string_view name) {
  if (dict.kind != PickleNode::Kind::Dict) return nullptr;
  for (std::size_t i = 0; i < dict.items.size(); i += 2) {
    if (dict.items[i]->kind == PickleNode::Kind::String && dict.items[i]->text == name) {
      return dict.items[i + 1];
    }
  }
  return nullptr;
}

/// The bytes of each storage, by key: counts and elements in the order of the list of keys.
std::unordered_map<std::string_view, std::span<const std::byte>> read_legacy_storages(
    std::span<const std::byte> bytes, const detail::Pickle& keys, const detail::PtBuilder& builder,
    const std::string& where) {
  if (keys.root->kind != PickleNode::Kind::List) {
    throw FileError(fmt::format("{}: byte {}: expected the list of storage keys, got {}", where,
                                keys.root->offset, describe(*keys.root)));
  }
  std::unordered_map<std::string_view, const StorageReference*> references;
  for (const StorageReference& storage : builder.storages())
    references.emplace(storage.key, &storage);

  std::unordered_map<std::string_view, std::span<const std::byte>> result;
  detail::ByteReader reader(bytes, where, keys.end);
  for (const PickleNode* key : keys.root->items) {
    const auto found = references.find(key->text);
    if (key->kind != PickleNode::Kind::String || found == references.end()) {
      reader.fail_at(key->offset,
                     "expected the key of a storage that a tensor uses, got another value");
    }
    const StorageReference& storage = *found->second;
    const std::size_t begin = reader.position();
    const auto count = reader.take_number<std::int64_t>("the length of a storage");
    if (count != storage.numel) {
      reader.fail_at(begin, fmt::format("storage '{}': expected {} elements, got {}", storage.key,
                                        storage.numel, count));
    }
    const std::size_t item = storage.element_bytes();
    if (static_cast<std::uint64_t>(count) > reader.remaining() / item) {
      reader.fail_at(begin,
                     fmt::format("storage '{}': expected {} elements of {} bytes, got {} bytes up "
                                 "to the end: the file is truncated",
                                 storage.key, count, item, reader.remaining()));
    }
    const auto data = reader.take(static_cast<std::uint64_t>(count) * item, "a storage");
    if (!result.emplace(storage.key, data).second) {
      reader.fail_at(key->offset,
                     fmt::format("expected different storage keys, got '{}' twice", storage.key));
    }
  }
  if (reader.remaining() != 0) {
    reader.fail(fmt::format("expected the end after the last storage, got {} more bytes",
                            reader.remaining()));
  }
  return result;
}

/// The first pickle. A pickle of another program may fail anywhere; what it is matters more.
detail::Pickle read_magic(std::span<const std::byte> bytes, const std::string& where) {
  try {
    return detail::read_pickle(bytes, 0, where);
  } catch (const FileError& error) {
    constexpr std::string_view kMagicBytes = "\x6c\xfc\x9c\x46";
    const std::string_view start = as_text(bytes).substr(0, 32);
    if (start.size() < 32 || start.find(kMagicBytes) != std::string_view::npos) throw;
    throw FileError(
        fmt::format("{}; the file does not begin as those of torch.save do: a pickle of something "
                    "else is to be saved from Python with torch.save",
                    error.what()));
  }
}

PickleValue parse_legacy(std::span<const std::byte> bytes, const Request& request) {
  const std::string& where = request.where;
  const detail::Pickle magic = read_magic(bytes, where);
  if (magic.root->kind != PickleNode::Kind::BigInt || magic.root->text != kLegacyMagic) {
    throw FileError(
        fmt::format("{}: byte 0: expected the magic number of torch.save, got {}: a "
                    "pickle of something else; save it from Python with torch.save",
                    where, describe(*magic.root)));
  }
  const detail::Pickle protocol = detail::read_pickle(bytes, magic.end, where);
  if (protocol.root->kind != PickleNode::Kind::Int || protocol.root->integer != kLegacyProtocol) {
    throw FileError(fmt::format("{}: byte {}: expected protocol version {}, got another value",
                                where, magic.end, kLegacyProtocol));
  }
  const detail::Pickle system = detail::read_pickle(bytes, protocol.end, where);
  const PickleNode* little = find_key(*system.root, "little_endian");
  if (little == nullptr || little->kind != PickleNode::Kind::Bool) {
    throw FileError(
        fmt::format("{}: byte {}: expected system information with little_endian, got {}", where,
                    protocol.end, describe(*system.root)));
  }
  const ByteOrder order = little->integer != 0 ? ByteOrder::Little : ByteOrder::Big;
  const detail::Pickle object = detail::read_pickle(bytes, system.end, where);
  const detail::Pickle keys = detail::read_pickle(bytes, object.end, where);

  detail::PtBuilder builder(object, object.end - system.end, where);
  const auto storages = read_legacy_storages(bytes, keys, builder, where);
  const auto read_storage = [&](const StorageReference& storage) {
    const auto found = storages.find(storage.key);
    if (found == storages.end()) {
      throw FileError(fmt::format("{}: storage '{}': expected it in the list of storages, got none",
                                  where, storage.key));
    }
    return found->second;
  };
  return builder.build(select(object, request), read_storage, order);
}

PickleValue parse(std::span<const std::byte> bytes, const Request& request) {
  const std::string& where = request.where;
  if (detail::is_zip(bytes)) return parse_zip(bytes, request);
  const std::string known = detail::recognize_file(bytes);
  if (bytes.size() >= 2 && bytes[0] == std::byte{0x80} && !known.starts_with("a .safetensors")) {
    return parse_legacy(bytes, request);
  }
  constexpr std::size_t kTarMagic = 257;
  if (bytes.size() > kTarMagic + 5 && as_text(bytes.subspan(kTarMagic, 5)) == "ustar") {
    throw FileError(
        fmt::format("{}: expected a file of torch.save from 0.1.10 or later, got a tar "
                    "archive; load and save it again with a newer PyTorch",
                    where));
  }
  throw FileError(fmt::format(
      "{}: byte 0: expected a file of torch.save (a zip archive or pickles), got {}", where,
      known.empty() ? fmt::format("other bytes ({} in all)", bytes.size()) : known));
}

PickleValue read_value(const std::filesystem::path& path, std::string_view key,
                       bool is_state_dict) {
  const Request request{key, is_state_dict, fmt::format("read_pt: {}", path.string())};
  return detail::reading(request.where, [&] {
    const auto file = detail::FileBytes::open(path, "read_pt");
    return parse(file->bytes(), request);
  });
}

}  // namespace

PickleValue read_pt(const std::filesystem::path& path, std::string_view key) {
  return read_value(path, key, false);
}

PickleValue parse_pt(std::span<const std::byte> bytes, const std::string& name,
                     std::string_view key) {
  const Request request{key, false, fmt::format("read_pt: {}", name)};
  return detail::reading(request.where, [&] { return parse(bytes, request); });
}

std::vector<OpaqueValue> opaque_values(const PickleValue& value) {
  std::vector<OpaqueValue> result;
  visit_leaves(value, [&](const std::string& path, const PickleValue& leaf) {
    const auto* opaque = leaf.get_if<PickleValue::Opaque>();
    if (opaque != nullptr) result.push_back({path, opaque->type});
  });
  return result;
}

StateDict flatten_tensors(const PickleValue& value) {
  StateDict result;
  std::string reduce_range_path;
  visit_leaves(value, [&](const std::string& path, const PickleValue& leaf) {
    if (const auto* object = leaf.get_if<PickleValue::Object>()) {
      if (object->type == kCellParams) reduce_range_path = path + "/3/0";
    }
    if (const auto* number = leaf.get_if<std::int64_t>(); number && path == reduce_range_path) {
      result.set(path, Tensor::scalar(static_cast<double>(*number), DType::Int64));
    }
    const auto* tensor = leaf.get_if<PickleValue::TensorValue>();
    if (tensor == nullptr) return;
    QUANTA_CHECK(!result.contains(path),
                 "flatten_tensors: value: expected tensors with different paths, got '{}' twice",
                 path);
    result.set(path, tensor->tensor);
  });
  return result;
}

PtFile load_pt(const std::filesystem::path& path, std::string_view key) {
  const PickleValue value = read_value(path, key, true);
  const std::string where = fmt::format("read_pt: {}", path.string());
  return detail::reading(where, [&]() -> PtFile {
    try {
      return {flatten_tensors(value), opaque_values(value)};
    } catch (const ArgumentError& error) {
      throw FileError(fmt::format("{}: {}", where, error.what()));
    }
  });
}

StateDict read_pt_state_dict(const std::filesystem::path& path, std::string_view key) {
  return load_pt(path, key).tensors;
}

}  // namespace quanta
