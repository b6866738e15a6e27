#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "quanta/ops/norm.h"
#include "quanta/runtime/random.h"
#include "quanta/runtime/tensor.h"
#include "schedule_scope.h"
#include "support/test_device.h"

// Norms in training and their gradients on the device. The sums are taken in another order than the
// CPU's, in double: floats agree to a few units of the largest one's last bit.

namespace quanta {
namespace {

const Device kDevice = test::test_device();
constexpr float kBound = 4e-6F;

void check_near(const Tensor& got, const Tensor& expected) {
  REQUIRE(got.defined() == expected.defined());
  if (!got.defined()) return;
  CHECK(got.device() == kDevice);
  REQUIRE(got.sizes() == expected.sizes());
  const std::vector<float> left = got.cpu().to_float_vector();
  const std::vector<float> right = expected.to_float_vector();
  float largest = 1.0F;
  for (const float value : right) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < left.size(); ++i) {
    CAPTURE(i);
    REQUIRE(std::abs(left[i] - right[i]) <= kBound * largest);
  }
}

// Copies on the device; undefined tensors stay so, and gradients are asked for where they were.
std::vector<Tensor> there(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> result;
  for (const Tensor& x : tensors) {
    result.push_back(x.defined() ? x.detach().to(kDevice) : Tensor());
    if (x.defined() && x.requires_grad()) result.back().set_requires_grad();
  }
  return result;
}

using Call = std::function<Tensor(const std::vector<Tensor>&)>;

// The result, the gradients of all arguments, and what the call wrote into them.
void check_call(const Call& call, const std::vector<Tensor>& given, Generator& generator) {
  const std::vector<Tensor> on_device = there(given);
  const Tensor expected = call(given);
  const Tensor got = call(on_device);
  check_near(got.detach(), expected.detach());
  if (!expected.requires_grad()) return;
  const Tensor gradient = randn(expected.sizes(), generator);
  expected.backward(gradient);
  got.backward(gradient.to(kDevice));
  for (std::size_t i = 0; i < given.size(); ++i) {
    CAPTURE(i);
    if (!given[i].defined()) continue;
    check_near(on_device[i].detach(), given[i].detach());
    if (given[i].requires_grad()) check_near(on_device[i].grad(), given[i].grad());
  }
}

Tensor leaf(const Dims& sizes, Generator& generator) {
  return randn(sizes, generator).set_requires_grad();
}
// Sometimes left out, sometimes without a gradient.
Tensor maybe(const Dims& sizes, Generator& generator) {
  const std::int64_t kind = generator.integer(0, 3);
  if (kind == 0) return {};
  return kind == 1 ? randn(sizes, generator) : leaf(sizes, generator);
}

Tensor positive(std::int64_t channels, Generator& generator) {
  Tensor result = randn({channels}, generator);
  for (std::int64_t c = 0; c < channels; ++c) {
    result.mutable_data<float>()[c] = 0.2F + std::abs(result.data<float>()[c]);
  }
  return result;
}

Dims image_sizes(std::int64_t channels, Generator& generator) {
  Dims sizes{generator.integer(2, 4), channels};
  for (std::int64_t d = generator.integer(0, 3); d > 0; --d) {
    sizes.push_back(generator.integer(1, 7));
  }
  return sizes;
}

Tensor images(std::int64_t channels, Generator& generator) {
  const Tensor x = randn(image_sizes(channels, generator), generator);
  const bool turned = x.dim() > 3 && generator.integer(0, 1) == 0;
  const Tensor result = turned ? x.contiguous(MemoryFormat::ChannelsLast) : x;
  return result.detach().set_requires_grad(generator.integer(0, 3) != 0);
}

}  // namespace

