#include "support/onnx_cases.h"

#include <cstdlib>
#include <filesystem>

namespace quanta::test {

void write_onnx_case(const std::string& name, const OnnxModel& file, std::span<const Tensor> inputs,
                     std::span<const Tensor> outputs) {
  const char* folder = std::getenv("QUANTA_ONNX_CASES");
  if (folder == nullptr) return;
  const std::filesystem::path at = std::filesystem::path(folder) / name;
  const std::filesystem::path data = at / "test_data_set_0";
  std::filesystem::create_directories(data);
  write_onnx(file, at / "model.onnx");
  const auto write = [&](const std::string& kind, std::span<const Tensor> tensors) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      write_onnx_tensor({.name = kind, .value = tensors[i].contiguous()},
                        data / (kind + "_" + std::to_string(i) + ".pb"));
    }
  };
  write("input", inputs);
  write("output", outputs);
}

}  // namespace quanta::test
