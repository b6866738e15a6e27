#include <doctest/doctest.h>

#include <vector>

#include "cuda/check_same.h"
#include "quanta/ops/integer.h"
#include "quanta/ops/matmul.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/cuda/emulation.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/test_device.h"

// Products of two tensors of codes or bytes: on the device as on the CPU, to the last bit.

namespace quanta {
namespace {

using cuda::emulation::Schedule;
using test::check_same;

const Device kDevice = test::test_device();

Tensor random_bytes(const Dims& sizes, DType dtype, Generator& generator) {
  const Tensor bytes = Tensor::empty(sizes, DType::Int32);
  const std::int64_t low = dtype == DType::Int8 ? -128 : 0;
  for (std::int64_t i = 0; i < bytes.numel(); ++i) {
    bytes.mutable_data<std::int32_t>()[i] =
        static_cast<std::int32_t>(generator.integer(low, low + 255));
  }
  return bytes.to(dtype);
}

DType random_dtype(Generator& generator) {
  return generator.integer(0, 1) == 0 ? DType::UInt8 : DType::Int8;
}

// None, one number, or `count` of them.
Tensor random_zero(DType dtype, std::int64_t count, Generator& generator) {
  const std::int64_t kind = generator.integer(0, 2);
  if (kind == 0) return {};
  return kind == 1 ? random_bytes({}, dtype, generator) : random_bytes({count}, dtype, generator);
}

// Two operands of a product: batches that fit, one matrix for all of a batch, vectors.
struct Operands {
  Dims left, right;
  std::int64_t rows, depth, columns;

