#include <cstddef>
#include <cstdint>
#include <span>

#include "quanta/runtime/error.h"
#include "quanta/runtime/safetensors.h"

// Any bytes either parse or throw FileError; whatever parsed can be read.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto bytes = std::as_bytes(std::span(data, size));
    for (const auto& [name, tensor] : quanta::parse_safetensors(bytes, "fuzz").tensors) {
      tensor.to_float_vector();
    }
  } catch (const quanta::FileError&) {
  }
  return 0;
}
