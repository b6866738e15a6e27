#pragma once

#include <filesystem>

#include "quanta/runtime/tensor.h"

// Many threads may read files at once.

namespace quanta::data {

/// Reads an idx file as MNIST and Fashion-MNIST come in, plain or compressed by gzip: UInt8, Int8,
/// Int16, Int32, Float32 or Float64 of the sizes that its header tells. Throws FileError (path,
/// what, expected, got) when the file is missing, truncated or corrupt, has another magic number,
/// an unknown type, sizes that its bytes cannot fill, or bytes that are left over.
Tensor read_idx(const std::filesystem::path& path);

}  // namespace quanta::data
