#include "quanta/ops/shape.h"

#include <doctest/doctest.h>

#include <array>
#include <limits>
#include <vector>

#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/pad.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/catalogue.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/on_device.h"
#include "support/tensors.h"
#include "support/test_device.h"

// Elements that only change their places: on the device as on the CPU.

namespace quanta {
namespace {

using test::check_on_device;
using test::on_device;

Dims random_sizes(Generator& generator, std::int64_t rank) {
  Dims sizes;
  for (std::int64_t d = 0; d < rank; ++d) sizes.push_back(generator.integer(1, 6));
  return sizes;
}

DType random_dtype(Generator& generator) {
  return dtypes::kWholeBytes[static_cast<std::size_t>(
      generator.integer(0, static_cast<std::int64_t>(dtypes::kWholeBytes.size()) - 1))];
}

}  // namespace

TEST_CASE("cuda shape: constant padding and cutting in any dimensions of any dtype") {
  Generator generator(1);
  for (int round = 0; round < 60; ++round) {
    const std::int64_t rank = generator.integer(1, 5);
    Tensor x = sample_tensor(random_sizes(generator, rank), random_dtype(generator));
    if (rank == 4 && generator.integer(0, 1) == 0) x = x.contiguous(MemoryFormat::ChannelsLast);
    Dims widths;
    for (std::int64_t i = 0; i < generator.integer(0, rank); ++i) {
      const std::int64_t size = x.size(rank - 1 - i);
      const std::int64_t cut = generator.integer(0, size);
      widths.push_back(generator.integer(0, 3) == 0 ? -cut : generator.integer(0, 3));
      widths.push_back(generator.integer(0, 3) == 0 ? -(widths.back() < 0 ? size - cut : size)
                                                    : generator.integer(0, 3));
    }
    const double value = static_cast<double>(generator.integer(0, 5)) - 2.5;
    CAPTURE(x.sizes());
    CAPTURE(widths);
    CAPTURE(x.dtype());
    check_on_device(
        [&](const Tensor& given) { return pad(given, widths, PadMode::Constant, value); }, x);
  }
}

TEST_CASE("cuda shape: padding with elements of the tensor in one to three dimensions") {
  Generator generator(2);
  for (int round = 0; round < 60; ++round) {
    const std::int64_t spatial = generator.integer(1, 3);
    const bool has_batch = generator.integer(0, 3) > 0;
    Dims sizes{generator.integer(1, 40)};
    if (has_batch) sizes.insert(0, generator.integer(1, 3));
    for (std::int64_t d = 0; d < spatial; ++d) sizes.push_back(generator.integer(4, 7));
    Tensor x = sample_tensor(sizes, random_dtype(generator));
    if (has_batch && generator.integer(0, 1) == 0) x = x.contiguous(MemoryFormat::ChannelsLast);
    Dims widths;
    for (std::int64_t i = 0; i < 2 * spatial; ++i) widths.push_back(generator.integer(-2, 3));
    for (const PadMode mode : {PadMode::Reflect, PadMode::Replicate, PadMode::Circular}) {
      CAPTURE(sizes);
      CAPTURE(widths);
      check_on_device([&](const Tensor& given) { return pad(given, widths, mode); }, x);
    }
  }
}

TEST_CASE("cuda shape: codes are padded with that of the value") {
  const Tensor x = quantize_per_tensor(test::random_tensor({2, 3, 4}), 0.05, 77, DType::QUInt8);
  const auto call = [](const Tensor& given) { return pad(given, {1, 2}, PadMode::Constant, 0.5); };
  check_on_device(call, x);
  CHECK(call(on_device(x)).to_int64_vector().front() == 87);
  // The memory of an 8-byte element and of NaN is written as it is.
  check_on_device(
      [](const Tensor& given) {
        return pad(given, {3, 1}, PadMode::Constant, std::numeric_limits<double>::quiet_NaN());
      },
      test::random_tensor({3, 5}).to(DType::Float64));
}

TEST_CASE("cuda shape: flip turns dimensions round") {
  Generator generator(3);
  for (int round = 0; round < 40; ++round) {
    const std::int64_t rank = generator.integer(0, 5);
    Tensor x = sample_tensor(random_sizes(generator, rank), random_dtype(generator));
    if (rank == 4 && generator.integer(0, 1) == 0) x = x.contiguous(MemoryFormat::ChannelsLast);
    Dims dims;
    for (std::int64_t d = 0; d < rank; ++d) {
      if (generator.integer(0, 1) == 0) dims.push_back(generator.integer(0, 1) == 0 ? d : d - rank);
    }
    CAPTURE(x.sizes());
    CAPTURE(dims);
    check_on_device([&](const Tensor& given) { return flip(given, dims); }, x);
    if (rank < 2) continue;
    check_on_device([&](const Tensor& given) { return flip(given.transpose(0, rank - 1), dims); },
                    x);
  }
}

TEST_CASE("cuda shape: repeat copies over and over with more dimensions than before") {
  Generator generator(4);
  for (int round = 0; round < 40; ++round) {
    const std::int64_t rank = generator.integer(0, 4);
    const Tensor x = sample_tensor(random_sizes(generator, rank), random_dtype(generator));
    Dims repeats;
    for (std::int64_t d = 0; d < rank + generator.integer(0, 2); ++d) {
      repeats.push_back(generator.integer(1, 3));
    }
    while (static_cast<std::int64_t>(repeats.size()) < rank) repeats.push_back(1);
    CAPTURE(x.sizes());
    CAPTURE(repeats);
    check_on_device([&](const Tensor& given) { return repeat(given, repeats); }, x);
    if (rank < 2) continue;
    check_on_device([&](const Tensor& given) { return repeat(given.transpose(0, 1), repeats); }, x);
  }
  check_on_device(
      [](const Tensor& given) {
        return repeat(given, {2, 0});
      },
      test::random_tensor({3, 4}));
}

TEST_CASE("cuda shape: elements that lie together move sixteen bytes at a time where they may") {
  // Addresses and strides that are no multiples of 16, 8, 4 and 2 bytes.
  for (const std::int64_t row : {48, 49, 50, 52, 56}) {
    const Tensor x = sample_tensor({5, row}, DType::QUInt8);
    for (const std::int64_t start : {0, 1, 2, 4, 8, 16}) {
      for (const std::int64_t length : {16, 24, 28, 30, 31}) {
        check_on_device(
            [&](const Tensor& given) {
              return pad(given.narrow(1, start, length), {0, 0, 1, 2}, PadMode::Constant, 1.0);
            },
            x);
        check_on_device(
            [&](const Tensor& given) { return flip(given.narrow(1, start, length), {0}); }, x);
      }
    }
  }
}

TEST_CASE("cuda shape: triangles of matrices") {
  Generator generator(5);
  for (int round = 0; round < 40; ++round) {
    const Dims sizes{generator.integer(1, 3), generator.integer(1, 7), generator.integer(1, 7)};
    const Tensor x = sample_tensor(sizes, random_dtype(generator));
    const std::int64_t diagonal = generator.integer(-9, 9);
    CAPTURE(sizes);
    CAPTURE(diagonal);
    check_on_device([&](const Tensor& given) { return triu(given, diagonal); }, x);
    check_on_device([&](const Tensor& given) { return tril(given, diagonal); }, x);
    check_on_device([&](const Tensor& given) { return tril(given.transpose(1, 2), diagonal); }, x);
  }
  check_on_device(
      [](const Tensor& given) { return triu(given, std::numeric_limits<std::int64_t>::min()); },
      test::random_tensor({3, 4}));
}

TEST_CASE("cuda shape: sequences in reverse up to their lengths") {
  Generator generator(6);
  for (int round = 0; round < 30; ++round) {
    const std::int64_t rank = generator.integer(2, 4);
    const Dims sizes = random_sizes(generator, rank);
    const std::int64_t time = generator.integer(0, rank - 1);
    const std::int64_t batch = (time + generator.integer(1, rank - 1)) % rank;
    const Tensor x = sample_tensor(sizes, random_dtype(generator));
    std::vector<std::int64_t> numbers;
    for (std::int64_t b = 0; b < sizes[static_cast<std::size_t>(batch)]; ++b) {
      numbers.push_back(generator.integer(0, sizes[static_cast<std::size_t>(time)]));
    }
    Tensor lengths = Tensor::from_int64(numbers);
    if (generator.integer(0, 1) == 0) lengths = lengths.to(DType::Int32);
    CAPTURE(sizes);
    check_on_device(
        [&](const Tensor& given, const Tensor& until) {
          return reverse_sequence(given, until, time, batch);
        },
        x, lengths);
  }
  const Tensor x = on_device(test::random_tensor({4, 2}));
  CHECK_THROWS_WITH_AS(reverse_sequence(x, on_device(test::indices({5, 1}))),
                       doctest::Contains("lengths: expected 0..4, got 5"), ArgumentError);
}

TEST_CASE("cuda shape: tensors are taken apart and put together") {
  for (const DType dtype : {DType::Float32, DType::Int64, DType::QUInt8, DType::BFloat16}) {
    const Tensor x = sample_tensor({2, 5, 6}, dtype);
    const Tensor there = on_device(x);
    const auto check_parts = [](const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
      REQUIRE(got.size() == want.size());
      for (std::size_t i = 0; i < got.size(); ++i) test::check_same_on_device(got[i], want[i]);
    };
    check_parts(chunk(there, 3, 1), chunk(x, 3, 1));
    check_parts(split(there, 4, 2), split(x, 4, 2));
    check_parts(split_with_sizes(there, {1, 0, 4}, 1), split_with_sizes(x, {1, 0, 4}, 1));
    check_parts(unbind(there, 1), unbind(x, 1));
    check_on_device([](const Tensor& given) { return unfold(given, 1, 3, 2).contiguous(); }, x);
    check_on_device(
        [](const Tensor& a, const Tensor& b) {
          return stack(std::array<Tensor, 3>{a, b, a}, 2);
        },
        x, sample_tensor({2, 5, 6}, dtype, 2));
  }
}

TEST_CASE("cuda shape: resize_ keeps the first elements") {
  const Tensor x = test::iota({2, 3});
  const Tensor there = on_device(x);
  resize_(there, {2, 2});
  CHECK(there.to_float_vector() == std::vector<float>{0.0F, 1.0F, 2.0F, 3.0F});
  resize_(there, {4, 5});
  CHECK(there.device() == test::test_device());
  const std::vector<float> values = there.to_float_vector();
  for (std::size_t i = 0; i < 6; ++i) CHECK(values[i] == static_cast<float>(i));
}

TEST_CASE("cuda shape: stacked codes of 32 bits are refused by name") {
  const Tensor x = on_device(sample_tensor({2, 3}, DType::QInt32));
  CHECK_THROWS_AS(stack(std::array<Tensor, 2>{x, x}), UnsupportedError);
}

}  // namespace quanta
