#pragma once

// Private: messages of an ONNX file, field by field, with errors that say where they are.

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <protozero/pbf_reader.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/runtime/check.h"

namespace quanta::detail {

/// The bytes of a file: in memory that tensors keep alive, or (no owner) to be copied.
struct OnnxBytes {
  std::span<std::byte> data;
  std::shared_ptr<void> owner;
  std::string where;  ///< "read_onnx: model.onnx"
};

/// One message. Its own checks stand before protozero's, which asserts wire types and cuts lengths
/// to 32 bits. All errors are FileErrors that name file, the messages around this one, and the byte.
class OnnxMessage {
 public:
  enum class Kind : std::uint8_t { File, Graph, Node, Attribute, Tensor, Value, Function, Part };

  explicit OnnxMessage(const OnnxBytes& file)
      : file_(&file),
        reader_(reinterpret_cast<const char*>(file.data.data()), file.data.size()),
        all_(reader_.data()) {}
  OnnxMessage(const OnnxMessage&) = delete;
  OnnxMessage& operator=(const OnnxMessage&) = delete;

  const OnnxBytes& file() const noexcept { return *file_; }

  /// The next field, or false at the end.
  bool next() {
    try {
      if (!reader_.next()) return false;
    } catch (const protozero::exception& error) {
      fail(error.what());
    }
    field_ = static_cast<std::int32_t>(reader_.tag());
    return true;
  }
  /// Its number.
  std::int32_t field() const noexcept { return field_; }
  void skip();

  // The field's value.
  std::int64_t integer();
  float number();
  std::string_view bytes();
  std::string text() { return std::string(bytes()); }
  OnnxMessage message(Kind kind) { return {*this, kind, bytes()}; }

  // One element of a repeated field, or many where they are packed.
  void integers(std::vector<std::int64_t>& result);
  template <typename T>  // float, double
  void numbers(std::vector<T>& result);
  bool is_packed() const {
    return reader_.wire_type() == protozero::pbf_wire_type::length_delimited;
  }

  /// Throws FileError "file: graph 'g': node 'n' (Conv): byte 123: text".
  [[noreturn]] void fail(std::string_view text) const;

 private:
  OnnxMessage(const OnnxMessage& outer, Kind kind, std::string_view bytes)
      : file_(outer.file_),
        outer_(&outer),
        kind_(kind),
        reader_(bytes.data(), bytes.size()),
        all_(reader_.data()) {}

  void require(protozero::pbf_wire_type type, std::string_view expected) const;
  std::string place() const;

  const OnnxBytes* file_;
  const OnnxMessage* outer_ = nullptr;
  Kind kind_ = Kind::File;
  std::int32_t field_ = 0;
  protozero::pbf_reader reader_;
  protozero::data_view all_;
};

}  // namespace quanta::detail
