#pragma once

// Private: from the nodes of a torch.save pickle to values and tensors.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "quanta/runtime/detail/pickle_reader.h"
#include "quanta/runtime/pickle_value.h"
#include "quanta/runtime/storage.h"

namespace quanta::detail {

/// A storage that a pickle refers to by a persistent id.
struct StorageReference {
  std::string_view key;  // lives in the pickle's node
  DType dtype = DType::UInt8;
  bool is_untyped = false;
  bool is_supported = true;
  std::int64_t numel = 0;  ///< bytes for untyped and sub-byte storages
  /// A part of the storage (old legacy files): first element and count.
  std::int64_t view_begin = 0;
  std::int64_t view_numel = -1;

  std::size_t element_bytes() const noexcept { return is_untyped ? 1 : item_size(dtype); }
};

enum class ByteOrder : std::uint8_t { Little, Big };

/// Builds the value of a pickle. Storages are read when the first tensor needs them, each once, and
/// copied; tensors share them as they do in the file.
class PtBuilder {
 public:
  /// The bytes of a storage: exactly element_bytes() * numel of them, or FileError.
  using ReadStorage = std::function<std::span<const std::byte>(const StorageReference& storage)>;

  /// Reads all persistent ids. Throws FileError `<where>: byte <n>: ...`.
  PtBuilder(const Pickle& pickle, std::size_t pickle_bytes, std::string where);

  /// The storages by key, in the order of the file; each key once.
  const std::vector<StorageReference>& storages() const noexcept { return storages_; }

  /// The value of `node`, which is one of the pickle's. Storages that it does not need are not read.
  PickleValue build(const PickleNode& node, ReadStorage read_storage, ByteOrder order);

 private:
  struct LoadedStorage {
    IntrusivePtr<Storage> storage;
    bool bools_checked = false;
  };
  /// Sizes, strides, ... of a rebuild call, as they stand in its arguments.
  struct View {
    const PickleNode* storage = nullptr;
    std::int64_t offset = 0;
    Dims sizes;
    Dims strides;
  };
  using Arguments = std::vector<PickleNode*>;
  static constexpr int kMaxDepth = 100;

  [[noreturn]] void fail(const PickleNode& node, std::string_view text) const;
  /// Counts what the value takes in memory, so that shared nodes cannot make a small file large.
  void charge(const PickleNode& node, std::size_t bytes);

  StorageReference read_reference(const PickleNode& node) const;

  PickleValue convert(const PickleNode& node, int depth);
  PickleValue convert_open(const PickleNode& node, int depth);
  PickleValue convert_dict(const PickleNode& node, int depth);
  PickleValue convert_object(const PickleNode& node, int depth);
  PickleValue convert_global(const PickleNode& node) const;
  PickleValue convert_call(const PickleNode& node, int depth);
  std::string decode_bytes(const PickleNode& node, const PickleNode& argument);

  PickleValue::TensorValue build_tensor(const PickleNode& node, int depth);
  PickleValue::TensorValue call_rebuild(const PickleNode& node, const PickleNode& function,
                                        const PickleNode& arguments, int depth);
  Tensor build_torchao(const PickleNode& node, const PickleNode& type, const PickleNode& state,
                       int depth);
  View read_view(const PickleNode& node, const Arguments& arguments) const;
  Tensor make_tensor(const PickleNode& node, const View& view, DType dtype,
                     const Quantizer& quantizer);
  LoadedStorage& load(const PickleNode& node, const StorageReference& reference);
  Quantizer read_quantizer(const PickleNode& node, const PickleNode& params, int depth);
  template <typename T>
  std::vector<T> read_channel_numbers(const PickleNode& node, const PickleNode& source, int depth);

  std::int64_t integer(const PickleNode& node, const PickleNode& value,
                       std::string_view what) const;
  double number(const PickleNode& node, const PickleNode& value, std::string_view what) const;
  bool boolean(const PickleNode& node, const PickleNode& value, std::string_view what) const;
  Dims dims(const PickleNode& node, const PickleNode& value, std::string_view what) const;
  void refuse_flags(const PickleNode& node, const Arguments& arguments, std::size_t position) const;

  const Pickle& pickle_;
  std::string where_;
  ReadStorage read_storage_;
  ByteOrder order_ = ByteOrder::Little;
  std::size_t budget_;
  std::vector<bool> open_;              // nodes that are being converted, by index
  std::vector<std::string_view> keys_;  // of the dicts around what is being converted
  std::vector<StorageReference> storages_;
  std::unordered_map<const PickleNode*, StorageReference> references_;
  std::unordered_map<std::string_view, LoadedStorage> loaded_;
  std::unordered_map<const PickleNode*, PickleValue::TensorValue> tensors_;
};

/// "a string", "a tensor", ...: for messages.
std::string_view describe(const PickleNode& node);

/// Whether the node is a call of one of torch's functions that rebuild tensors.
bool is_tensor_call(const PickleNode& node);

}  // namespace quanta::detail
