#include "quanta/nn/data/npy.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "quanta/nn/data/detail/byte_order.h"
#include "quanta/nn/data/detail/npy_array.h"
#include "quanta/runtime/atomic_file.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/file_bytes.h"
#include "quanta/runtime/detail/file_sizes.h"
#include "quanta/runtime/detail/reading.h"

// Format: numpy.lib.format. Magic, version, length of the header, and as header a Python dict:
//   {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }

namespace quanta::data {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kMaxHeader = 1U << 16;

struct TypeName {
  std::string_view name;  // without the byte order
  DType dtype;
};
constexpr std::array kTypes = {
    TypeName{"b1", DType::Bool},    TypeName{"i1", DType::Int8},    TypeName{"u1", DType::UInt8},
    TypeName{"i2", DType::Int16},   TypeName{"u2", DType::UInt16},  TypeName{"i4", DType::Int32},
    TypeName{"i8", DType::Int64},   TypeName{"f2", DType::Float16}, TypeName{"f4", DType::Float32},
    TypeName{"f8", DType::Float64},
};

struct Header {
  std::optional<DType> dtype;
  bool big_endian = false;
  std::optional<bool> fortran_order;
  std::optional<Dims> shape;
};

/// Reads the dict, strictly.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, std::string where) : text_(text), where_(std::move(where)) {}

  Header parse() {
    Header header;
    expect('{');
    while (!accept('}')) {
      const std::string_view key = string();
      expect(':');
      if (key == "descr" && !header.dtype) {
        read_type(header);
      } else if (key == "fortran_order" && !header.fortran_order) {
        header.fortran_order = boolean();
      } else if (key == "shape" && !header.shape) {
        header.shape = tuple();
      } else {
        fail(fmt::format("expected descr, fortran_order and shape once each, got '{}'", key));
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_spaces();
    if (!text_.empty()) fail("expected nothing after the '}', got more");
    if (!header.dtype || !header.fortran_order || !header.shape) {
      fail("expected descr, fortran_order and shape, got not all of them");
    }
    return header;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw FileError(fmt::format("{}: header: {}", where_, what));
  }
  void skip_spaces() {
    while (!text_.empty() && (text_[0] == ' ' || text_[0] == '\n')) text_.remove_prefix(1);
  }
  bool accept(char wanted) {
    skip_spaces();
    if (text_.empty() || text_[0] != wanted) return false;
    text_.remove_prefix(1);
    return true;
  }
  void expect(char wanted) {
    if (accept(wanted)) return;
    if (text_.empty()) fail(fmt::format("expected '{}', got its end", wanted));
    fail(fmt::format("expected '{}', got {}", wanted, shown(text_.substr(0, 1))));
  }
  bool accept_word(std::string_view word) {
    skip_spaces();
    if (!text_.starts_with(word)) return false;
    text_.remove_prefix(word.size());
    return true;
  }
  static std::string shown(std::string_view text) {
    std::string result;
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      result += std::isprint(byte) != 0 ? std::string(1, c) : fmt::format("\\x{:02x}", byte);
    }
    return "'" + result + "'";
  }

  std::string_view string() {
    skip_spaces();
    const char quote = text_.empty() ? '\0' : text_[0];
    const std::size_t end =
        quote == '\'' || quote == '"' ? text_.find(quote, 1) : std::string_view::npos;
    if (end == std::string_view::npos) {
      fail(fmt::format("expected a string, got {}", shown(text_.substr(0, 8))));
    }
    const std::string_view value = text_.substr(1, end - 1);
    text_.remove_prefix(end + 1);
    return value;
  }
  bool boolean() {
    if (accept_word("True")) return true;
    if (accept_word("False")) return false;
    fail("fortran_order: expected True or False, got something else");
  }
  void read_type(Header& header) {
    const std::string_view descr = string();
    const char order = descr.empty() ? '\0' : descr[0];
    const bool known_order = order == '<' || order == '>' || order == '|' || order == '=';
    const auto* type = std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeName& candidate) {
      return known_order && candidate.name == descr.substr(1);
    });
    if (type == kTypes.end()) {
      fail(
          fmt::format("descr: expected a byte order and one of b1, i1, u1, i2, u2, i4, i8, f2, "
                      "f4, f8, got {}",
                      shown(descr)));
    }
    header.dtype = type->dtype;
    header.big_endian = order == '>';
  }
  Dims tuple() {
    Dims shape;
    expect('(');
    while (!accept(')')) {
      skip_spaces();
      std::int64_t size = 0;
      const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), size);
      if (error != std::errc()) {
        fail(fmt::format("shape: expected integers, got {}", shown(text_.substr(0, 8))));
      }
      text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
      if (shape.size() == Dims::kMaxDims) {
        fail(fmt::format("shape: expected at most {} dimensions, got more", Dims::kMaxDims));
      }
      shape.push_back(size);
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return shape;
  }

  std::string_view text_;
  std::string where_;
};

