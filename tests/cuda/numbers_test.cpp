#include <doctest/doctest.h>

#include <functional>
#include <limits>
#include <vector>

#include "library_functions.h"
#include "quanta/ops/compare.h"
#include "quanta/ops/elementwise.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/compare.h"
#include "support/test_device.h"

// Functions of one and of two numbers of any dtype.

namespace quanta {
namespace {

constexpr DType kIntegers[] = {DType::UInt8,  DType::Int8,  DType::Int16,
                               DType::UInt16, DType::Int32, DType::Int64};

/// Numbers of every size that the dtype has, small ones and both ends among them.
Tensor numbers(const Dims& sizes, DType dtype, Generator& generator) {
  if (dtype == DType::Bool) return gt(randn(sizes, generator), 0.2);
  if (is_floating_point(dtype)) {
    const Tensor x = randn(sizes, generator);
    auto* values = x.mutable_data<float>();
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    const float edges[] = {0.0F,      -0.0F,      2.0F, 3.0F,  -2.0F,
                           kInfinity, -kInfinity, kNan, 1e30F, 0.5F};
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      values[i] *= i % 2 == 0 ? 1.0F : 12.0F;
      if (generator.integer(0, 3) == 0) values[i] = edges[generator.integer(0, 9)];
    }
    return x.to(dtype);
  }
  const Tensor whole = Tensor::zeros(sizes, DType::Int64);
  auto* values = whole.mutable_data<std::int64_t>();
  for (std::int64_t i = 0; i < whole.numel(); ++i) {
    values[i] = i % 3 == 0 ? generator.integer(-3, 9) : std::int64_t{1} << generator.integer(0, 63);
    if (i % 5 == 0) values[i] = -values[i] - 1;
  }
  return whole.to(dtype);
}

using Unary = std::function<Tensor(const Tensor&)>;
using Binary = std::function<Tensor(const Tensor&, const Tensor&)>;

// `units`: see library_functions.h.
void check_unary(const Unary& call, const Tensor& x, int units = 0) {
  const Tensor want = call(x);
  const Tensor got = call(x.to(test::test_device()));
  CAPTURE(to_string(x.dtype()));
  CHECK(got.dtype() == want.dtype());
  CHECK(got.strides() == want.strides());
  test::check_units(got.cpu(), want, units);
  if (!is_floating_point(x.dtype())) CHECK(got.cpu().equal(want));
}

void check_binary(const Binary& call, const Tensor& lhs, const Tensor& rhs, int units = 0) {
  const Device device = test::test_device();
  const Tensor want = call(lhs, rhs);
  const Tensor got = call(lhs.to(device), rhs.to(device));
  CAPTURE(to_string(lhs.dtype()));
  CAPTURE(rhs.sizes());
  CHECK(got.dtype() == want.dtype());
  CHECK(got.strides() == want.strides());
  test::check_units(got.cpu(), want, units);
  if (!is_floating_point(lhs.dtype())) CHECK(got.cpu().equal(want));
}

void check_everywhere(const Binary& call, DType dtype, Generator& generator, int units = 0) {
  const Tensor lhs = numbers({2, 3, 7, 5}, dtype, generator);
  check_binary(call, lhs, numbers({2, 3, 7, 5}, dtype, generator), units);
  check_binary(call, lhs, numbers({3, 1, 5}, dtype, generator), units);
  check_binary(call, lhs, numbers({}, dtype, generator), units);
  check_binary(call, numbers({7, 1}, dtype, generator), lhs.contiguous(MemoryFormat::ChannelsLast),
               units);
  check_binary(call, lhs.permute({0, 2, 1, 3}), numbers({7, 3, 5}, dtype, generator), units);
  check_binary(call, lhs.narrow(3, 1, 3), lhs.narrow(3, 2, 3), units);
  check_binary(call, Tensor::zeros({0, 4}).to(dtype), Tensor::zeros({4}).to(dtype), units);
}

}  // namespace

TEST_CASE("cuda numbers: functions of one number") {
  Generator generator(61);
  const auto check_all = [&](const Unary& call, DType dtype) {
    const Tensor x = numbers({2, 5, 6, 7}, dtype, generator);
    for (const Tensor& each : {x, x.contiguous(MemoryFormat::ChannelsLast), x.narrow(2, 1, 3),
                               numbers({}, dtype, generator), Tensor::zeros({3, 0}).to(dtype)}) {
      check_unary(call, each);
    }
  };
  for (const DType dtype : kIntegers) {
    for (const Unary& call : {Unary(neg), Unary(abs), Unary(sign), Unary(bitwise_not)}) {
      check_all(call, dtype);
    }
    check_all(logical_not, dtype);
  }
  check_all(bitwise_not, DType::Bool);
  check_all(logical_not, DType::Bool);
  for (const DType dtype : {DType::Float32, DType::Float64}) {
    for (const Unary& call :
         {Unary(neg), Unary(abs), Unary(sign), Unary(logical_not), Unary(isnan)}) {
      check_all(call, dtype);
    }
    for (const InfinitySigns signs : {InfinitySigns::Both, InfinitySigns::Positive,
                                      InfinitySigns::Negative, InfinitySigns::None}) {
      check_all([&](const Tensor& x) { return isinf(x, signs); }, dtype);
    }
  }
}

TEST_CASE("cuda numbers: functions of two integers wrap around as on the CPU") {
  Generator generator(62);
  for (const DType dtype : kIntegers) {
    for (const Binary& call :
         {Binary([](const Tensor&a, const Tensor&b) { return pow(a, b); }), Binary(maximum),
          Binary(minimum), Binary(fmod), Binary(remainder), Binary(div_trunc), Binary(bitwise_and),
          Binary(bitwise_or), Binary(bitwise_xor), Binary(bitwise_left_shift),
          Binary(bitwise_right_shift)}) {
      check_everywhere(call, dtype, generator);
    }
  }
  for (const Binary& call : {Binary(bitwise_and), Binary(bitwise_or), Binary(bitwise_xor)}) {
    check_everywhere(call, DType::Bool, generator);
  }
}

TEST_CASE("cuda numbers: functions of two floats") {
  Generator generator(63);
  for (const DType dtype : {DType::Float32, DType::Float64}) {
    for (const Binary& call : {Binary(maximum), Binary(minimum), Binary(fmod), Binary(remainder)}) {
      check_everywhere(call, dtype, generator);
    }
  }
  check_everywhere([](const Tensor& a, const Tensor& b) { return pow(a, b); }, DType::Float32,
                   generator, 1);
  for (const double exponent : {2.0, 3.0, -1.0, 0.5}) {
    check_unary([&](const Tensor& x) { return pow(x, exponent); },
                numbers({3, 100}, DType::Float32, generator), 1);
  }
}

TEST_CASE("cuda numbers: powers of doubles are refused by name") {
  const Tensor x = Tensor::zeros({3}, DType::Float64).to(test::test_device());
  test::fails({"pow", "Float64", "cuda"}, [&] { pow(x, x); });
}

}  // namespace quanta
