#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "quanta/runtime/file_access.h"
#include "quanta/runtime/state_dict.h"

/// Reading and writing .safetensors files. Many threads may read and write at once; of several that
/// write to one path, the last one's file stays.
namespace quanta {

/// A read .safetensors file: tensors and the free-text metadata of its header.
struct SafetensorsFile {
  StateDict tensors;
  std::map<std::string, std::string> metadata;
};

/// Reads a .safetensors file, by default into memory of its own for each tensor. With
/// FileAccess::Map plain tensors point into the file, which then has to stay as it is (see there).
/// Tensors that write_safetensors saved
/// as quantized come back quantized. Throws FileError (path, what, where) when the file is
/// missing, truncated, has overlapping or out-of-range offsets, gaps, an unknown dtype, sizes that
/// do not match their bytes, duplicate names, or a header of more than 100 MB; other files (.pt,
/// git-lfs pointers, ...) are named with what to do.
///
/// Also takes the index of a model in shards (`model.safetensors.index.json`: recognised by its
/// first bytes): all tensors of the files that it names, which have to lie in its folder, and the
/// metadata on which these agree. Throws FileError when a shard lacks a tensor or has one that the
/// index does not know, and when `total_size` is not the bytes of all tensors.
SafetensorsFile load_safetensors(const std::filesystem::path& path,
                                 FileAccess access = FileAccess::Copy);

/// Only the tensors: load_safetensors(path, access).tensors.
StateDict read_safetensors(const std::filesystem::path& path, FileAccess access = FileAccess::Copy);

/// The same from memory (copied), for files that are not on disk.
SafetensorsFile parse_safetensors(std::span<const std::byte> bytes, const std::string& name);

/// Writes tensors (made contiguous) and metadata. Quantized tensors are stored as their integer
/// codes; scheme, scale, zero point, scales, zero points and axis stand as JSON under the metadata
/// key "quanta.quantized", so that Python's safetensors opens the file too. For the usual weight
/// (QInt8, per channel along axis 0, zero points 0) a number stands there: where its scales begin
/// in the tensor "quanta.scales", which holds those of all such weights.
/// Atomic: temporary file in the same folder, fsync, rename; on failure the old file is untouched.
/// Throws FileError, and ArgumentError for an undefined tensor.
void write_safetensors(const StateDict& tensors, const std::filesystem::path& path,
                       const std::map<std::string, std::string>& metadata = {});
/// The same with the path first, as earlier versions had it.
inline void write_safetensors(const std::filesystem::path& path, const StateDict& tensors,
                              const std::map<std::string, std::string>& metadata = {}) {
  write_safetensors(tensors, path, metadata);
}

/// What write_safetensors writes, in memory: parse_safetensors reads it. Throws ArgumentError for an
/// undefined tensor.
std::vector<std::byte> serialize_safetensors(
    const StateDict& tensors, const std::map<std::string, std::string>& metadata = {});

}  // namespace quanta