// Where the header's text begins and ends.
std::pair<std::size_t, std::size_t> header_range(std::string_view bytes, const std::string& where) {
  const auto fail = [&](const std::string& what) {
    throw FileError(fmt::format("{}: {}", where, what));
  };
  if (!bytes.starts_with(kMagic)) fail("magic: expected a .npy file, got something else");
  if (bytes.size() < 12) fail("header: expected a version and a length, got the file's end");
  const auto byte = [&](std::size_t at) {
    return static_cast<std::size_t>(static_cast<unsigned char>(bytes[at]));
  };
  if (byte(6) < 1 || byte(6) > 3 || byte(7) != 0) {
    fail(fmt::format("version: expected 1.0, 2.0 or 3.0, got {}.{}", byte(6), byte(7)));
  }
  const bool short_length = byte(6) == 1;
  const std::size_t begin = short_length ? 10 : 12;
  std::size_t length = byte(8) | byte(9) << 8;
  if (!short_length) length |= byte(10) << 16 | byte(11) << 24;
  if (length > kMaxHeader || length > bytes.size() - begin) {
    fail(fmt::format("header: expected at most {} bytes within the file, got {}", kMaxHeader,
                     length));
  }
  return {begin, begin + length};
}

// Fortran order: the first dimension has the smallest step.
Dims compute_strides(const Dims& sizes, bool fortran_order) {
  Dims strides = Dims::filled(sizes.size(), 1);
  std::int64_t step = 1;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::size_t d = fortran_order ? i : sizes.size() - 1 - i;
    strides[d] = step;
    step *= std::max<std::int64_t>(sizes[d], 1);
  }
  return strides;
}

void check_bools(std::span<const std::byte> data, const std::string& where) {
  const auto* bad = std::find_if(data.data(), data.data() + data.size(),
                                 [](std::byte value) { return std::to_integer<int>(value) > 1; });
  if (bad == data.data() + data.size()) return;
  throw FileError(fmt::format("{}: data: expected bools of 0 and 1, got {} as number {}", where,
                              std::to_integer<int>(*bad), bad - data.data()));
}

}  // namespace

namespace detail {

Tensor npy_array(std::span<std::byte> bytes, const std::string& where,
                 const std::shared_ptr<void>& owner) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto [begin, end] = header_range(text, where);
  const Header header = HeaderParser(text.substr(begin, end - begin), where).parse();
  const DType dtype = *header.dtype;
  const Dims sizes = *header.shape;
  const std::size_t wanted = storage_bytes(dtype, quanta::detail::checked_file_numel(sizes, where));
  if (wanted != bytes.size() - end) {
    throw FileError(fmt::format("{}: data: expected {} bytes for {} {}, got {}", where, wanted,
                                dtype, sizes, bytes.size() - end));
  }
  const std::span<std::byte> data = bytes.subspan(end);
  if (dtype == DType::Bool) check_bools(data, where);
  const Dims strides = compute_strides(sizes, *header.fortran_order);
  const bool swap = header.big_endian && item_size(dtype) > 1;
  const bool aligned = reinterpret_cast<std::uintptr_t>(data.data()) % item_size(dtype) == 0;
  if (!swap && aligned) {
    return Tensor::from_blob(data.data(), sizes, strides, dtype,
                             [owner = owner](void*) mutable { owner.reset(); });
  }
  const Tensor flat = Tensor::empty({static_cast<std::int64_t>(wanted / item_size(dtype))}, dtype);
  const std::span<std::byte> copy(static_cast<std::byte*>(flat.data_ptr()), wanted);
  std::copy(data.begin(), data.end(), copy.begin());
  if (swap) reverse_each(copy, item_size(dtype));
  return flat.as_strided(sizes, strides, 0);
}

std::string npy_header(const Tensor& x, std::string_view op) {
  const auto* type = std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeName& candidate) {
    return x.defined() && candidate.dtype == x.dtype();
  });
  QUANTA_CHECK(type != kTypes.end(), "{}: x: expected a plain dtype that numpy has, got {}", op,
               x.defined() ? to_string(x.dtype()) : "an undefined tensor");
  std::string shape;
  for (const std::int64_t size : x.sizes()) shape += fmt::format("{}, ", size);
  std::string header = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}), }}",
                                   item_size(x.dtype()) == 1 ? '|' : '<', type->name, shape);
  // numpy aligns the data to 64 bytes with spaces.
  constexpr std::size_t kStart = 10;
  while ((kStart + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  const auto length = header.size();
  return std::string(kMagic) + std::string("\x01\x00", 2) + static_cast<char>(length & 0xFFU) +
         static_cast<char>(length >> 8U) + header;
}

}  // namespace detail

Tensor read_npy(const std::filesystem::path& path, FileAccess access) {
  const std::string where = "read_npy: " + path.string();
  return quanta::detail::reading(where, [&] {
    const auto file = quanta::detail::FileBytes::open(path, "read_npy", access);
    return detail::npy_array(file->bytes(), where, file);
  });
}

void write_npy(const Tensor& x, const std::filesystem::path& path) {
  const std::string header = detail::npy_header(x, "write_npy");
  const Tensor values = x.contiguous();
  write_file_atomically(path, [&](const auto& sink) {
    sink(std::as_bytes(std::span(header)));
    sink({static_cast<const std::byte*>(values.data_ptr()), values.nbytes()});
  });
}

}  // namespace quanta::data
