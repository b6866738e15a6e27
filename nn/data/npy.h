#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "quanta/runtime/file_access.h"
#include "quanta/runtime/tensor.h"

// Many threads may read and write files at once; of several that write to one path, the last one's
// file stays.

namespace quanta::data {

/// Reads an array that numpy.save wrote (format 1.0 to 3.0), in C or Fortran order: bool, int8,
/// uint8, int16, uint16, int32, int64, float16, float32, float64 of either byte order. With
/// FileAccess::Map the tensor points into the file, so that an array larger than memory can be read
/// item by item, and the file has to stay as it is (see there); only what this machine cannot use as
/// it stands is copied (the other byte order, data that is not aligned). Fortran order comes as
/// strides.
/// Throws FileError (path, what, expected, got) when the file is missing, truncated, has bytes left
/// over, or a header that numpy would not write or of another type (uint32, complex, objects).
Tensor read_npy(const std::filesystem::path& path, FileAccess access = FileAccess::Copy);

/// Writes the elements of a plain tensor in C order; the tensor is made contiguous. Atomic. Throws
/// FileError, and ArgumentError for dtypes that numpy does not have.
void write_npy(const Tensor& x, const std::filesystem::path& path);
/// The same with the path first, as earlier versions had it.
inline void write_npy(const std::filesystem::path& path, const Tensor& x) { write_npy(x, path); }

/// Arrays by name, as numpy.savez and savez_compressed write them (a zip archive of .npy files).
using NamedArrays = std::map<std::string, Tensor, std::less<>>;

/// Reads all arrays of a .npz file; what is stored without compression shares the file's bytes, which
/// are a copy or the file itself as in read_npy. Throws FileError as read_npy, and for archives that are damaged, encrypted or hold
/// anything but arrays, each under one name; nothing is made larger than the file can fill.
NamedArrays read_npz(const std::filesystem::path& path, FileAccess access = FileAccess::Copy);

/// Writes arrays without compression. Atomic. Throws FileError, and ArgumentError for dtypes that
/// numpy does not have, for an empty name and from 4 GiB in all.
void write_npz(const NamedArrays& arrays, const std::filesystem::path& path);
/// The same with the path first, as earlier versions had it.
inline void write_npz(const std::filesystem::path& path, const NamedArrays& arrays) {
  write_npz(arrays, path);
}

}  // namespace quanta::data
