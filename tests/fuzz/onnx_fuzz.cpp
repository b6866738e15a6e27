#include "quanta/fusion/graph/model.h"
#include "quanta/runtime/onnx_file.h"
#include "support.h"
#include "support/onnx_text.h"

// Any bytes either parse or throw FileError; whatever parsed can be walked and read, and is a graph
// or is refused.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = quanta::fuzz::as_bytes(data, size);
  try {
    const quanta::OnnxModel model = quanta::parse_onnx(bytes, "fuzz");
    const quanta::test::OnnxText text(model);
    quanta::fuzz::read_or_refuse([&] { quanta::graph::from_onnx(model); });
  } catch (const quanta::FileError&) {
  }
  return 0;
}
