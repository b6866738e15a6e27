#include "quanta/nn/data/idx.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "quanta/nn/data/detail/byte_order.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/file_sizes.h"
#include "quanta/runtime/detail/reading.h"

// Format: the end of http://yann.lecun.com/exdb/mnist/: two zero bytes, the type, the number of
// dimensions, their sizes, the elements; all with the most significant byte first.

namespace quanta::data {
namespace {

namespace fs = std::filesystem;

// deflate cannot do better than 1032 to 1; the rest is for the headers.
constexpr std::uint64_t kMaxCompression = 1032;
constexpr std::uint64_t kSlack = 4096;

/// A file that gzip has compressed or not.
class GzipFile {
 public:
  GzipFile(const fs::path& path, std::string where) : where_(std::move(where)) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::is_regular_file(status)) {
      fail(fmt::format("expected a file, got {}", fs::exists(status) ? std::string("something else")
                                                  : error && status.type() == fs::file_type::none
                                                      ? error.message()
                                                      : std::string("nothing of that name")));
    }
    const std::uintmax_t size = fs::file_size(path, error);
    if (error) fail(error.message());
    max_bytes_ = size * kMaxCompression + kSlack;
    errno = 0;
    file_ = gzopen(path.c_str(), "rb");
    if (file_ == nullptr) fail(std::generic_category().message(errno));
  }
  ~GzipFile() { gzclose(file_); }
  GzipFile(const GzipFile&) = delete;
  GzipFile& operator=(const GzipFile&) = delete;

  [[noreturn]] void fail(const std::string& what) const {
    throw FileError(fmt::format("{}: {}", where_, what));
  }
  const std::string& where() const noexcept { return where_; }
  /// More than the whole file can hold.
  std::uint64_t max_bytes() const noexcept { return max_bytes_; }

  void read(void* data, std::size_t bytes, std::string_view what) {
    const std::size_t got = read_some(data, bytes);
    if (got != bytes) {
      fail(fmt::format("{}: expected {} bytes, got {}: the file is truncated", what, bytes, got));
    }
  }

  /// Reads on to the end, where gzip's checksum stands.
  void expect_end() {
    std::byte more{};
    if (read_some(&more, 1) != 0) fail("expected the end of the file after its elements, got more");
  }

 private:
  std::size_t read_some(void* data, std::size_t bytes) {
    std::size_t done = 0;
    while (done < bytes) {
      const auto part = static_cast<unsigned>(std::min<std::size_t>(bytes - done, 1U << 24));
      const int got = gzread(file_, static_cast<char*>(data) + done, part);
      if (got < 0) fail(fmt::format("corrupt: {}", error_text()));
      if (got == 0) break;
      done += static_cast<std::size_t>(got);
    }
    // A compressed stream that stops short is told only so.
    int code = Z_OK;
    gzerror(file_, &code);
    if (done < bytes && code == Z_BUF_ERROR) fail("the compressed data is truncated");
    return done;
  }

  std::string error_text() const {
    int code = Z_OK;
    const char* text = gzerror(file_, &code);
    return code == Z_ERRNO ? std::generic_category().message(errno) : std::string(text);
  }

  std::string where_;
  std::uint64_t max_bytes_ = 0;
  gzFile file_ = nullptr;
};

DType element_type(const GzipFile& file, std::uint8_t code) {
  switch (code) {
    case 0x08:
      return DType::UInt8;
    case 0x09:
      return DType::Int8;
    case 0x0B:
      return DType::Int16;
    case 0x0C:
      return DType::Int32;
    case 0x0D:
      return DType::Float32;
    case 0x0E:
      return DType::Float64;
    default:
      file.fail(
          fmt::format("type: expected 0x08, 0x09, 0x0B, 0x0C, 0x0D or 0x0E, got 0x{:02X}", code));
  }
}

Tensor read_elements(GzipFile& file) {
  std::array<std::uint8_t, 4> magic{};
  file.read(magic.data(), magic.size(), "magic number");
  if (magic[0] != 0 || magic[1] != 0) {
    file.fail(fmt::format("magic number: expected an idx file (two zero bytes), got {:02X} {:02X}",
                          magic[0], magic[1]));
  }
  const DType dtype = element_type(file, magic[2]);
  if (magic[3] > Dims::kMaxDims) {
    file.fail(
        fmt::format("sizes: expected at most {} dimensions, got {}", Dims::kMaxDims, magic[3]));
  }
  Dims sizes;
  for (int i = 0; i < magic[3]; ++i) {
    std::array<std::uint8_t, 4> bytes{};
    file.read(bytes.data(), bytes.size(), "sizes");
    std::int64_t size = 0;
    for (const std::uint8_t byte : bytes) size = size * 256 + byte;
    sizes.push_back(size);
  }
  const std::int64_t numel = quanta::detail::checked_file_numel(sizes, file.where());
  const std::size_t bytes = storage_bytes(dtype, numel);
  if (bytes > file.max_bytes()) {
    file.fail(
        fmt::format("sizes: expected what the file can hold, got {} ({} bytes)", sizes, bytes));
  }
  Tensor result = Tensor::empty(sizes, dtype);
  file.read(result.data_ptr(), bytes, "elements");
  file.expect_end();
  detail::reverse_each({static_cast<std::byte*>(result.data_ptr()), bytes}, item_size(dtype));
  return result;
}

}  // namespace

Tensor read_idx(const fs::path& path) {
  const std::string where = "read_idx: " + path.string();
  return quanta::detail::reading(where, [&] {
    GzipFile file(path, where);
    return read_elements(file);
  });
}

}  // namespace quanta::data