  explicit Operands(Generator& generator) {
    rows = generator.integer(1, 70);
    depth = generator.integer(1, 100);
    columns = generator.integer(1, 80);
    const Dims matrix_left{rows, depth};
    const Dims matrix_right{depth, columns};
    const auto with_batch = [](Dims batch, const Dims& matrix) {
      for (const std::int64_t size : matrix) batch.push_back(size);
      return batch;
    };
    const std::vector<std::vector<Dims>> batches{
        {{}, {}}, {{3}, {3}}, {{3}, {}}, {{}, {3}}, {{2, 3}, {3}}, {{2, 1}, {3}}, {{2, 1}, {2, 2}}};
    const auto& batch = batches[static_cast<std::size_t>(
        generator.integer(0, static_cast<std::int64_t>(batches.size()) - 1))];
    left = with_batch(batch[0], matrix_left);
    right = with_batch(batch[1], matrix_right);
    const std::int64_t vectors = generator.integer(0, 7);
    if (vectors == 0) left = Dims{depth};
    if (vectors == 1) right = Dims{depth};
    if (vectors == 0) rows = 1;
    if (vectors == 1) columns = 1;
  }
};

// The same elements with the last two dimensions the other way round in memory.
Tensor maybe_turned(const Tensor& x, Generator& generator) {
  if (x.dim() < 2 || generator.integer(0, 1) == 0) return x;
  return x.transpose(-1, -2).contiguous().transpose(-1, -2);
}

}  // namespace

TEST_CASE("cuda byte products: matmul_integer of any bytes and zero points") {
  Generator generator(61);
  for (int round = 0; round < 60; ++round) {
    CAPTURE(round);
    const Operands sizes(generator);
    const DType left = random_dtype(generator);
    const DType right = random_dtype(generator);
    const Tensor a = maybe_turned(random_bytes(sizes.left, left, generator), generator);
    const Tensor b = maybe_turned(random_bytes(sizes.right, right, generator), generator);
    const Tensor a_zero = random_zero(left, sizes.rows, generator);
    const Tensor b_zero = random_zero(right, sizes.columns, generator);
    cuda::emulation::set_schedule(round % 2 == 0 ? Schedule::Lockstep : Schedule::Greedy,
                                  static_cast<std::uint64_t>(round));
    check_same([&] { return matmul_integer(a, b, a_zero, b_zero); });
  }
  cuda::emulation::set_schedule(Schedule::Lockstep, 0);
}

TEST_CASE("cuda byte products: matmul of codes of any kind") {
  Generator generator(62);
  for (int round = 0; round < 40; ++round) {
    CAPTURE(round);
    const Operands sizes(generator);
    const auto codes = [&](const Dims& of, DType dtype) {
      const std::int64_t low = dtype == DType::QInt8 ? -128 : 0;
      const QTensor x =
          quantize_per_tensor(randn(of, generator), 0.02, generator.integer(low, low + 255), dtype);
      return QTensor(maybe_turned(x, generator));
    };
    const QTensor a = codes(sizes.left, DType::QUInt8);
    const QTensor b = codes(sizes.right, DType::QUInt8);
    check_same([&] { return quantized::matmul(a, b, 0.03, 70); });
    check_same([&] { return quantized::matmul_exact(a, b, 0.03, 70); });
    check_same([&] { return quantized::matmul_to_float(a, b); });
    const QTensor c = codes(sizes.left, DType::QInt8);
    const QTensor d = codes(sizes.right, DType::QInt8);
    check_same([&] { return quantized::matmul(c, d, 0.02, -70); });
  }
  const QTensor a = quantize_per_tensor(randn({4, 33, 20}, generator), 0.02, 3, DType::QUInt8);
  const QTensor b = quantize_per_tensor(randn({4, 20, 9}, generator), 0.02, 200, DType::QUInt8);
  check_same([&] { return quantized::bmm(a, b, 0.05, 9); });
}

TEST_CASE("cuda byte products: sums that wrap are the CPU's") {
  const Tensor a = Tensor::full({2, 40000}, 255.0, DType::UInt8);
  const Tensor b = Tensor::full({40000, 3}, 255.0, DType::UInt8);
  check_same([&] { return matmul_integer(a, b); });
}

TEST_CASE("cuda byte products: conv_integer of any kind") {
  Generator generator(63);
  for (int round = 0; round < 60; ++round) {
    CAPTURE(round);
    const std::int64_t spatial = generator.integer(1, 3);
    const std::int64_t groups = generator.integer(0, 2) == 0 ? generator.integer(2, 4) : 1;
    const std::int64_t in = groups * generator.integer(1, groups == 1 ? 40 : 6);
    const std::int64_t out = groups * generator.integer(1, groups == 1 ? 40 : 6);
    Dims sizes{generator.integer(1, 2), in};
    Dims weight_sizes{out, in / groups};
    ConvIntegerOptions options;
    options.groups = groups;
    options.stride = {};
    options.dilation = {};
    for (std::int64_t d = 0; d < spatial; ++d) {
      sizes.push_back(generator.integer(5, spatial == 3 ? 6 : 9));
      weight_sizes.push_back(generator.integer(1, 3));
      options.stride.push_back(generator.integer(1, 2));
      options.dilation.push_back(generator.integer(1, 2));
    }
    if (generator.integer(0, 2) > 0) {
      for (std::int64_t d = 0; d < 2 * spatial; ++d) {
        options.pads.push_back(generator.integer(0, 2));
      }
    }
    const DType left = random_dtype(generator);
    const DType right = random_dtype(generator);
    const Tensor x = random_bytes(sizes, left, generator);
    const Tensor weight = random_bytes(weight_sizes, right, generator);
    const Tensor x_zero = random_zero(left, 1, generator);
    const Tensor weight_zero = random_zero(right, out, generator);
    check_same([&] { return conv_integer(x, weight, x_zero, weight_zero, options); });
  }
}

TEST_CASE("cuda byte products: nothing to multiply and what is refused") {
  const Tensor a = Tensor::zeros({2, 0}, DType::UInt8);
  const Tensor b = Tensor::zeros({0, 3}, DType::UInt8);
  check_same([&] { return matmul_integer(a, b); });
  Generator generator(64);
  const QTensor x = quantize_per_tensor(randn({2, 0}, generator), 0.02, 3, DType::QUInt8);
  const QTensor y = quantize_per_tensor(randn({0, 3}, generator), 0.02, 3, DType::QUInt8);
  check_same([&] { return quantized::matmul(x, y, 0.05, 77); });
  check_same([&] { return quantized::matmul_exact(x, y, 0.05, 77); });
  check_same([&] { return quantized::matmul_to_float(x, y); });
  const QTensor deep = quantize_per_tensor(Tensor::zeros({1, 40000}), 0.1, 3, DType::QUInt8);
  const QTensor tall = quantize_per_tensor(Tensor::zeros({40000, 1}), 0.1, 3, DType::QUInt8);
  CHECK_THROWS_WITH_AS(
      quantized::matmul(QTensor(deep.to(kDevice)), QTensor(tall.to(kDevice)), 0.1, 3),
      doctest::Contains("expected at most 33025 columns on a CUDA device, got 40000"),
      UnsupportedError);
  CHECK_THROWS_AS(matmul_integer(a.to(kDevice), b), ArgumentError);
}

}  // namespace quanta
