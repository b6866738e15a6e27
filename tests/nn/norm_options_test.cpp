#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "observed.h"
#include "quanta/nn/norm.h"
#include "quanta/nn/quantized/norm.h"
#include "quanta/ops/norm.h"
#include "quanta/ops/reduce.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"

namespace quanta::nn {
namespace {

using test::names;
using test::observe;

const Tensor kSeen = Tensor::from_values({-3.0F, 3.0F});

// (x - mean) / sqrt(var + eps) * (c + 1) - c with mean and variance of each channel of the batch.
std::vector<double> by_batch(const Tensor& x, double eps) {
  const std::int64_t channels = x.size(1);
  const std::int64_t inner = x.numel() / (x.size(0) * channels);
  const std::vector<float> values = x.to_float_vector();
  std::vector<double> result(values.size());
  for (std::int64_t c = 0; c < channels; ++c) {
    double sum = 0.0;
    double squares = 0.0;
    const auto each = [&](const auto& visit) {
      for (std::int64_t n = 0; n < x.size(0); ++n) {
        for (std::int64_t i = 0; i < inner; ++i) {
          visit(static_cast<std::size_t>((n * channels + c) * inner + i));
        }
      }
    };
    each([&](std::size_t i) { sum += values[i]; });
    const auto count = static_cast<double>(x.size(0) * inner);
    const double mean = sum / count;
    each([&](std::size_t i) { squares += (values[i] - mean) * (values[i] - mean); });
    const double factor = 1.0 / std::sqrt(squares / count + eps);
    const auto channel = static_cast<double>(c);
    each([&](std::size_t i) {
      result[i] = (values[i] - mean) * factor * (channel + 1.0) - channel;
    });
  }
  return result;
}

template <typename BatchNorm>
void check_batch_statistics(const Tensor& x) {
  BatchNorm norm({.num_features = 3, .track_running_stats = false});
  norm.weight.copy_(Tensor::from_values({1.0F, 2.0F, 3.0F}));
  norm.bias.copy_(Tensor::from_values({0.0F, -1.0F, -2.0F}));
  const Tensor y = norm(x);
  REQUIRE(y.sizes() == x.sizes());
  CHECK(y.suggested_format() == x.suggested_format());
  const std::vector<float> got = y.to_float_vector();
  const std::vector<double> want = by_batch(x, 1e-5);
  for (std::size_t i = 0; i < got.size(); ++i)
    CHECK(got[i] == doctest::Approx(want[i]).epsilon(1e-4));
  norm.eval();
  CHECK(norm(x).equal(y));
}

TEST_CASE("BatchNorm: without running statistics those of the batch are used") {
  manual_seed(1);
  check_batch_statistics<BatchNorm1d>(randn({5, 3}));
  check_batch_statistics<BatchNorm1d>(randn({2, 3, 4}));
  check_batch_statistics<BatchNorm2d>(randn({2, 3, 4, 5}));
  check_batch_statistics<BatchNorm2d>(randn({2, 3, 4, 5}).contiguous(MemoryFormat::ChannelsLast));
  check_batch_statistics<BatchNorm3d>(randn({2, 3, 2, 4, 5}));
  const BatchNorm2d norm({.num_features = 3, .affine = false, .track_running_stats = false});
  CHECK(norm(randn({0, 3, 4, 5})).sizes() == Dims{0, 3, 4, 5});
  CHECK(norm.state_dict().size() == 0);
  CHECK(to_string(norm) ==
        "BatchNorm2d(3, eps=1e-05, momentum=0.1, affine=False, track_running_stats=False)");
  CHECK_THROWS_WITH_AS(norm(randn({1, 2, 4, 5})),
                       doctest::Contains("BatchNorm2d: x: expected 3 channels"), ArgumentError);
}

TEST_CASE("InstanceNorm: with running statistics those are used in eval mode") {
  manual_seed(2);
  InstanceNorm2d norm({.num_features = 3, .affine = true, .track_running_stats = true});
  CHECK(names(norm.state_dict()) == std::vector<std::string>{"weight", "bias", "running_mean",
                                                             "running_var", "num_batches_tracked"});
  norm.running_mean.copy_(randn({3}));
  norm.running_var.copy_(rand({3}));
  const Tensor x = randn({2, 3, 4, 5});
  const Tensor before = norm.running_mean.clone();
  CHECK(norm(x).equal(instance_norm(x, norm.weight, norm.bias)));
  const Tensor now = mean(x, {0, 2, 3});
  for (std::int64_t c = 0; c < 3; ++c) {
    CHECK(norm.running_mean[c].item() ==
          doctest::Approx(0.9 * before[c].item() + 0.1 * now[c].item()));
  }
  norm.eval();
  CHECK(norm(x).equal(batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias)));
  CHECK(norm(x.select(0, 1)).equal(norm(x).select(0, 1)));
  observe(norm, kSeen);
  CHECK_THROWS_WITH_AS(quantized::InstanceNorm2d::from_float(norm),
                       doctest::Contains("InstanceNorm2d.from_float: track_running_stats"),
                       UnsupportedError);
}

TEST_CASE("BatchNorm: states without num_batches_tracked load") {
  BatchNorm2d source({.num_features = 3});
  source.running_mean.copy_(Tensor::from_values({1.0F, 2.0F, 3.0F}));
  StateDict state = source.state_dict();
  state.erase("num_batches_tracked");
  BatchNorm2d norm({.num_features = 3});
  norm.num_batches_tracked.fill_(7.0);
  CHECK(norm.load_state_dict(state).missing_keys.empty());
  CHECK(norm.running_mean.equal(source.running_mean));
  CHECK(norm.num_batches_tracked.item() == 7.0);
  state.erase("running_mean");
  CHECK_THROWS_WITH_AS(norm.load_state_dict(state), doctest::Contains("running_mean"),
                       ArgumentError);

  observe(source, kSeen);
  const auto quantized = quantized::BatchNorm2d::from_float(source);
  state = quantized->state_dict();
  state.erase("num_batches_tracked");
  quantized->load_state_dict(state);
}

TEST_CASE("quantized BatchNorm: needs running statistics") {
  BatchNorm2d source({.num_features = 3, .track_running_stats = false});
  observe(source, kSeen);
  CHECK_THROWS_WITH_AS(quantized::BatchNorm2d::from_float(source),
                       doctest::Contains("running_mean: expected running statistics"),
                       UnsupportedError);
}

}  // namespace
}  // namespace quanta::nn
