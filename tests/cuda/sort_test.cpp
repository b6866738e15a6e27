#include "quanta/ops/sort.h"

#include <doctest/doctest.h>

#include <limits>
#include <vector>

#include "devices_support.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "schedule_scope.h"
#include "support/on_device.h"

// Sorting on the device: the CPU's elements and indices, equal ones and NaN where the CPU puts them.

namespace quanta {
namespace {

using test::check_same_on_device;
using test::on_device;

constexpr DType kDTypes[] = {DType::Float32, DType::Float64, DType::UInt8, DType::Int8,
                             DType::Int16,   DType::UInt16,  DType::Int32, DType::Int64,
                             DType::Bool,    DType::QUInt8,  DType::QInt8, DType::QInt32};

// Few different numbers, so that many are equal; floats with NaN, infinities and both zeros.
Tensor random_elements(const Dims& sizes, DType dtype, Generator& generator) {
  constexpr float kOdd[] = {std::numeric_limits<float>::quiet_NaN(),
                            -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::infinity(), -0.0F, 0.0F};
  const bool is_signed = dtype != DType::UInt8 && dtype != DType::UInt16 && dtype != DType::QUInt8;
  const bool is_float = dtype == DType::Float32 || dtype == DType::Float64;
  const Tensor floats = Tensor::empty(sizes);
  for (std::int64_t i = 0; i < floats.numel(); ++i) {
    const bool is_odd = is_float && generator.integer(0, 3) == 0;
    floats.mutable_data<float>()[i] =
        is_odd ? kOdd[generator.integer(0, 4)]
               : static_cast<float>(generator.integer(is_signed ? -60 : 0, 60));
  }
  if (dtype == DType::QUInt8 || dtype == DType::QInt8 || dtype == DType::QInt32) {
    return quantize_per_tensor(floats, 0.9, dtype == DType::QUInt8 ? 3 : 0, dtype);
  }
  return floats.to(dtype);
}

void check_pair(const ValuesIndices& got, const ValuesIndices& want) {
  check_same_on_device(got.values, want.values);
  check_same_on_device(got.indices, want.indices);
}

}  // namespace

TEST_CASE("sort on a device: rows of every dtype along any dimension as on the CPU") {
  Generator generator(71);
  for (int round = 0; round < 60; ++round) {
    const DType dtype = kDTypes[round % 12];
    Dims sizes;
    const std::int64_t rank = generator.integer(1, 4);
    for (std::int64_t d = 0; d < rank; ++d) sizes.push_back(generator.integer(1, 21));
    Tensor x = random_elements(sizes, dtype, generator);
    if (round % 3 == 1) x = x.transpose(0, -1);
    if (round % 3 == 2) x = x.slice(-1, 0, x.size(-1), 2);
    const std::int64_t dim = generator.integer(-rank, rank - 1);
    const bool descending = generator.integer(0, 1) == 1;
    CAPTURE(round);
    check_pair(sort(on_device(x), {.dim = dim, .descending = descending}),
               sort(x, {.dim = dim, .descending = descending}));
    check_same_on_device(argsort(on_device(x), {.dim = dim}), argsort(x, {.dim = dim}));
    check_same_on_device(msort(on_device(x)), msort(x));
    const std::int64_t k = generator.integer(0, x.size(dim));
    const TopkOptions options{.dim = dim, .largest = !descending};
    check_pair(topk(on_device(x), k, options), topk(x, k, options));
  }
}

TEST_CASE("sort on a device: rows that take several tiles are merged") {
  Generator generator(72);
  // One tile, one and a little, an odd number of runs, some rows.
  const Dims all_sizes[] = {{2048}, {2049}, {3, 4099}, {2, 10001}, {1, 6144}};
  for (const Dims& sizes : all_sizes) {
    for (const DType dtype : {DType::Float32, DType::Int64, DType::QUInt8, DType::Float64}) {
      if (sizes[0] == 2 && dtype == DType::Int64) continue;
      CAPTURE(sizes);
      CAPTURE(dtype);
      const Tensor x = random_elements(sizes, dtype, generator);
      const bool descending = generator.integer(0, 1) == 1;
      check_pair(sort(on_device(x), {.descending = descending}),
                 sort(x, {.descending = descending}));
    }
  }
}

TEST_CASE("sort on a device: the order of threads does not matter") {
  Generator generator(73);
  const Tensor x = random_elements({2, 2500}, DType::Float32, generator);
  for (const std::uint64_t seed : {std::uint64_t{1}, std::uint64_t{2}}) {
    const test::ScheduleScope schedule(cuda::emulation::Schedule::Greedy, seed);
    check_pair(sort(on_device(x)), sort(x));
  }
}

TEST_CASE("topk on a device: few and many of long rows") {
  Generator generator(74);
  for (const std::int64_t k : {1, 7, 1000, 1024, 1025, 4000, 5000}) {
    CAPTURE(k);
    const Tensor x = random_elements({2, 5000}, DType::Float32, generator);
    const TopkOptions options{.largest = k % 2 == 0};
    check_pair(topk(on_device(x), k, options), topk(x, k, options));
  }
  // Several rounds of the best of each tile.
  const Tensor x = random_elements({3 * 2048 + 5}, DType::Int16, generator);
  check_pair(topk(on_device(x), 1024), topk(x, 1024));
  check_pair(topk(on_device(x), 1), topk(x, 1));
}

TEST_CASE("sort on a device: extremes of integers and numbers without dimensions") {
  const auto integers = [](std::vector<std::int64_t> values) { return Tensor::from_int64(values); };
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  for (const bool descending : {false, true}) {
    const Tensor x = integers({0, kMost, -1, kLeast, 1, kMost, kLeast, kMost - 1});
    check_pair(sort(on_device(x), {.descending = descending}), sort(x, {.descending = descending}));
    const Tensor small = integers({0, 255, 128, 127, 1, 255}).to(DType::UInt8);
    check_pair(sort(on_device(small), {.descending = descending}),
               sort(small, {.descending = descending}));
  }
  const Tensor number = Tensor::scalar(3.0);
  check_pair(sort(on_device(number)), sort(number));
  check_pair(topk(on_device(number), 1), topk(number, 1));
  check_pair(sort(on_device(Tensor::empty({3, 0}))), sort(Tensor::empty({3, 0})));
  check_pair(topk(on_device(Tensor::ones({3, 2})), 0), topk(Tensor::ones({3, 2}), 0));
}

TEST_CASE("sort on a device: refused things are the CPU's") {
  Generator generator(75);
  const Tensor x = randn({2, 3}, generator);
  CHECK_THROWS_WITH_AS(sort(on_device(x.to(DType::Float16))), doctest::Contains("sort"),
                       UnsupportedError);
  CHECK_THROWS_WITH_AS(topk(on_device(x), 4), doctest::Contains("topk: k: expected 0..3"),
                       ArgumentError);
}

}  // namespace quanta
