#pragma once

// Private: TensorProto to Tensor.

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/runtime/detail/onnx_message.h"
#include "quanta/runtime/onnx_file.h"

namespace quanta::detail {

class FileBytes;

/// Bits that one element takes in raw data; 0 for strings, Undefined and unknown numbers.
int onnx_bits(OnnxType type);

/// Where external data may lie: in one folder, or nowhere.
class OnnxExternalData {
 public:
  /// External data is refused.
  OnnxExternalData() = default;
  OnnxExternalData(std::filesystem::path folder, FileAccess access)
      : folder_(std::move(folder)), access_(access), allowed_(true) {}

  /// Keys and values of TensorProto.external_data.
  using Entries = std::vector<std::pair<std::string, std::string>>;

  /// `expected` bytes that the entries point to, in a file that is opened once. `tensor` is asked
  /// to fail.
  OnnxBytes find(const Entries& entries, std::size_t expected, const OnnxMessage& tensor);

 private:
  std::shared_ptr<FileBytes> open(const std::string& location, const OnnxMessage& tensor);

  std::filesystem::path folder_;
  FileAccess access_ = FileAccess::Copy;
  bool allowed_ = false;
  std::map<std::string, std::shared_ptr<FileBytes>> files_;  // by location
};

/// Reads a TensorProto. Throws FileError.
OnnxTensor read_tensor(OnnxMessage& message, OnnxExternalData& external);

}  // namespace quanta::detail
