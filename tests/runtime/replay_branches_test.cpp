// Branches of a network in int8 that run side by side.

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "plan_support.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/cat.h"
#include "quanta/ops/conv.h"
#include "quanta/ops/pooling.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/detail/forks.h"
#include "quanta/runtime/detail/plan_forks.h"
#include "quanta/runtime/random.h"
#include "quanta/runtime/replay_plan.h"
#include "support/compare.h"
#include "support/tensors.h"
#include "support/threads.h"

namespace quanta {
namespace {

using Conv = quantized::ConvPackedParams;

/// A block as GoogLeNet and Inception have them: branches of one convolution, of two and three, and of
/// a pooling, joined along the channels.
class Block {
 public:
  Block() {
    Generator generator(3);
    const auto conv = [&](std::int64_t in, std::int64_t out, const Dims& kernel,
                          std::int64_t groups = 1) {
      const Tensor weight = randn({out, in / groups, kernel[0], kernel[1]}, generator);
      const Tensor bias = randn({out}, generator);
      const Dims padding{(kernel[0] - 1) / 2, (kernel[1] - 1) / 2};
      return std::make_unique<const Conv>(
          quantize_per_channel(weight, Tensor::full({out}, 0.02),
                               Tensor::zeros({out}, DType::Int64), 0, DType::QInt8),
          bias, ConvOptions{.padding = padding, .groups = groups}, 2);
    };
    one_ = conv(24, 16, {1, 1});
    reduce3_ = conv(24, 12, {1, 1});
    three_ = conv(12, 32, {3, 3});
    reduce7_ = conv(24, 10, {1, 1});
    wide_ = conv(10, 10, {1, 7});
    high_ = conv(10, 20, {7, 1});
    depthwise_ = conv(24, 24, {3, 3}, 24);
    pooled_ = conv(24, 8, {1, 1});
  }

  Tensor operator()(const Tensor& input) const {
    const QTensor x = quantize_per_tensor(input, 0.03, 90, DType::QUInt8);
    const auto run = [](const QTensor& in, const std::unique_ptr<const Conv>& conv) {
      return quantized::conv_relu(in, *conv, 0.04, 0);
    };
    const QTensor one = run(x, one_);
    const QTensor three = run(run(x, reduce3_), three_);
    const QTensor seven = run(run(run(x, reduce7_), wide_), high_);
    const QTensor depthwise =
        quantized::hardswish(quantized::conv(x, *depthwise_, 0.05, 100), 0.05, 8);
    const QTensor pooled =
        run(QTensor(max_pool2d(x, {.kernel_size = {3}, .stride = {1}, .padding = {1}})), pooled_);
    return dequantize(
        quantized::cat(std::vector<QTensor>{one, three, seven, depthwise, pooled}, 1, 0.05, 3));
  }

 private:
  std::unique_ptr<const Conv> one_, reduce3_, three_, reduce7_, wide_, high_, depthwise_, pooled_;
};

TEST_CASE("forks: the branches of a block give the same side by side") {
  using namespace replay::detail;
  const Block block;
  const Tensor example =
      test::random_tensor({1, 24, 14, 14}).contiguous(MemoryFormat::ChannelsLast);
  const Program program = test::program_of(block, example);
  const std::size_t steps = program.steps.size();
  const std::vector<bool> may = may_fork(program, std::vector<double>(steps, 1.0));
  CHECK(std::ranges::count(may, true) > 8);
  const StepTimes times{std::vector<double>(steps, 1.0), std::vector<double>(steps, 1.001)};
  const ForkedLayout forked(program, best_forks(program, times, 4));
  REQUIRE(forked.forks.size() == 1);
  CHECK(forked.forks[0].lanes.size() == 5);
  test::with_threads({1, 2, 3, 8}, [&] {
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      const Tensor x =
          test::random_tensor({1, 24, 14, 14}, seed).contiguous(MemoryFormat::ChannelsLast);
      const Tensor y = test::result_of(program, x, [&](const auto& in, const auto& out) {
        forked.run(forked.layout.take(), in, out);
      });
      CHECK(test::same_bits(y, block(x)));
    }
  });
}

TEST_CASE("forks: a network with branches gives the same while it finds out how to run them") {
  const Block block;
  const Tensor x = test::random_tensor({1, 24, 14, 14});
  const auto frozen = [&] {
    const replay::Recording recording(x);
    return replay::ReplayPlan(recording, x, block(x));
  }();
  const Tensor wanted = block(x);
  test::with_threads({2, 4}, [&] {
    for (int run = 0; run < 60; ++run) CHECK(test::same_bits(frozen.run(x), wanted));
  });
}

}  // namespace
}  // namespace quanta
