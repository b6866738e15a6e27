#include <cstddef>
#include <cstdint>
#include <span>

#include "quanta/runtime/error.h"
#include "quanta/runtime/pt_file.h"

// Any bytes either parse or throw FileError; whatever parsed can be walked and read. Paths may
// clash and keys may be of any kind, which visit_leaves refuses with ArgumentError.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto bytes = std::as_bytes(std::span(data, size));
    const quanta::PickleValue value = quanta::parse_pt(bytes, "fuzz");
    try {
      quanta::visit_leaves(value, [](const std::string&, const quanta::PickleValue& leaf) {
        const auto* tensor = leaf.get_if<quanta::PickleValue::TensorValue>();
        // A view with strides of zero may have any number of elements.
        if (tensor != nullptr && tensor->tensor.numel() < 100000) tensor->tensor.to_float_vector();
      });
      quanta::opaque_values(value);
    } catch (const quanta::ArgumentError&) {
    }
  } catch (const quanta::FileError&) {
  }
  try {
    quanta::parse_pt(std::as_bytes(std::span(data, size)), "fuzz", "model");
  } catch (const quanta::FileError&) {
  }
  return 0;
}
