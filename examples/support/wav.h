#pragma once

#include <cstdint>
#include <filesystem>

#include "quanta/runtime/tensor.h"

namespace quanta::examples {

/// A recording: one channel (the mean of them), Float32 [samples], -1 .. 1.
struct Wav {
  std::int64_t rate = 0;  ///< samples a second
  Tensor samples;
};

/// Reads a .wav file of 16-bit PCM. Throws FileError for anything else.
Wav read_wav(const std::filesystem::path& path);

}  // namespace quanta::examples
