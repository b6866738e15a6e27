#include <cstddef>
#include <cstdint>
#include <span>

#include "quanta/runtime/error.h"
#include "quanta/runtime/onnx_file.h"
#include "support/onnx_text.h"

// Any bytes either parse or throw FileError; whatever parsed can be walked and read.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto bytes = std::as_bytes(std::span(data, size));
    const quanta::test::OnnxText text(quanta::parse_onnx(bytes, "fuzz"));
  } catch (const quanta::FileError&) {
  }
  return 0;
}
