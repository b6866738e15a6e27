#include <doctest/doctest.h>
#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "quanta/nn/data/idx.h"
#include "quanta/nn/data/npy.h"
#include "quanta/runtime/error.h"
#include "runtime/file_test_util.h"

namespace {

using namespace quanta;
using quanta::test::TemporaryFolder;
using quanta::test::write_bytes;

std::string idx(std::string_view header, std::string_view data) {
  return std::string(header) + std::string(data);
}
// UInt8 [2, 3].
const std::string kSmallIdx = idx(std::string("\0\0\x08\x02\0\0\0\x02\0\0\0\x03", 12), "abcdef");

void write_gzip(const std::filesystem::path& path, std::string_view bytes) {
  gzFile file = gzopen(path.c_str(), "wb");
  REQUIRE(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())) ==
          static_cast<int>(bytes.size()));
  REQUIRE(gzclose(file) == Z_OK);
}

std::string npy(std::string_view header, std::string_view data, char version = '\x01') {
  std::string file = "\x93NUMPY";
  file += version;
  file += '\0';
  if (version == '\x01') {
    test::put(file, static_cast<std::uint16_t>(header.size()));
  } else {
    test::put(file, static_cast<std::uint32_t>(header.size()));
  }
  return file + std::string(header) + std::string(data);
}

template <typename T>
std::string bytes_of(std::initializer_list<T> values) {
  std::string result;
  for (const T value : values) test::put(result, value);
  return result;
}

template <typename Read>
void check_refused(const std::filesystem::path& path, const std::string& bytes, const char* text,
                   Read read) {
  write_bytes(path, bytes);
  CHECK_THROWS_WITH_AS(read(path), doctest::Contains(text), FileError);
}

// Changed copies of a file either read or throw FileError.
template <typename Read>
void check_changed_copies(const std::filesystem::path& path, const std::string& bytes, Read read) {
  std::mt19937_64 random(1);
  const auto below = [&](std::size_t end) { return static_cast<std::size_t>(random() % end); };
  int refused = 0;
  for (int round = 0; round < 1500; ++round) {
    std::string changed = bytes;
    for (std::size_t i = 1 + below(4); i > 0 && !changed.empty(); --i) {
      switch (below(3)) {
        case 0:
          changed[below(changed.size())] = static_cast<char>(random());
          break;
        case 1:
          changed.resize(below(changed.size()));
          break;
        default:
          changed.insert(below(changed.size()), 1, static_cast<char>(random()));
      }
    }
    write_bytes(path, changed);
    try {
      read(path).to_float_vector();
    } catch (const FileError&) {
      ++refused;
    }
  }
  CHECK(refused > 100);
}

}  // namespace

TEST_CASE("read_idx: plain and gzipped files give the same elements") {
  const TemporaryFolder folder;
  write_bytes(folder / "a.idx", kSmallIdx);
  write_gzip(folder / "a.idx.gz", kSmallIdx);
  for (const char* name : {"a.idx", "a.idx.gz"}) {
    const Tensor x = data::read_idx(folder / name);
    CHECK(x.dtype() == DType::UInt8);
    CHECK(x.sizes() == Dims{2, 3});
    CHECK(x.to_int64_vector() == std::vector<std::int64_t>{97, 98, 99, 100, 101, 102});
  }
}

TEST_CASE("read_idx: every element type is turned to this machine's byte order") {
  const TemporaryFolder folder;
  const auto read = [&](char type, const std::string& element) {
    write_bytes(folder / "x",
                idx(std::string("\0\0", 2) + type + std::string("\x01\0\0\0\x01", 5), element));
    return data::read_idx(folder / "x");
  };
  CHECK(read('\x09', "\xFE").item() == -2.0);
  CHECK(read('\x0B', std::string("\xFF\x00", 2)).item() == -256.0);
  CHECK(read('\x0C', std::string("\x00\x01\x00\x00", 4)).item() == 65536.0);
  CHECK(read('\x0D', std::string("\x3F\xC0\x00\x00", 4)).item() == 1.5);
  CHECK(read('\x0E', std::string("\xBF\xF8\0\0\0\0\0\0", 8)).item() == -1.5);
}

