// Gradients of softmax, log_softmax and attention on a CUDA device.

#include <doctest/doctest.h>

#include <limits>

#include "devices_support.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/attention.h"
#include "schedule_scope.h"

namespace quanta {

TEST_CASE("cuda softmax gradients: those of the CPU along any dimension") {
  Generator generator(131);
  const auto check = [](const Tensor& x, std::int64_t dim) {
    test::check_devices({x}, 1, [&](const std::vector<Tensor>& in) { return softmax(in[0], dim); });
    test::check_devices(
        {x}, 1, [&](const std::vector<Tensor>& in) { return log_softmax(in[0], dim); },
        test::library_bound());
  };
  for (int round = 0; round < 24; ++round) {
    Dims sizes{generator.integer(1, 4), generator.integer(1, 48)};
    for (std::int64_t d = generator.integer(0, 2); d > 0; --d) {
      sizes.push_back(generator.integer(1, 40));
    }
    const Tensor x = randn(sizes, generator);
    if (round % 4 == 0) {
      x.mutable_data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
    }
    CAPTURE(round);
    check(x, generator.integer(0, static_cast<std::int64_t>(sizes.size()) - 1));
    if (sizes.size() == 4) check(x.contiguous(MemoryFormat::ChannelsLast), round % 4);
  }
  const test::ScheduleScope greedy(cuda::emulation::Schedule::Greedy, 7);
  check(randn({2, 2100}, generator), -1);
  check(randn({1100, 3}, generator), 0);
  check(Tensor::scalar(3.0), 0);
  check(Tensor::empty({0, 4}), 1);
}

TEST_CASE("cuda softmax gradients: all arguments of attention get theirs") {
  Generator generator(132);
  for (const bool has_mask : {false, true}) {
    std::vector<Tensor> inputs{randn({2, 3, 5, 4}, generator), randn({2, 3, 7, 4}, generator),
                               randn({2, 3, 7, 6}, generator)};
    if (has_mask) inputs.push_back(randn({5, 7}, generator));
    // Products are the library's.
    test::check_devices(
        inputs, has_mask ? 0b1111U : 0b111U,
        [&](const std::vector<Tensor>& in) {
          return scaled_dot_product_attention(in[0], in[1], in[2], has_mask ? in[3] : Tensor());
        },
        1e-5);
  }
}

}  // namespace quanta
