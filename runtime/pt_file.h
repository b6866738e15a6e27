#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "quanta/runtime/pickle_value.h"
#include "quanta/runtime/state_dict.h"

/// Reading PyTorch's files. Many threads may read at once.
namespace quanta {

/// Reads a file that torch.save wrote: the zip container or the older stream of pickles. Runs no
/// code: only a fixed list of globals is known, each a table entry. Tensors that share a storage
/// in the file share it here. Throws FileError (path, record or byte offset, what) for anything
/// truncated, overlapping, recursive, too deep, of absurd size, or using an unknown global.
PickleValue read_pt(const std::filesystem::path& path);

/// The same from memory (copied); `name` stands for the path in messages.
PickleValue parse_pt(std::span<const std::byte> bytes, const std::string& name);

/// The tensors of a read file by path (see visit_leaves). Other values (numbers, strings, None,
/// dtypes) are left out, save for the one that says how many bits a dynamically quantized LSTM or
/// GRU uses for activations (`..._all_weight_values.0.param/3/0`, as Int64). Throws ArgumentError
/// when two tensors have the same path.
StateDict flatten_tensors(const PickleValue& value);

/// flatten_tensors(read_pt(path)): a state_dict from PyTorch, float or quantized.
StateDict read_pt_state_dict(const std::filesystem::path& path);

}  // namespace quanta