TEST_CASE("read_idx: what is wrong with a file is told") {
  const TemporaryFolder folder;
  const auto path = folder / "x";
  const auto read = [](const std::filesystem::path& from) { return data::read_idx(from); };
  CHECK_THROWS_WITH_AS(data::read_idx(folder / "missing"),
                       doctest::Contains("missing: expected a file, got nothing of that name"),
                       FileError);
  CHECK_THROWS_WITH_AS(data::read_idx(folder.path()), doctest::Contains("expected a file"),
                       FileError);
  check_refused(path, "", "magic number: expected 4 bytes, got 0: the file is truncated", read);
  check_refused(path, "PK\x03\x04", "magic number: expected an idx file", read);
  check_refused(path, std::string("\0\0\x07\x01\0\0\0\0", 8), "type: expected 0x08", read);
  check_refused(path, std::string("\0\0\x08\xFF", 4), "at most 10 dimensions, got 255", read);
  check_refused(path, kSmallIdx.substr(0, 9), "sizes: expected 4 bytes, got 1", read);
  check_refused(path, kSmallIdx.substr(0, 17), "elements: expected 6 bytes, got 5", read);
  check_refused(path, kSmallIdx + "x", "expected the end of the file after its elements", read);
  check_refused(path, idx(std::string("\0\0\x08\x02\xFF\xFF\xFF\xFF\0\0\0\x02", 12), "ab"),
                "sizes: expected what the file can hold", read);
  check_refused(path, idx(std::string("\0\0\x08\x02\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 12), "ab"),
                "at most 2^55 elements", read);
}

TEST_CASE("read_idx: a gzip stream that is cut or changed is refused") {
  const TemporaryFolder folder;
  write_gzip(folder / "x.gz", kSmallIdx);
  const std::string bytes = test::read_bytes(folder / "x.gz");
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    write_bytes(folder / "cut.gz", std::string_view(bytes).substr(0, length));
    CHECK_THROWS_AS(data::read_idx(folder / "cut.gz"), FileError);
  }
  std::string changed = bytes;
  changed[changed.size() - 6] = static_cast<char>(changed[changed.size() - 6] ^ 1);  // the checksum
  check_refused(folder / "x.gz", changed, "corrupt",
                [](const std::filesystem::path& path) { return data::read_idx(path); });
}

TEST_CASE("read_idx: changed files read or are refused") {
  const TemporaryFolder folder;
  const auto read = [](const std::filesystem::path& path) { return data::read_idx(path); };
  check_changed_copies(folder / "x", kSmallIdx, read);
  write_gzip(folder / "x.gz", kSmallIdx);
  check_changed_copies(folder / "y", test::read_bytes(folder / "x.gz"), read);
}

TEST_CASE("read_npy: every dtype in both byte orders") {
  const TemporaryFolder folder;
  const auto read = [&](std::string_view descr, const std::string& bytes) {
    write_bytes(folder / "x.npy", npy("{'descr': '" + std::string(descr) +
                                          "', 'fortran_order': False, 'shape': (2,), }\n",
                                      bytes));
    return data::read_npy(folder / "x.npy");
  };
  const std::vector<float> expected{1.0F, 0.0F};
  const auto check = [&](const Tensor& x, DType dtype) {
    CHECK(x.dtype() == dtype);
    CHECK(x.to_float_vector() == expected);
  };
  check(read("|b1", bytes_of<std::uint8_t>({1, 0})), DType::Bool);
  check(read("|i1", bytes_of<std::int8_t>({1, 0})), DType::Int8);
  check(read("|u1", bytes_of<std::uint8_t>({1, 0})), DType::UInt8);
  check(read("<i2", bytes_of<std::int16_t>({1, 0})), DType::Int16);
  check(read("<u2", bytes_of<std::uint16_t>({1, 0})), DType::UInt16);
  check(read("<i4", bytes_of<std::int32_t>({1, 0})), DType::Int32);
  check(read("<i8", bytes_of<std::int64_t>({1, 0})), DType::Int64);
  check(read("<f2", bytes_of<std::uint16_t>({0x3C00, 0})), DType::Float16);
  check(read("<f4", bytes_of({1.0F, 0.0F})), DType::Float32);
  check(read("<f8", bytes_of({1.0, 0.0})), DType::Float64);
  check(read(">i2", bytes_of<std::int16_t>({0x0100, 0})), DType::Int16);
  check(read(">f4", std::string("\x3F\x80\0\0\0\0\0\0", 8)), DType::Float32);
  check(read(">f8", std::string("\x3F\xF0", 2) + std::string(14, '\0')), DType::Float64);
}

TEST_CASE("read_npy: Fortran order comes as strides and 0-d arrays as 0-d tensors") {
  const TemporaryFolder folder;
  write_bytes(folder / "f.npy", npy("{\"shape\": (2, 3), 'fortran_order': True, 'descr': '<i4'}",
                                    bytes_of<std::int32_t>({1, 4, 2, 5, 3, 6}), '\x02'));
  const Tensor x = data::read_npy(folder / "f.npy");
  CHECK(x.sizes() == Dims{2, 3});
  CHECK(x.to_int64_vector() == std::vector<std::int64_t>{1, 2, 3, 4, 5, 6});
  write_bytes(folder / "s.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': ()}",
                                    bytes_of({2.5F}), '\x03'));
  CHECK(data::read_npy(folder / "s.npy").dim() == 0);
  CHECK(data::read_npy(folder / "s.npy").item() == 2.5);
}

