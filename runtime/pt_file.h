#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/runtime/pickle_value.h"
#include "quanta/runtime/state_dict.h"

/// Reading PyTorch's files. Many threads may read at once.
namespace quanta {

/// Reads a file that torch.save wrote: the zip container or the older stream of pickles. Runs no
/// code: classes and functions outside a fixed list are never looked up, and what they would make
/// is PickleValue::Opaque, with the name alone. Tensors that share a storage in the file share it
/// here.
///
/// `key` selects one value, and only its tensors are read: read_pt(path, "model"). Keys of dicts
/// within dicts are joined by "/", as visit_leaves joins them ("state/0"); an empty one is all.
///
/// Throws FileError (path, record or byte offset, what) for anything truncated, overlapping,
/// recursive, too deep, of absurd size, for names of functions that reach beyond a file (os.system,
/// builtins.eval) and for a key that is not there (the text lists those that are). Other files that
/// are taken for weights (TorchScript, .pt2, .npz, .safetensors, git-lfs pointers, ...) are named
/// with what to do.
PickleValue read_pt(const std::filesystem::path& path, std::string_view key = {});

/// The same from memory (copied); `name` stands for the path in messages.
PickleValue parse_pt(std::span<const std::byte> bytes, const std::string& name,
                     std::string_view key = {});

/// The tensors of a read file by path (see visit_leaves). Other values (numbers, strings, None,
/// dtypes) are left out, save for the one that says how many bits a dynamically quantized LSTM or
/// GRU uses for activations (`..._all_weight_values.0.param/3/0`, as Int64). Throws ArgumentError
/// when two tensors have the same path.
StateDict flatten_tensors(const PickleValue& value);

/// The opaque values of a read file: their paths (see visit_leaves) and what they are.
struct OpaqueValue {
  std::string path;
  std::string type;
  bool operator==(const OpaqueValue&) const = default;
};
std::vector<OpaqueValue> opaque_values(const PickleValue& value);

/// A read state_dict, and what stood beside its tensors that only Python could build.
struct PtFile {
  StateDict tensors;
  std::vector<OpaqueValue> opaque;
};

/// Reads a state_dict from PyTorch, float or quantized: that of the whole file, or the one under
/// `key` (see read_pt). Throws FileError as read_pt does and, with the keys there are, for a
/// checkpoint ({"model": ..., "optimizer": ...}) when no key says which part is meant; a whole
/// pickled module is refused by the name of its class.
PtFile load_pt(const std::filesystem::path& path, std::string_view key = {});

/// Only the tensors: load_pt(path, key).tensors.
StateDict read_pt_state_dict(const std::filesystem::path& path, std::string_view key = {});

}  // namespace quanta
