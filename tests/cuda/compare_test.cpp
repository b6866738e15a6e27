#include "quanta/ops/compare.h"

#include <doctest/doctest.h>

#include <array>
#include <limits>

#include "quanta/ops/activation.h"
#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/catalogue.h"
#include "quanta/runtime/random.h"
#include "support/on_device.h"
#include "support/tensors.h"

// Comparisons and choices on the device, as on the CPU.

namespace quanta {
namespace {

using test::check_on_device;

constexpr std::array<Tensor (*)(const Tensor&, const Tensor&), 6> kOfTensors{eq, ne, lt,
                                                                             le, gt, ge};
constexpr std::array<Tensor (*)(const Tensor&, double), 6> kOfNumbers{eq, ne, lt, le, gt, ge};

DType random_dtype(Generator& generator) {
  return dtypes::kEvery[static_cast<std::size_t>(
      generator.integer(0, static_cast<std::int64_t>(dtypes::kEvery.size()) - 1))];
}

// Values near each other, so that many are equal.
Tensor numbers(const Dims& sizes, DType dtype, std::uint64_t seed) {
  Generator generator(seed);
  Tensor x = Tensor::empty(sizes);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    x.mutable_data<float>()[i] = 0.5F * static_cast<float>(generator.integer(-4, 4));
  }
  if (!is_quantized(dtype)) return x.to(dtype);
  return quantize_per_tensor(x, seed % 2 == 0 ? 0.5 : 0.25, 2, dtype);
}

}  // namespace

TEST_CASE("cuda compare: two tensors of any dtypes, broadcast and not") {
  Generator generator(31);
  for (int round = 0; round < 150; ++round) {
    const DType dtype = random_dtype(generator);
    const DType other = generator.integer(0, 1) == 0 ? dtype : random_dtype(generator);
    const auto seed = static_cast<std::uint64_t>(generator.integer(1, 2));
    Tensor lhs = numbers({2, 3, 5, 4}, dtype, seed);
    const Dims sizes = std::array{Dims{2, 3, 5, 4}, Dims{3, 1, 4}, Dims{1},
                                  Dims{5, 4}}[static_cast<std::size_t>(generator.integer(0, 3))];
    const Tensor rhs = numbers(sizes, other, generator.integer(0, 1) == 0 ? seed : 3 - seed);
    if (!is_sub_byte(dtype) && generator.integer(0, 1) == 0) {
      lhs = lhs.contiguous(MemoryFormat::ChannelsLast);
    }
    CAPTURE(dtype);
    CAPTURE(other);
    CAPTURE(sizes);
    const auto compare = kOfTensors[static_cast<std::size_t>(round % 6)];
    check_on_device(compare, lhs, rhs);
    check_on_device(compare, rhs, lhs);
    if (is_sub_byte(dtype)) continue;
    check_on_device([&](const Tensor& a,
                        const Tensor& b) { return compare(a.transpose(1, 2), b.transpose(0, 1)); },
                    lhs, numbers({4, 3}, DType::Float32, seed));
  }
}

TEST_CASE("cuda compare: a tensor and a number") {
  Generator generator(32);
  for (const DType dtype : dtypes::kEvery) {
    for (const double number : {0.0, 1.0, -0.5, 0.3, 1e30, 16777217.0}) {
      CAPTURE(dtype);
      CAPTURE(number);
      const Tensor x = numbers({3, 7, 2}, dtype, 5);
      for (const auto compare : kOfNumbers) {
        check_on_device([&](const Tensor& given) { return compare(given, number); }, x);
      }
    }
  }
}

TEST_CASE("cuda compare: integers beyond what floats hold, and those that floats round") {
  const std::array<std::int64_t, 4> values{9007199254740993, 9007199254740992, -1, 16777217};
  const Tensor x = Tensor::from_int64(values);
  check_on_device([](const Tensor& a) { return eq(a, a.select(0, 1)); }, x);
  check_on_device([](const Tensor& a) { return gt(a, a.select(0, 1)); }, x);
  check_on_device([](const Tensor& a) { return eq(a, 16777216.5); }, x);
  check_on_device([](const Tensor& a) { return eq(a, 16777217.0); }, x);
  check_on_device([](const Tensor& a, const Tensor& b) { return eq(a, b); }, x,
                  Tensor::scalar(16777216.0));
  // As Float32 both are 0.1.
  check_on_device([](const Tensor& a) { return eq(a, 0.1); }, Tensor::scalar(0.1F));
}

TEST_CASE("cuda compare: NaN is equal to nothing") {
  const Tensor x = test::random_tensor({5});
  x.mutable_data<float>()[2] = std::numeric_limits<float>::quiet_NaN();
  x.mutable_data<float>()[3] = std::numeric_limits<float>::infinity();
  for (const auto compare : kOfTensors) {
    check_on_device([&](const Tensor& a) { return compare(a, a); }, x);
  }
}

TEST_CASE("cuda compare: where takes elements of any width from either") {
  Generator generator(33);
  for (int round = 0; round < 60; ++round) {
    const DType dtype =
        dtypes::kWholeBytes[static_cast<std::size_t>(round) % dtypes::kWholeBytes.size()];
    const auto pick = [&](const Dims& sizes) {
      Dims picked = sizes;
      while (!picked.empty() && generator.integer(0, 3) == 0) picked.erase(0);
      for (std::int64_t& size : picked) {
        if (generator.integer(0, 3) == 0) size = 1;
      }
      return picked;
    };
    const Dims sizes{2, 3, 4, 5};
    Tensor x = sample_tensor(pick(sizes), dtype, 1);
    if (x.dim() == 4) x = x.contiguous(MemoryFormat::ChannelsLast);
    const Tensor y = sample_tensor(pick(sizes), dtype, 2);
    const Tensor condition = lt(sample_tensor(pick(sizes), DType::Float32, 3), 0.2);
    CAPTURE(x.sizes());
    CAPTURE(y.sizes());
    CAPTURE(condition.sizes());
    check_on_device(
        [](const Tensor& a, const Tensor& b, const Tensor& c) { return where(c, a, b); }, x, y,
        condition);
  }
}

TEST_CASE("cuda compare: dropout draws the CPU's numbers and leaves codes alone") {
  const Tensor x = test::random_tensor({4, 9});
  manual_seed(3);
  const Tensor expected = dropout(x, 0.4);
  manual_seed(3);
  test::check_same_on_device(dropout(test::on_device(x), 0.4), expected);
  const QTensor codes = quantize_per_tensor(x, 0.02, 100, DType::QUInt8);
  const QTensor there(test::on_device(codes));
  test::check_same_on_device(quantized::dropout(there, 0.4), codes);
}

}  // namespace quanta
