#pragma once

// What the targets for PyTorch's files do with one.

#include <cstddef>
#include <span>
#include <string>

#include "quanta/runtime/pt_file.h"
#include "support.h"

namespace quanta::fuzz {

/// Any bytes either parse or throw FileError; whatever parsed can be walked and read. Paths may
/// clash and keys may be of any kind, which visit_leaves refuses with ArgumentError.
inline void read_pt_bytes(std::span<const std::byte> bytes) {
  try {
    const PickleValue value = parse_pt(bytes, "fuzz");
    try {
      visit_leaves(value, [](const std::string&, const PickleValue& leaf) {
        const auto* tensor = leaf.get_if<PickleValue::TensorValue>();
        // A view with strides of zero may have any number of elements.
        if (tensor != nullptr && tensor->tensor.numel() < 100000) tensor->tensor.to_float_vector();
      });
      opaque_values(value);
    } catch (const ArgumentError&) {
    }
  } catch (const FileError&) {
  }
  try {
    parse_pt(bytes, "fuzz", "model");
  } catch (const FileError&) {
  }
}

}  // namespace quanta::fuzz
