// p-norms, responses of neighbouring channels and determinants on a CUDA device. They are the CPU's
// to the last bit, but for pow, which is CUDA's own on a GPU.

#include <doctest/doctest.h>

#include <array>
#include <limits>

#include "devices_support.h"
#include "quanta/ops/matmul.h"
#include "quanta/ops/norm.h"
#include "quanta/ops/pooling.h"
#include "schedule_scope.h"

namespace quanta {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

DType random_dtype(Generator& generator) {
  return generator.integer(0, 2) == 0 ? DType::Float64 : DType::Float32;
}

Tensor random_tensor(const Dims& sizes, Generator& generator) {
  const Tensor x = randn(sizes, generator);
  for (const float odd : {0.0F, -0.0F, kNaN, kInfinity}) {
    if (generator.integer(0, 5) == 0) {
      x.mutable_data<float>()[generator.integer(0, x.numel() - 1)] = odd;
    }
  }
  return x.to(random_dtype(generator));
}

// Where pow takes part.
double bound_of(double p) { return p == 1.0 || p == 2.0 ? 0.0 : test::library_bound(); }

}  // namespace

TEST_CASE("cuda powers: lp_normalize along any dimension") {
  Generator generator(111);
  for (int round = 0; round < 45; ++round) {
    const double p = std::array{1.0, 2.0, 3.0, 0.5}.at(static_cast<std::size_t>(round % 4));
    Dims sizes{generator.integer(1, 5), generator.integer(1, 48)};
    if (round % 3 != 0) sizes.push_back(generator.integer(1, 40));
    const std::int64_t dim = generator.integer(0, static_cast<std::int64_t>(sizes.size()) - 1);
    CAPTURE(round);
    test::check_devices(
        {random_tensor(sizes, generator)}, 0,
        [&](const std::vector<Tensor>& in) { return lp_normalize(in[0], dim, p); }, bound_of(p));
  }
  // Lines longer than what a block keeps, in another order of threads, and nothing but zeros.
  const test::ScheduleScope greedy(cuda::emulation::Schedule::Greedy, 5);
  const auto last = [](const std::vector<Tensor>& in) { return lp_normalize(in[0], -1); };
  test::check_devices({randn({2, 2500}, generator)}, 0, last);
  test::check_devices({randn({700, 3}, generator).transpose(0, 1)}, 0, last);
  test::check_devices({Tensor::zeros({2, 5})}, 0, last);
  test::check_devices({Tensor::empty({0, 5})}, 0, last);
}

TEST_CASE("cuda powers: responses of neighbouring channels") {
  Generator generator(112);
  for (int round = 0; round < 30; ++round) {
    Dims sizes{generator.integer(1, 3), generator.integer(1, 48)};
    for (std::int64_t d = generator.integer(0, 2); d > 0; --d) {
      sizes.push_back(generator.integer(1, 7));
    }
    const LocalResponseNormOptions options{.size = generator.integer(1, 9),
                                           .alpha = 0.3 * generator.uniform(),
                                           .beta = 0.75,
                                           .bias = 1.0 + generator.uniform()};
    CAPTURE(round);
    test::check_devices(
        {random_tensor(sizes, generator)}, 0,
        [&](const std::vector<Tensor>& in) { return local_response_norm(in[0], options); },
        test::library_bound());
  }
  test::check_devices({Tensor::empty({0, 3, 4})}, 0, [](const std::vector<Tensor>& in) {
    return local_response_norm(in[0], {.size = 3});
  });
}

TEST_CASE("cuda powers: p-norms of windows") {
  Generator generator(113);
  for (int round = 0; round < 45; ++round) {
    const std::int64_t spatial = round % 3 + 1;
    LpPoolOptions options;
    options.kernel_size = options.stride = options.dilation = options.padding = Dims{};
    options.p = std::array{1.0, 2.0, 3.0, 1.5}.at(static_cast<std::size_t>(round % 4));
    Dims sizes{generator.integer(1, 3), generator.integer(1, 20)};
    for (std::int64_t d = 0; d < spatial; ++d) {
      sizes.push_back(generator.integer(5, 9));
      options.kernel_size.push_back(generator.integer(1, 3));
      options.stride.push_back(generator.integer(1, 3));
      options.dilation.push_back(generator.integer(1, 2));
      options.padding.push_back(generator.integer(0, options.kernel_size.back() / 2));
    }
    options.ceil_mode = round % 2 == 1;
    CAPTURE(round);
    test::check_devices(
        {random_tensor(sizes, generator)}, 0,
        [&](const std::vector<Tensor>& in) { return lp_pool(in[0], options, spatial); },
        bound_of(options.p));
  }
}

TEST_CASE("cuda powers: determinants") {
  Generator generator(114);
  const auto call = [](const std::vector<Tensor>& in) { return det(in[0]); };
  for (int round = 0; round < 40; ++round) {
    const std::int64_t n = generator.integer(1, 12);
    Dims sizes{n, n};
    if (round % 2 == 0) sizes = Dims{generator.integer(1, 4), n, n};
    CAPTURE(round);
    test::check_devices({random_tensor(sizes, generator)}, 0, call);
    // Few numbers: many pivots are equal, and some columns nothing but zeros.
    const Tensor few = sample_tensor(sizes, DType::Int32, static_cast<std::uint64_t>(round));
    test::check_devices({few.to(DType::Float64)}, 0, call);
  }
  test::check_devices({randn({2, 5, 5}, generator).transpose(1, 2)}, 0, call);
  test::check_devices({Tensor::empty({0, 3, 3})}, 0, call);
  test::check_devices({Tensor::empty({2, 0, 0})}, 0, call);
  // More than shared memory has room for, in both orders of threads.
  test::check_devices({randn({2, 66, 66}, generator)}, 0, call);
  const test::ScheduleScope greedy(cuda::emulation::Schedule::Greedy, 9);
  test::check_devices({randn({2, 40, 40}, generator)}, 0, call);
}

}  // namespace quanta
