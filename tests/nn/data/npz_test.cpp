#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "quanta/nn/data/npy.h"
#include "quanta/runtime/error.h"
#include "support/capture_binding.h"
#include "support/files.h"

namespace quanta::data {
namespace {

std::filesystem::path golden(const char* name) { return test::golden_cases() / "numpy" / name; }

}  // namespace

TEST_CASE("read_npz: arrays that numpy wrote, stored and deflated") {
  for (const char* name : {"stored.npz", "deflated.npz"}) {
    CAPTURE(name);
    const NamedArrays arrays = read_npz(golden(name));
    REQUIRE(arrays.size() == 7);
    CHECK(arrays.at("x").sizes() == Dims{2, 3});
    CHECK(arrays.at("x").to_float_vector() == std::vector<float>{0, 0.25F, 0.5F, 0.75F, 1, 1.25F});
    CHECK(arrays.at("n").dtype() == DType::Int64);
    CHECK(arrays.at("n").to_int64_vector() == std::vector<std::int64_t>{1, -2});
    CHECK(arrays.at("flags").dtype() == DType::Bool);
    CHECK(arrays.at("empty").sizes() == Dims{0, 3});
    CHECK(arrays.at("fortran").to_int64_vector() == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5});
    CHECK(arrays.at("big").to_float_vector() == std::vector<float>{0, 1, 2});
    CHECK(arrays.at("scalar").dim() == 0);
    CHECK(arrays.at("scalar").item() == 7);
  }
}

TEST_CASE("write_npz: what it wrote is read back bit by bit") {
  const test::TemporaryFolder folder;
  const std::filesystem::path file = folder / "arrays.npz";
  const NamedArrays arrays{{"a", Tensor::from_values({1.5F, -2.0F, 0.1F})},
                           {"b/c", Tensor::arange(4, DType::Int64)},
                           {"none", Tensor::empty({3, 0}, DType::Float16)},
                           {"view", Tensor::arange(6).view({2, 3}).t()}};
  write_npz(arrays, file);
  const NamedArrays read = read_npz(file);
  REQUIRE(read.size() == arrays.size());
  for (const auto& [name, array] : arrays) {
    CAPTURE_BINDING(name);
    CHECK(read.at(name).equal(array));
  }
  CHECK_THROWS_AS(write_npz({{"", Tensor::zeros({1})}}, file), ArgumentError);
  CHECK_THROWS_AS(write_npz({{"u", Tensor()}}, file), ArgumentError);
  CHECK(read_npz(file).size() == arrays.size());
}

TEST_CASE("read_npz: a damaged archive is refused or read rightly") {
  const test::TemporaryFolder folder;
  const std::filesystem::path file = folder / "damaged.npz";
  for (const char* name : {"stored.npz", "deflated.npz"}) {
    CAPTURE(name);
    const std::string whole = test::read_bytes(golden(name));
    for (std::size_t size = 0; size < whole.size(); size += 37) {
      CAPTURE(size);
      test::write_bytes(file, whole.substr(0, size));
      CHECK_THROWS_AS(read_npz(file), FileError);
    }
    // A bit that nobody looks at (a date) may differ; nothing but FileError comes of the others.
    for (std::size_t at = 0; at < whole.size(); at += 3) {
      CAPTURE(at);
      std::string flipped = whole;
      flipped[at] = static_cast<char>(flipped[at] ^ static_cast<char>(1U << (at % 8)));
      test::write_bytes(file, flipped);
      try {
        static_cast<void>(read_npz(file));
      } catch (const FileError&) {
      }
    }
  }
}

}  // namespace quanta::data