TEST_CASE("cuda norm gradients: batches in training, with and without a quotient") {
  Generator generator(31);
  for (int round = 0; round < 30; ++round) {
    const std::int64_t channels = generator.integer(1, 40);
    const Dims sizes{channels};
    Tensor divisor = maybe(sizes, generator);
    if (divisor.defined() && round % 3 == 0) divisor.detach().mutable_data<float>()[0] = 0.0F;
    CAPTURE(channels);
    check_call(
        [](const std::vector<Tensor>& in) {
          return batch_norm_train(in[0], in[1], in[2], in[3], in[4],
                                  {.momentum = 0.3, .eps = 0.1, .divisor = in[5], .shift = in[6]});
        },
        {images(channels, generator), randn(sizes, generator), positive(channels, generator),
         maybe(sizes, generator), maybe(sizes, generator), divisor, maybe(sizes, generator)},
        generator);
  }
}

TEST_CASE("cuda norm gradients: sums of many elements are taken in chunks") {
  Generator generator(32);
  const Tensor x = randn({2, 3, 65, 67}, generator);
  for (const Tensor& each : {x, x.contiguous(MemoryFormat::ChannelsLast)}) {
    check_call(
        [](const std::vector<Tensor>& in) { return batch_norm_train(in[0], {}, {}, in[1], in[2]); },
        {each.detach().set_requires_grad(), leaf({3}, generator), leaf({3}, generator)}, generator);
  }
}

TEST_CASE("cuda norm gradients: batches by given statistics") {
  Generator generator(33);
  for (int round = 0; round < 20; ++round) {
    const std::int64_t channels = generator.integer(1, 40);
    const Dims sizes{channels};
    check_call(
        [](const std::vector<Tensor>& in) {
          return batch_norm(in[0], in[1], in[2], in[3], in[4], 1e-3);
        },
        {images(channels, generator), randn(sizes, generator), positive(channels, generator),
         maybe(sizes, generator), maybe(sizes, generator)},
        generator);
  }
}

TEST_CASE("cuda norm gradients: groups, instances, layers and roots of mean squares") {
  Generator generator(34);
  for (int round = 0; round < 25; ++round) {
    const std::int64_t groups = generator.integer(1, 5);
    const std::int64_t channels = groups * generator.integer(1, 9);
    const std::int64_t width = generator.integer(1, 300);
    const Dims sizes{channels};
    CAPTURE(channels);
    CAPTURE(width);
    const test::ScheduleScope scope(
        round % 2 == 0 ? cuda::emulation::Schedule::Lockstep : cuda::emulation::Schedule::Greedy,
        static_cast<std::uint64_t>(round));
    Tensor x = images(channels, generator);
    if (x.dim() == 2) x = leaf({3, channels, 4}, generator);
    const std::vector<Tensor> parameters{x, maybe(sizes, generator), maybe(sizes, generator)};
    check_call(
        [&](const std::vector<Tensor>& in) { return group_norm(in[0], groups, in[1], in[2], 0.1); },
        parameters, generator);
    check_call(
        [](const std::vector<Tensor>& in) { return instance_norm(in[0], in[1], in[2], 0.1); },
        {leaf({2, channels, 5, 3}, generator), maybe(sizes, generator), maybe(sizes, generator)},
        generator);
    check_call(
        [&](const std::vector<Tensor>& in) {
          return layer_norm(in[0], {width}, in[1], in[2], 1e-3);
        },
        {leaf({3, 4, width}, generator), maybe({width}, generator), maybe({width}, generator)},
        generator);
    check_call([&](const std::vector<Tensor>& in) { return rms_norm(in[0], {width}, in[1], 1e-3); },
               {leaf({3, 4, width}, generator), maybe({width}, generator)}, generator);
  }
}

TEST_CASE("cuda norm gradients: a batch without elements leaves the statistics alone") {
  const Tensor running = Tensor::full({4}, 0.5).to(kDevice);
  const Tensor x = Tensor::empty({0, 4, 3}).to(kDevice);
  CHECK(batch_norm_train(x, running, running, {}, {}).sizes() == Dims{0, 4, 3});
  CHECK(running.cpu().equal(Tensor::full({4}, 0.5)));
}

}  // namespace quanta
