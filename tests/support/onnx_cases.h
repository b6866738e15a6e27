#pragma once

// Files for tools/onnx_check.py, which compares them with ONNX Runtime.

#include <span>
#include <string>

#include "quanta/runtime/onnx_file.h"

namespace quanta::test {

/// Writes the file with an input and what Quanta makes of it as a case of ONNX's layout into
/// $QUANTA_ONNX_CASES/`name`; does nothing where that is not set.
void write_onnx_case(const std::string& name, const OnnxModel& file, std::span<const Tensor> inputs,
                     std::span<const Tensor> outputs);
inline void write_onnx_case(const std::string& name, const OnnxModel& file, const Tensor& input,
                            const Tensor& output) {
  write_onnx_case(name, file, std::span<const Tensor>(&input, 1),
                  std::span<const Tensor>(&output, 1));
}

}  // namespace quanta::test
