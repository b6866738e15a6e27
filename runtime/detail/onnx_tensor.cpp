#include "quanta/runtime/detail/onnx_tensor.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "quanta/runtime/detail/file_sizes.h"
#include "quanta/runtime/detail/onnx_fields.h"

namespace quanta::detail {
namespace {

static_assert(std::endian::native == std::endian::little, "raw data is little-endian");

/// The typed fields of a TensorProto.
enum class Field : std::uint8_t { Float, Int32, String, Int64, Double, UInt64 };

/// A TensorProto as it stands in the file.
struct Parts {
  std::string name;
  OnnxType type = OnnxType::Undefined;
  Dims sizes;
  std::optional<std::string_view> raw;
  std::optional<Field> typed;
  std::vector<std::int64_t> integers;
  std::vector<float> floats;
  std::vector<double> doubles;
  std::string_view packed;  // instead of floats or doubles: all of them, as in raw data
  std::size_t strings = 0;
  OnnxExternalData::Entries external;
  bool is_external = false;
};

void use_field(Parts& parts, Field field, const OnnxMessage& message) {
  if (parts.typed && *parts.typed != field) {
    message.fail(
        "expected values in one field, got two of float_data, int32_data, string_data, "
        "int64_data, double_data and uint64_data");
  }
  parts.typed = field;
}

void read_dims(OnnxMessage& message, Parts& parts) {
  std::vector<std::int64_t> dims;
  message.integers(dims);
  if (parts.sizes.size() + dims.size() > Dims::kMaxDims) {
    message.fail(fmt::format("dims: expected at most {} dimensions, got more", Dims::kMaxDims));
  }
  for (const std::int64_t size : dims) parts.sizes.push_back(size);
}

/// Values of float_data or double_data. Most writers pack them into one piece, which is what raw
/// data would be.
template <typename T>
void read_numbers(OnnxMessage& message, Parts& parts, std::vector<T>& values) {
  if (message.is_packed() && values.empty() && parts.packed.empty()) {
    parts.packed = message.bytes();
    if (parts.packed.size() % sizeof(T) != 0) {
      message.fail(
          fmt::format("expected a multiple of {} bytes, got {}", sizeof(T), parts.packed.size()));
    }
    return;
  }
  if (!parts.packed.empty()) {
    values.resize(parts.packed.size() / sizeof(T));
    std::memcpy(values.data(), parts.packed.data(), parts.packed.size());
    parts.packed = {};
  }
  message.numbers(values);
}

std::pair<std::string, std::string> read_pair(OnnxMessage& message) {
  std::pair<std::string, std::string> result;
  while (message.next()) {
    switch (message.field()) {
      case onnx_pair::kKey:
        result.first = message.text();
        break;
      case onnx_pair::kValue:
        result.second = message.text();
        break;
      default:
        message.skip();
    }
  }
  return result;
}

Parts read_parts(OnnxMessage& message) {
  Parts parts;
  while (message.next()) {
    switch (message.field()) {
      case onnx_tensor::kDims:
        read_dims(message, parts);
        break;
      case onnx_tensor::kDataType: {
        const std::int64_t type = message.integer();
        if (type <= 0 || type > static_cast<std::int64_t>(OnnxType::Int2)) {
          message.fail(fmt::format("data_type: expected 1..26, got {}", type));
        }
        parts.type = static_cast<OnnxType>(type);
        break;
      }
      case onnx_tensor::kSegment:
        message.fail("segment: tensors in pieces are not supported");
      case onnx_tensor::kFloatData:
        use_field(parts, Field::Float, message);
        read_numbers(message, parts, parts.floats);
        break;
      case onnx_tensor::kDoubleData:
        use_field(parts, Field::Double, message);
        read_numbers(message, parts, parts.doubles);
        break;
      case onnx_tensor::kInt32Data:
        use_field(parts, Field::Int32, message);
        message.integers(parts.integers);
        break;
      case onnx_tensor::kInt64Data:
        use_field(parts, Field::Int64, message);
        message.integers(parts.integers);
        break;
      case onnx_tensor::kUint64Data:
        use_field(parts, Field::UInt64, message);
        message.integers(parts.integers);
        break;
      case onnx_tensor::kStringData:
        use_field(parts, Field::String, message);
        message.bytes();
        ++parts.strings;
        break;
      case onnx_tensor::kName:
        parts.name = message.text();
        break;
      case onnx_tensor::kRawData:
        parts.raw = message.bytes();
        break;
      case onnx_tensor::kExternalData: {
        OnnxMessage pair = message.message(OnnxMessage::Kind::Part);
        parts.external.push_back(read_pair(pair));
        break;
      }
      case onnx_tensor::kDataLocation: {
        const std::int64_t location = message.integer();
        if (location != 0 && location != 1) {
          message.fail(fmt::format("data_location: expected 0 or 1, got {}", location));
        }
        parts.is_external = location == 1;
        break;
      }
      default:
        message.skip();
    }
  }
  return parts;
}

Field field_of(OnnxType type) {
  switch (type) {
    case OnnxType::Float:
    case OnnxType::Complex64:
      return Field::Float;
    case OnnxType::Double:
    case OnnxType::Complex128:
      return Field::Double;
    case OnnxType::Int64:
      return Field::Int64;
    case OnnxType::UInt32:
    case OnnxType::UInt64:
      return Field::UInt64;
    case OnnxType::String:
      return Field::String;
    default:
      return Field::Int32;
  }
}

/// How many values the typed field has to have for `numel` elements.
std::size_t typed_count(OnnxType type, std::int64_t numel) {
  const auto count = static_cast<std::size_t>(numel);
  if (type == OnnxType::Complex64 || type == OnnxType::Complex128) return 2 * count;
  const int bits = onnx_bits(type);
  if (bits == 0 || bits >= 8) return count;
  // Of 4 and 2 bits: bytes of packed elements.
  const auto per_byte = static_cast<std::size_t>(8 / bits);
  return (count + per_byte - 1) / per_byte;
}

/// The values that int32_data may have for a type.
IntRange int32_range(OnnxType type) {
  switch (type) {
    case OnnxType::Int8:
      return {-128, 127};
    case OnnxType::Int16:
      return {-32768, 32767};
    case OnnxType::UInt16:
    case OnnxType::Float16:
    case OnnxType::BFloat16:
      return {0, 65535};
    case OnnxType::Bool:
      return {0, 1};
    case OnnxType::Int4:
    case OnnxType::UInt4:
    case OnnxType::Int2:
    case OnnxType::UInt2:
      return {-128, 255};  // bytes, which some writers take for signed ones
    case OnnxType::Int32:
      return {std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()};
    default:
      return {0, 255};
  }
}

/// One element of 4 or 2 bits, the first in the lowest bits.
std::int8_t unpacked(std::span<const std::byte> bytes, std::size_t i, unsigned bits,
                     bool is_signed) {
  const std::size_t per_byte = 8 / bits;
  const unsigned shift = static_cast<unsigned>(i % per_byte) * bits;
  const unsigned code = (static_cast<unsigned>(bytes[i / per_byte]) >> shift) & ((1U << bits) - 1);
  const bool negative = is_signed && (code >> (bits - 1)) != 0;
  return static_cast<std::int8_t>(static_cast<int>(code) - (negative ? 1 << bits : 0));
}

bool is_signed(OnnxType type) { return type == OnnxType::Int4 || type == OnnxType::Int2; }

/// A tensor of the bytes of raw data, which are as many as its elements take.
Tensor make_tensor(const Parts& parts, DType dtype, std::int64_t numel, const OnnxBytes& bytes,
                   const OnnxMessage& message) {
  const int bits = onnx_bits(parts.type);
  const std::span<std::byte> data = bytes.data;
  if (bits < 8) {
    Tensor result = Tensor::empty(parts.sizes, dtype);
    auto* values = static_cast<std::int8_t*>(result.data_ptr());
    for (std::size_t i = 0; i < static_cast<std::size_t>(numel); ++i) {
      values[i] = unpacked(data, i, static_cast<unsigned>(bits), is_signed(parts.type));
    }
    return result;
  }
  if (dtype == DType::Bool) {
    const auto wrong = std::find_if(data.begin(), data.end(),
                                    [](std::byte value) { return static_cast<int>(value) > 1; });
    if (wrong != data.end()) {
      message.fail(fmt::format("expected BOOL values 0 and 1, got {}", static_cast<int>(*wrong)));
    }
  }
  const bool aligned = reinterpret_cast<std::uintptr_t>(data.data()) % item_size(dtype) == 0;
  if (bytes.owner != nullptr && aligned && !data.empty()) {
    return Tensor::from_blob(data.data(), parts.sizes, dtype,
                             [owner = bytes.owner](void*) mutable { owner.reset(); });
  }
  Tensor result = Tensor::empty(parts.sizes, dtype);
  if (!data.empty()) std::memcpy(result.data_ptr(), data.data(), data.size());
  return result;
}

template <typename To>
std::vector<std::byte> narrowed(const std::vector<std::int64_t>& values) {
  std::vector<std::byte> result(values.size() * sizeof(To));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const To value = static_cast<To>(values[i]);
    std::memcpy(result.data() + i * sizeof(To), &value, sizeof(To));
  }
  return result;
}

/// The typed field's values as raw data.
std::vector<std::byte> raw_from_typed(const Parts& parts) {
  const auto copied = [](const auto& values) {
    const auto bytes = std::as_bytes(std::span(values));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  switch (field_of(parts.type)) {
    case Field::Float:
      return copied(parts.floats);
    case Field::Double:
      return copied(parts.doubles);
    case Field::Int64:
      return copied(parts.integers);
    default:
      break;
  }
  switch (onnx_bits(parts.type)) {
    case 32:
      return narrowed<std::int32_t>(parts.integers);
    case 16:
      return narrowed<std::uint16_t>(parts.integers);
    default:
      return narrowed<std::uint8_t>(parts.integers);
  }
}

/// `view` of the file's bytes, as bytes that a tensor may write to.
OnnxBytes piece(const OnnxBytes& file, std::string_view view) {
  if (view.empty()) return {};
  const auto begin =
      static_cast<std::size_t>(view.data() - reinterpret_cast<const char*>(file.data.data()));
  return {file.data.subspan(begin, view.size()), file.owner, {}};
}

void check_typed(const Parts& parts, std::int64_t numel, const OnnxMessage& message) {
  const std::size_t expected = typed_count(parts.type, numel);
  std::size_t got =
      parts.integers.size() + parts.floats.size() + parts.doubles.size() + parts.strings;
  if (!parts.packed.empty()) {
    got = parts.packed.size() / (*parts.typed == Field::Float ? sizeof(float) : sizeof(double));
  }
  if (parts.typed && *parts.typed != field_of(parts.type) && got > 0) {
    message.fail(fmt::format("values of {} stand in another type's field", to_string(parts.type)));
  }
  if (got != expected) {
    message.fail(fmt::format("expected {} values for {} of sizes {}, got {}", expected,
                             to_string(parts.type), parts.sizes, got));
  }
  if (field_of(parts.type) != Field::Int32) return;
  const IntRange range = int32_range(parts.type);
  for (const std::int64_t value : parts.integers) {
    if (value < range.min || value > range.max) {
      message.fail(fmt::format("int32_data: expected {}..{} for {}, got {}", range.min, range.max,
                               to_string(parts.type), value));
    }
  }
}

}  // namespace

OnnxTensor read_tensor(OnnxMessage& message, OnnxExternalData& external) {
  const Parts parts = read_parts(message);
  if (parts.type == OnnxType::Undefined) message.fail("data_type: expected 1..26, got nothing");
  std::int64_t numel = 0;
  try {
    numel = checked_file_numel(parts.sizes, "dims");
  } catch (const FileError& error) {
    message.fail(error.what());
  }
  if (parts.raw && (parts.typed || parts.is_external)) {
    message.fail(fmt::format("expected values in one place, got raw_data and {}",
                             parts.typed ? "typed data" : "external data"));
  }
  if (parts.typed && parts.is_external) {
    message.fail("expected values in one place, got typed data and external data");
  }

  OnnxTensor result{parts.name, parts.type, {}};
  const std::optional<DType> dtype = dtype_of(parts.type);
  const int bits = onnx_bits(parts.type);
  if (!parts.raw && !parts.is_external) {
    check_typed(parts, numel, message);
    if (!dtype) return result;
    if (!parts.packed.empty()) {
      result.value =
          make_tensor(parts, *dtype, numel, piece(message.file(), parts.packed), message);
      return result;
    }
    std::vector<std::byte> values = raw_from_typed(parts);
    result.value = make_tensor(parts, *dtype, numel, {values, nullptr, {}}, message);
    return result;
  }
  if (bits == 0) {
    message.fail(fmt::format("expected values of {} in string_data, got {}", to_string(parts.type),
                             parts.raw ? "raw_data" : "external data"));
  }
  const std::size_t expected =
      (static_cast<std::size_t>(numel) * static_cast<std::size_t>(bits) + 7) / 8;
  if (parts.is_external) {
    const OnnxBytes bytes = external.find(parts.external, expected, message);
    if (dtype) result.value = make_tensor(parts, *dtype, numel, bytes, message);
    return result;
  }
  if (parts.raw->size() != expected) {
    message.fail(fmt::format("raw_data: expected {} bytes for {} of sizes {}, got {}", expected,
                             to_string(parts.type), parts.sizes, parts.raw->size()));
  }
  if (dtype) {
    result.value = make_tensor(parts, *dtype, numel, piece(message.file(), *parts.raw), message);
  }
  return result;
}

}  // namespace quanta::detail
