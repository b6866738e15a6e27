#include "quanta/ops/reduce.h"

#include <doctest/doctest.h>

#include <array>
#include <limits>

#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/catalogue.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/on_device.h"
#include "support/tensors.h"

// Reductions on the device: the CPU's numbers to the last bit, in any order of memory.

namespace quanta {
namespace {

using test::check_on_device;
using test::check_same_on_device;
using test::on_device;

template <std::size_t kCount>
DType pick(Generator& generator, const std::array<DType, kCount>& dtypes) {
  return dtypes[static_cast<std::size_t>(
      generator.integer(0, static_cast<std::int64_t>(kCount) - 1))];
}

// Few different numbers, NaN and zeros of both signs among the floats now and then; any strides.
Tensor random_input(Generator& generator, DType dtype, std::int64_t rank) {
  Dims sizes;
  for (std::int64_t d = 0; d < rank; ++d) {
    sizes.push_back(generator.integer(0, 3) == 0 ? generator.integer(17, 90)
                                                 : generator.integer(1, 4));
  }
  Tensor x = sample_tensor(sizes, dtype, static_cast<std::uint64_t>(generator.integer(1, 99)));
  if (dtype == DType::Float32 && x.numel() > 4) {
    float* const values = x.mutable_data<float>();
    const auto place = [&] { return generator.integer(0, x.numel() - 1); };
    for (int i = 0; i < 3; ++i) values[place()] = values[place()];
    values[place()] = 0.0F;
    values[place()] = -0.0F;
    if (generator.integer(0, 3) == 0) values[place()] = std::numeric_limits<float>::infinity();
    if (generator.integer(0, 3) == 0) values[place()] = std::numeric_limits<float>::quiet_NaN();
    if (generator.integer(0, 7) == 0) values[place()] = std::numeric_limits<float>::quiet_NaN();
  }
  if (rank == 4 && generator.integer(0, 1) == 0) x = x.contiguous(MemoryFormat::ChannelsLast);
  return x;
}

Dims random_dims(Generator& generator, std::int64_t rank) {
  Dims dims;
  for (std::int64_t d = 0; d < rank; ++d) {
    if (generator.integer(0, 1) == 0) dims.push_back(generator.integer(0, 1) == 0 ? d : d - rank);
  }
  return dims;
}

template <typename Call>
void check_pair(const Call& call, const Tensor& x) {
  const ValuesIndices got = call(on_device(x));
  const ValuesIndices expected = call(x);
  check_same_on_device(got.values, expected.values);
  check_same_on_device(got.indices, expected.indices);
}

}  // namespace

TEST_CASE("cuda reduce: extremes along a dimension with the positions of the first ones") {
  Generator generator(41);
  for (int round = 0; round < 120; ++round) {
    const std::int64_t rank = generator.integer(1, 4);
    const DType dtype = pick(generator, dtypes::kOrdered);
    const Tensor x = random_input(generator, dtype, rank);
    const std::int64_t dim = generator.integer(-rank, rank - 1);
    const ReduceOptions options{.keepdim = generator.integer(0, 1) == 0};
    CAPTURE(x.sizes());
    CAPTURE(dim);
    CAPTURE(dtype);
    check_pair([&](const Tensor& given) { return max(given, dim, options); }, x);
    check_pair([&](const Tensor& given) { return min(given, dim, options); }, x);
    if (rank > 1) {
      check_pair([&](const Tensor& given) { return max(given.transpose(0, 1), dim, options); }, x);
    }
    if (is_quantized(dtype)) continue;
    check_on_device([&](const Tensor& given) { return argmax(given, dim, options); }, x);
    check_on_device([&](const Tensor& given) { return argmin(given, dim, options); }, x);
    check_on_device([](const Tensor& given) { return argmax(given); }, x);
    check_on_device([](const Tensor& given) { return argmin(given); }, x);
  }
}

TEST_CASE("cuda reduce: extremes of all elements and over dimensions") {
  Generator generator(42);
  for (int round = 0; round < 80; ++round) {
    const std::int64_t rank = generator.integer(1, 4);
    const DType dtype = pick(generator, dtypes::kOrdered);
    const Tensor x = random_input(generator, dtype, rank);
    const Dims dims = random_dims(generator, rank);
    const ReduceOptions options{.keepdim = generator.integer(0, 1) == 0};
    CAPTURE(x.sizes());
    CAPTURE(dims);
    CAPTURE(dtype);
    check_on_device([](const Tensor& given) { return max(given); }, x);
    check_on_device([](const Tensor& given) { return min(given); }, x);
    if (is_quantized(dtype)) continue;
    check_on_device([&](const Tensor& given) { return amax(given, dims, options); }, x);
    check_on_device([&](const Tensor& given) { return amin(given, dims, options); }, x);
  }
}

TEST_CASE("cuda reduce: extremes of rows that several warps share") {
  for (const std::int64_t rows : {1, 3}) {
    const Tensor x = test::random_tensor({rows, 9001}, 5);
    float* const values = x.mutable_data<float>();
    values[8999] = 100.0F;  // twice, in parts of their own
    values[17] = 100.0F;
    values[4096] = -100.0F;
    check_pair([](const Tensor& given) { return max(given, 1); }, x);
    check_pair([](const Tensor& given) { return min(given, 1); }, x);
    check_on_device([](const Tensor& given) { return amax(given); }, x);
    values[9000] = std::numeric_limits<float>::quiet_NaN();
    values[5000] = std::numeric_limits<float>::quiet_NaN();
    check_pair([](const Tensor& given) { return max(given, 1); }, x);
    check_on_device([](const Tensor& given) { return argmin(given); }, x);
  }
  check_on_device([](const Tensor& given) { return argmax(given); },
                  sample_tensor({8200}, DType::Int64));
}

TEST_CASE("cuda reduce: of zeros of both signs the first or the last is taken, as on the CPU") {
  Generator generator(46);
  for (const Dims& sizes : {Dims{1, 40}, Dims{40, 1}, Dims{5, 40}, Dims{40, 5}}) {
    const Tensor x = Tensor::empty(sizes);
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      x.mutable_data<float>()[i] = generator.integer(0, 1) == 0 ? 0.0F : -0.0F;
    }
    for (const std::int64_t dim : {0, 1}) {
      check_pair([&](const Tensor& given) { return max(given, dim); }, x);
      check_pair([&](const Tensor& given) { return min(given, dim); }, x);
      check_on_device([&](const Tensor& given) { return amax(given, {dim}); }, x);
      check_on_device([&](const Tensor& given) { return amin(given, {dim}); }, x);
    }
  }
}

