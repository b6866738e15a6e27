// Functions of codes through the floats that they stand for, on a CUDA device: the CPU's codes.

#include <doctest/doctest.h>

#include <limits>

#include "check_same.h"
#include "quanta/ops/arithmetic_quantized.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/random.h"

namespace quanta {
namespace {

QTensor random_codes(const Dims& sizes, DType dtype, Generator& generator) {
  const std::int64_t zero_point =
      dtype == DType::QUInt8 ? generator.integer(0, 255) : generator.integer(-128, 127);
  return quantize_per_tensor(randn(sizes, generator), 0.01 + 0.001 * generator.uniform(),
                             zero_point, dtype);
}

}  // namespace

TEST_CASE("cuda code pairs: quotients, minima and maxima of broadcast codes") {
  Generator generator(71);
  for (int round = 0; round < 24; ++round) {
    const DType dtype = round % 2 == 0 ? DType::QUInt8 : DType::QInt8;
    const Dims sizes{generator.integer(1, 4), generator.integer(1, 48), generator.integer(1, 7)};
    const QTensor lhs = random_codes(sizes, dtype, generator);
    const Dims few = round % 3 == 0 ? Dims{sizes[1], 1} : sizes;
    const QTensor rhs = random_codes(few, dtype, generator);
    CAPTURE(round);
    // A divisor of 0 gives infinity or NaN, and a code that torch fixes.
    test::check_same([&] { return quantized::div(lhs, rhs, 0.05, 7); });
    test::check_same([&] { return quantized::minimum(lhs, rhs, 0.02, 3); });
    test::check_same([&] { return quantized::maximum(rhs, lhs, 0.02, 13); });
    const QTensor turned(lhs.transpose(0, 2));
    test::check_same([&] { return quantized::maximum(turned, turned, 0.03, 1); });
  }
  const QTensor none = random_codes({0, 3}, DType::QUInt8, generator);
  test::check_same([&] { return quantized::div(none, none, 0.05, 7); });
}

TEST_CASE("cuda code pairs: means of codes") {
  Generator generator(72);
  for (const DType dtype : {DType::QUInt8, DType::QInt8}) {
    const QTensor x = random_codes({3, 5, 7, 9}, dtype, generator);
    for (const Dims& dims : {Dims{0}, Dims{1, 3}, Dims{2, 3}, Dims{-1}}) {
      test::check_same([&] { return quantized::mean(x, dims, 0.004, 90); });
    }
  }
}

}  // namespace quanta