TEST_CASE("read_npy: writing to the tensor leaves the file alone") {
  const TemporaryFolder folder;
  data::write_npy(Tensor::from_values({1.0F, 2.0F}), folder / "x.npy");
  {
    const Tensor x = data::read_npy(folder / "x.npy");
    x.fill_(7.0);
    CHECK(x.to_float_vector() == std::vector<float>{7.0F, 7.0F});
  }
  CHECK(data::read_npy(folder / "x.npy").to_float_vector() == std::vector<float>{1.0F, 2.0F});
}

TEST_CASE("write_npy: what it writes read_npy reads") {
  const TemporaryFolder folder;
  for (const DType dtype : {DType::Float32, DType::Float64, DType::Float16, DType::Int8,
                            DType::UInt8, DType::Int16, DType::Int32, DType::Int64}) {
    for (const Dims& sizes : {Dims{}, Dims{0}, Dims{17}, Dims{2, 3, 5}}) {
      const Tensor x = Tensor::full(sizes, 3.0, dtype);
      data::write_npy(x, folder / "x.npy");
      CHECK(data::read_npy(folder / "x.npy").equal(x));
    }
  }
  const Tensor turned = Tensor::arange(6).reshape({2, 3}).t();
  data::write_npy(turned, folder / "x.npy");
  CHECK(data::read_npy(folder / "x.npy").equal(turned));
  CHECK_THROWS_AS(data::write_npy(Tensor::zeros({1}, DType::BFloat16), folder / "x.npy"),
                  ArgumentError);
}

TEST_CASE("read_npy: what is wrong with a file is told") {
  const TemporaryFolder folder;
  const auto path = folder / "x.npy";
  const auto read = [](const std::filesystem::path& from) { return data::read_npy(from); };
  const auto header = [](std::string_view descr, std::string_view order, std::string_view shape) {
    return "{'descr': '" + std::string(descr) + "', 'fortran_order': " + std::string(order) +
           ", 'shape': " + std::string(shape) + "}";
  };
  CHECK_THROWS_AS(data::read_npy(folder / "missing"), FileError);
  check_refused(path, "", "magic: expected a .npy file", read);
  check_refused(path, "\x93NUMPY\x01", "got the file's end", read);
  check_refused(path, npy("{}", "", '\x04'), "version: expected 1.0, 2.0 or 3.0, got 4.0", read);
  check_refused(path, std::string("\x93NUMPY\x01\0\xFF\xFFxx", 12), "within the file", read);
  check_refused(path, npy("{}", ""), "got not all of them", read);
  check_refused(path, npy("{'descr': '<f4'", ""), "expected '}', got its end", read);
  check_refused(path, npy("{'descr': '<f4', 'descr': '<f4'}", ""), "once each, got 'descr'", read);
  check_refused(path, npy("{'extra': 1}", ""), "got 'extra'", read);
  check_refused(path, npy(header("<u4", "False", "(1,)"), "abcd"), "descr: expected", read);
  check_refused(path, npy(header("|O", "False", "(1,)"), "abcd"), "descr: expected", read);
  check_refused(path, npy("{'descr': [('a', '<f4')]}", ""), "expected a string", read);
  check_refused(path, npy(header("<f4", "1", "(1,)"), "abcd"), "fortran_order", read);
  check_refused(path, npy(header("<f4", "False", "(x,)"), "abcd"), "shape: expected integers",
                read);
  check_refused(path, npy(header("<f4", "False", "(-1,)"), "abcd"), "sizes >= 0", read);
  check_refused(path, npy(header("<f4", "False", "(99999999999999999999,)"), "abcd"), "shape",
                read);
  check_refused(path, npy(header("<f4", "False", "(1,1,1,1,1,1,1,1,1,1,1)"), "abcd"),
                "at most 10 dimensions", read);
  check_refused(path, npy(header("<f4", "False", "(4294967296,4294967296,8)"), "abcd"),
                "at most 2^55 elements", read);
  check_refused(path, npy(header("<f4", "False", "(2,)"), "abcd"),
                "data: expected 8 bytes for Float32 [2], got 4", read);
  check_refused(path, npy(header("<f4", "False", "(1,)"), "abcdefgh"),
                "data: expected 4 bytes for Float32 [1], got 8", read);
  check_refused(path, npy(header("|b1", "False", "(2,)"), "\x01\x02"),
                "expected bools of 0 and 1, got 2 as number 1", read);
  check_refused(path, npy(header("<f4", "False", "(1,)") + "{", "abcd"),
                "expected nothing after the '}'", read);
}

TEST_CASE("read_npy: changed files read or are refused") {
  const TemporaryFolder folder;
  check_changed_copies(
      folder / "x.npy",
      npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }", std::string(24, 'x')),
      [](const std::filesystem::path& path) { return data::read_npy(path); });
}