TEST_CASE("cuda reduce: of nothing, the extremes are what begins") {
  for (const DType dtype : dtypes::kOrderedPlain) {
    CAPTURE(dtype);
    const Tensor x = Tensor::empty({3, 0, 2}, dtype);
    check_on_device([](const Tensor& given) { return amax(given, {1}); }, x);
    check_on_device([](const Tensor& given) { return amin(given, {1}); }, x);
    check_on_device([](const Tensor& given) { return amin(given); }, x);
    check_on_device([](const Tensor& given) { return sum(given, {1}); }, x);
    check_on_device([](const Tensor& given) { return sum(given); }, x);
    check_on_device([](const Tensor& given) { return prod(given, {1}); }, x);
  }
  const Tensor x = Tensor::empty({3, 0, 2});
  check_on_device([](const Tensor& given) { return mean(given, {1}); }, x);
  check_on_device([](const Tensor& given) { return var(given); }, x);
}

TEST_CASE("cuda reduce: sums and products of every dtype over any dimensions") {
  Generator generator(43);
  for (int round = 0; round < 100; ++round) {
    const std::int64_t rank = generator.integer(0, 4);
    const DType dtype = pick(generator, dtypes::kOrderedPlain);
    const Tensor x = random_input(generator, dtype, rank);
    const Dims dims = random_dims(generator, rank);
    const ReduceOptions options{.keepdim = generator.integer(0, 1) == 0};
    CAPTURE(x.sizes());
    CAPTURE(dims);
    CAPTURE(dtype);
    check_on_device([&](const Tensor& given) { return sum(given, dims, options); }, x);
    check_on_device([&](const Tensor& given) { return prod(given, dims, options); }, x);
  }
}

TEST_CASE("cuda reduce: means and deviations of floats and codes") {
  Generator generator(44);
  for (int round = 0; round < 150; ++round) {
    const std::int64_t rank = generator.integer(1, 4);
    const DType dtype = pick(generator, dtypes::kFloatsQ);
    const Tensor x = random_input(generator, dtype, rank);
    // The last dimensions too, where codes are averaged as they are.
    Dims dims = random_dims(generator, rank);
    if (generator.integer(0, 1) == 0) {
      dims = {};
      for (std::int64_t d = generator.integer(0, rank - 1); d < rank; ++d) dims.push_back(d);
    }
    const bool keepdim = generator.integer(0, 1) == 0;
    const double correction = 0.5 * static_cast<double>(generator.integer(0, 4));
    CAPTURE(x.sizes());
    CAPTURE(dims);
    CAPTURE(dtype);
    check_on_device([&](const Tensor& given) { return mean(given, dims, {.keepdim = keepdim}); },
                    x);
    const StdOptions options{.correction = correction, .keepdim = keepdim};
    check_on_device([&](const Tensor& given) { return quanta::std(given, dims, options); }, x);
    if (x.is_quantized()) continue;
    check_on_device([&](const Tensor& given) { return var(given, dims, options); }, x);
  }
}

TEST_CASE("cuda reduce: a long sum is that of the CPU's parts") {
  const Tensor x = test::random_tensor({70003}, 6);
  check_on_device([](const Tensor& given) { return sum(given.to(DType::Float64)); }, x);
  check_on_device([](const Tensor& given) { return mean(given.to(DType::Float64)); }, x);
  check_on_device([](const Tensor& given) { return var(given.to(DType::Float64)); }, x);
  check_on_device([](const Tensor& given) { return mean(given); },
                  quantize_per_tensor(x, 0.05, 77, DType::QUInt8));
}

TEST_CASE("cuda reduce: running sums and products") {
  Generator generator(45);
  for (int round = 0; round < 80; ++round) {
    const std::int64_t rank = generator.integer(1, 4);
    const DType dtype = pick(generator, dtypes::kFloatsIntegers);
    const Tensor x = random_input(generator, dtype, rank);
    const std::int64_t dim = generator.integer(-rank, rank - 1);
    const CumulativeOptions options{.exclusive = generator.integer(0, 1) == 0,
                                    .reverse = generator.integer(0, 1) == 0};
    CAPTURE(x.sizes());
    CAPTURE(dim);
    CAPTURE(dtype);
    check_on_device([&](const Tensor& given) { return cumsum(given, dim, options); }, x);
    check_on_device([&](const Tensor& given) { return cumprod(given, dim, options); }, x);
  }
}

TEST_CASE("cuda reduce: into tensors that exist") {
  const Tensor x = test::random_tensor({4, 5});
  const Tensor out = on_device(Tensor::zeros({4}));
  mean_out(out, on_device(x), {1});
  check_same_on_device(out, mean(x, {1}));
}

}  // namespace quanta
