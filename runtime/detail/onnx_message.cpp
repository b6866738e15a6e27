#include "quanta/runtime/detail/onnx_message.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "quanta/runtime/detail/onnx_fields.h"

namespace quanta::detail {
namespace {

using protozero::pbf_wire_type;

/// Field `field` of a message, as a text for people; "" when there is none that can be read.
std::string find_text(const protozero::data_view& bytes, std::int32_t field) {
  constexpr std::size_t kMaxShown = 200;
  try {
    protozero::pbf_reader reader(bytes);
    while (reader.next()) {
      if (static_cast<std::int32_t>(reader.tag()) == field &&
          reader.has_wire_type(pbf_wire_type::length_delimited)) {
        const protozero::data_view view = reader.get_view();
        return {view.data(), std::min(view.size(), kMaxShown)};
      }
      reader.skip();
    }
  } catch (const protozero::exception&) {
    // What cannot be read has no name.
  }
  return {};
}

}  // namespace

void OnnxMessage::require(pbf_wire_type type, std::string_view expected) const {
  if (reader_.wire_type() != type) {
    fail(fmt::format("field {}: expected {}, got wire type {}", field_, expected,
                     static_cast<int>(reader_.wire_type())));
  }
}

void OnnxMessage::skip() {
  if (reader_.wire_type() == pbf_wire_type::length_delimited) {
    bytes();
    return;
  }
  try {
    reader_.skip();
  } catch (const protozero::exception& error) {
    fail(error.what());
  }
}

std::int64_t OnnxMessage::integer() {
  require(pbf_wire_type::varint, "an integer");
  try {
    return reader_.get_int64();
  } catch (const protozero::exception& error) {
    fail(error.what());
  }
}

float OnnxMessage::number() {
  require(pbf_wire_type::fixed32, "a float");
  try {
    return reader_.get_float();
  } catch (const protozero::exception& error) {
    fail(error.what());
  }
}

std::string_view OnnxMessage::bytes() {
  require(pbf_wire_type::length_delimited, "bytes");
  try {
    const protozero::data_view rest = reader_.data();
    const char* begin = rest.data();
    const char* end = rest.data() + rest.size();
    const std::uint64_t length = protozero::decode_varint(&begin, end);
    if (length > static_cast<std::uint64_t>(end - begin)) {
      fail(fmt::format("field {}: expected {} bytes, got {} up to the end of the message", field_,
                       length, end - begin));
    }
    const protozero::data_view view = reader_.get_view();
    return {view.data(), view.size()};
  } catch (const protozero::exception& error) {
    fail(error.what());
  }
}

void OnnxMessage::integers(std::vector<std::int64_t>& result) {
  if (!is_packed()) {
    result.push_back(integer());
    return;
  }
  const std::string_view packed = bytes();
  const char* begin = packed.data();
  const char* end = begin + packed.size();
  try {
    while (begin != end) {
      result.push_back(static_cast<std::int64_t>(protozero::decode_varint(&begin, end)));
    }
  } catch (const protozero::exception& error) {
    fail(error.what());
  }
}

template <typename T>
void OnnxMessage::numbers(std::vector<T>& result) {
  if (is_packed()) {
    const std::string_view packed = bytes();
    if (packed.size() % sizeof(T) != 0) {
      fail(fmt::format("field {}: expected a multiple of {} bytes, got {}", field_, sizeof(T),
                       packed.size()));
    }
    const std::size_t old = result.size();
    result.resize(old + packed.size() / sizeof(T));
    if (!packed.empty()) std::memcpy(result.data() + old, packed.data(), packed.size());
    return;
  }
  if constexpr (sizeof(T) == sizeof(float)) {
    result.push_back(number());
  } else {
    require(pbf_wire_type::fixed64, "a double");
    try {
      result.push_back(reader_.get_double());
    } catch (const protozero::exception& error) {
      fail(error.what());
    }
  }
}

template void OnnxMessage::numbers(std::vector<float>& result);
template void OnnxMessage::numbers(std::vector<double>& result);

std::string OnnxMessage::place() const {
  const auto named = [&](std::string_view what, std::int32_t field) {
    return fmt::format("{} '{}': ", what, find_text(all_, field));
  };
  switch (kind_) {
    case Kind::Graph:
      return named("graph", onnx_graph::kName);
    case Kind::Node: {
      const std::string name = find_text(all_, onnx_node::kName);
      const std::string op = find_text(all_, onnx_node::kOpType);
      // Many writers leave nodes without names.
      if (!name.empty()) return fmt::format("node '{}' ({}): ", name, op);
      return fmt::format("node of '{}' ({}): ", find_text(all_, onnx_node::kOutput), op);
    }
    case Kind::Attribute:
      return named("attribute", onnx_attribute::kName);
    case Kind::Tensor:
      return named("tensor", onnx_tensor::kName);
    case Kind::Value:
      return named("value", onnx_value::kName);
    case Kind::Function:
      return named("function", onnx_function::kName);
    case Kind::File:
    case Kind::Part:
      break;
  }
  return {};
}

void OnnxMessage::fail(std::string_view text) const {
  std::string places;
  for (const OnnxMessage* message = this; message != nullptr; message = message->outer_) {
    places = message->place() + places;
  }
  const auto offset = static_cast<std::size_t>(reader_.data().data() -
                                               reinterpret_cast<const char*>(file_->data.data()));
  throw FileError(fmt::format("{}: {}byte {}: {}", file_->where, places, offset, text));
}

}  // namespace quanta::detail
