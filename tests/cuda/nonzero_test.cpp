#include <doctest/doctest.h>

#include <limits>
#include <optional>
#include <vector>

#include "devices_support.h"
#include "quanta/ops/compare.h"
#include "quanta/ops/indexing.h"
#include "quanta/ops/quantize.h"
#include "quanta/ops/sort.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "schedule_scope.h"
#include "support/on_device.h"

// Results whose sizes depend on values: nonzero, unique and masks as indices.

namespace quanta {
namespace {

using test::check_on_device;
using test::check_same_on_device;
using test::on_device;

constexpr DType kDTypes[] = {DType::Float32, DType::Float64, DType::UInt8, DType::Int8,
                             DType::Int16,   DType::UInt16,  DType::Int32, DType::Int64,
                             DType::Bool,    DType::QUInt8,  DType::QInt8, DType::QInt32};
constexpr int kPlain = 9;

// Numbers up to `most`, many of them 0; floats with NaN, infinities and both zeros.
Tensor random_elements(const Dims& sizes, DType dtype, std::int64_t most, Generator& generator) {
  constexpr float kOdd[] = {std::numeric_limits<float>::quiet_NaN(),
                            -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::infinity(), -0.0F, 0.0F};
  const bool is_float = dtype == DType::Float32 || dtype == DType::Float64;
  const Tensor floats = Tensor::empty(sizes);
  for (std::int64_t i = 0; i < floats.numel(); ++i) {
    const bool is_odd = is_float && generator.integer(0, 4) == 0;
    floats.mutable_data<float>()[i] =
        is_odd ? kOdd[generator.integer(0, 4)]
               : static_cast<float>(generator.integer(0, 1) * generator.integer(0, most));
  }
  if (dtype == DType::QUInt8 || dtype == DType::QInt8 || dtype == DType::QInt32) {
    return quantize_per_tensor(floats, 0.9, dtype == DType::QUInt8 ? 3 : 0, dtype);
  }
  return floats.to(dtype);
}

Tensor in_layout(Tensor x, std::int64_t layout) {
  if (x.dim() == 0 || layout == 0) return x;
  return layout == 1 ? x.transpose(0, -1) : x.slice(-1, 0, x.size(-1), 2);
}

void check_unique(const Tensor& x, const UniqueOptions& options) {
  const UniqueResult got = unique(on_device(x), options);
  const UniqueResult want = unique(x, options);
  check_same_on_device(got.values, want.values);
  check_same_on_device(got.first, want.first);
  check_same_on_device(got.inverse, want.inverse);
  check_same_on_device(got.counts, want.counts);
}

}  // namespace

TEST_CASE("nonzero on a device: rows in the CPU's order for every dtype") {
  Generator generator(101);
  for (int round = 0; round < 54; ++round) {
    Dims sizes;
    const std::int64_t rank = generator.integer(0, 4);
    for (std::int64_t d = 0; d < rank; ++d) sizes.push_back(generator.integer(1, 12));
    CAPTURE(round);
    const Tensor x =
        in_layout(random_elements(sizes, kDTypes[round % kPlain], 3, generator), round % 3);
    check_on_device([](const Tensor& a) { return nonzero(a); }, x);
  }
}

TEST_CASE("nonzero on a device: one tile and many and none") {
  Generator generator(102);
  for (const std::int64_t count : {2047, 2048, 2049, 9000}) {
    CAPTURE(count);
    const Tensor x = random_elements({count}, DType::Float32, 3, generator);
    check_on_device([](const Tensor& a) { return nonzero(a); }, x);
    check_on_device([](const Tensor& a) { return nonzero(a); },
                    Tensor::zeros({count}, DType::UInt8));
    check_on_device([](const Tensor& a) { return nonzero(a); },
                    Tensor::ones({count}, DType::Int16));
  }
  check_on_device([](const Tensor& a) { return nonzero(a); }, Tensor::empty({0, 3}));
  check_on_device([](const Tensor& a) { return nonzero(a); }, Tensor::scalar(2.0));
}

TEST_CASE("nonzero on a device: more tiles than a block of threads adds up together") {
  const test::ScheduleScope schedule(cuda::emulation::Schedule::Greedy, 3);
  const Tensor x = Tensor::zeros({2048 * 2048 + 5 * 2048 + 3}, DType::UInt8);
  auto* const values = x.mutable_data<std::uint8_t>();
  for (std::int64_t i = 7; i < x.numel(); i += 1777 * (1 + i % 40)) values[i] = 1;
  for (std::int64_t i = 2048 * 2048; i < x.numel(); i += 999) values[i] = 1;
  check_on_device([](const Tensor& a) { return nonzero(a); }, x);
}

TEST_CASE("nonzero on a device: the order of threads does not matter") {
  Generator generator(103);
  const Tensor x = random_elements({3, 1000}, DType::Int32, 3, generator);
  for (const std::uint64_t seed : {std::uint64_t{1}, std::uint64_t{2}}) {
    const test::ScheduleScope schedule(cuda::emulation::Schedule::Greedy, seed);
    check_on_device([](const Tensor& a) { return nonzero(a); }, x);
  }
}

TEST_CASE("unique on a device: elements and slices of every dtype") {
  Generator generator(104);
  for (int round = 0; round < 48; ++round) {
    Dims sizes;
    const std::int64_t rank = generator.integer(1, 3);
    for (std::int64_t d = 0; d < rank; ++d) sizes.push_back(generator.integer(1, 7));
    CAPTURE(round);
    const Tensor x =
        in_layout(random_elements(sizes, kDTypes[round % 12], 3, generator), round % 5 % 3);
    for (const bool sorted : {true, false}) {
      check_unique(x, {.sorted = sorted});
      for (std::int64_t d = 0; d < rank; ++d) check_unique(x, {.dim = d, .sorted = sorted});
    }
  }
}

TEST_CASE("unique on a device: thousands of elements and of slices") {
  Generator generator(105);
  const Tensor x = random_elements({5000}, DType::Float32, 900, generator);
  const Tensor rows = random_elements({2300, 3}, DType::Int8, 4, generator);
  for (const bool sorted : {true, false}) {
    check_unique(x, {.sorted = sorted});
    check_unique(Tensor::arange(4100, DType::Int64), {.sorted = sorted});
    check_unique(rows, {.dim = 0, .sorted = sorted});
  }
}

TEST_CASE("unique on a device: nothing and one number and slices of nothing") {
  for (const bool sorted : {true, false}) {
    check_unique(Tensor::empty({0}), {.sorted = sorted});
    check_unique(Tensor::empty({0, 3}), {.dim = 0, .sorted = sorted});
    check_unique(Tensor::empty({3, 0}), {.dim = 0, .sorted = sorted});
    check_unique(Tensor::scalar(3.0), {.sorted = sorted});
  }
}

TEST_CASE("index on a device: masks stand for where they hold") {
  Generator generator(106);
  for (int round = 0; round < 20; ++round) {
    CAPTURE(round);
    const Tensor x = random_elements({4, 6, 5}, kDTypes[round % 12], 60, generator);
    const Tensor mask = random_elements({4, 6}, DType::Bool, 1, generator);
    const Tensor line = random_elements({5}, DType::Bool, 1, generator);
    check_on_device([](const Tensor& a, const Tensor& m) { return index(a, {m}); }, x, mask);
    check_on_device(
        [](const Tensor& a, const Tensor& m) {
          return index(a, {Ellipsis{}, m});
        },
        x, line);
    check_on_device(
        [](const Tensor& a, const Tensor& m) {
          const Tensor to = a.clone();
          index_put_(to, {Slice{}, Slice{1, 6}, m}, 9.0);
          return to;
        },
        x, line);
  }
  test::check_devices({randn({4, 6, 5}, generator)}, 1, [](const std::vector<Tensor>& in) {
    return index(in[0], {gt(in[0].detach(), 0.3)});
  });
}

}  // namespace quanta
