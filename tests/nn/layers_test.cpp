#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "quanta/nn/activation.h"
#include "quanta/nn/misc.h"
#include "quanta/nn/norm.h"
#include "quanta/nn/pooling.h"
#include "quanta/ops/quantize.h"
#include "quanta/ops/reduce.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"

namespace quanta::nn {
namespace {

TEST_CASE("Layers: printing is torch's") {
  CHECK(to_string(ReLU()) == "ReLU()");
  CHECK(to_string(ReLU6()) == "ReLU6()");
  CHECK(to_string(LeakyReLU()) == "LeakyReLU(negative_slope=0.01)");
  CHECK(to_string(ELU()) == "ELU(alpha=1.0)");
  CHECK(to_string(Hardtanh()) == "Hardtanh(min_val=-1.0, max_val=1.0)");
  CHECK(to_string(GELU()) == "GELU(approximate='none')");
  CHECK(to_string(Softmax(1)) == "Softmax(dim=1)");
  CHECK(to_string(PReLU(3)) == "PReLU(num_parameters=3)");
  CHECK(to_string(MaxPool2d({.kernel_size = {2}})) ==
        "MaxPool2d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)");
  CHECK(to_string(AvgPool2d({.kernel_size = {3, 2}, .stride = {1}, .padding = {1}})) ==
        "AvgPool2d(kernel_size=(3, 2), stride=1, padding=1)");
  CHECK(to_string(AdaptiveAvgPool2d(Dims{1, 1})) == "AdaptiveAvgPool2d(output_size=(1, 1))");
  CHECK(to_string(BatchNorm2d({.num_features = 8})) ==
        "BatchNorm2d(8, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)");
  CHECK(to_string(LayerNorm({.normalized_shape = {25}})) ==
        "LayerNorm((25,), eps=1e-05, elementwise_affine=True)");
  CHECK(to_string(GroupNorm({.num_groups = 2, .num_channels = 8})) ==
        "GroupNorm(2, 8, eps=1e-05, affine=True)");
  CHECK(to_string(Flatten()) == "Flatten(start_dim=1, end_dim=-1)");
  CHECK(to_string(Dropout(0.2)) == "Dropout(p=0.2, inplace=False)");
}

TEST_CASE("Layers: wrong options are refused by name") {
  CHECK_THROWS_WITH_AS(MaxPool2d({}), doctest::Contains("MaxPool2d: kernel_size: expected"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(AvgPool2d({.kernel_size = {2}, .divisor_override = 0}),
                       doctest::Contains("divisor_override"), ArgumentError);
  CHECK_THROWS_WITH_AS(AdaptiveAvgPool1d(Dims{1, 1}), doctest::Contains("output_size"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(BatchNorm2d({}), doctest::Contains("num_features"), ArgumentError);
  CHECK_THROWS_WITH_AS(GroupNorm({.num_groups = 3, .num_channels = 8}),
                       doctest::Contains("num_groups: expected a divisor of num_channels 8, got 3"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(LayerNorm({}), doctest::Contains("normalized_shape"), ArgumentError);
  CHECK_THROWS_WITH_AS(Dropout(1.5), doctest::Contains("p: expected 0..1"), ArgumentError);
  CHECK_THROWS_WITH_AS(Hardtanh(1.0, -1.0), doctest::Contains("max_val"), ArgumentError);
}

TEST_CASE("BatchNorm2d: state has torch's names and eval mode applies the statistics") {
  BatchNorm2d norm({.num_features = 2});
  std::vector<std::string> names;
  for (const auto& [name, value] : norm.state_dict()) names.push_back(name);
  CHECK(names == std::vector<std::string>{"weight", "bias", "running_mean", "running_var",
                                          "num_batches_tracked"});
  CHECK(norm.named_parameters().size() == 2);
  CHECK(norm.named_buffers().size() == 3);
  norm.running_mean.copy_(Tensor::from_values({1.0F, -1.0F}));
  norm.running_var.copy_(Tensor::from_values({4.0F, 0.25F}));
  norm.weight.copy_(Tensor::from_values({2.0F, 1.0F}));
  norm.bias.copy_(Tensor::from_values({0.5F, 0.0F}));
  norm.eval();
  const Tensor y = norm(Tensor::ones({1, 2, 1, 1}));
  CHECK(y.to_float_vector()[0] == doctest::Approx(0.5));
  CHECK(y.to_float_vector()[1] == doctest::Approx(4.0).epsilon(1e-4));
  CHECK_THROWS_WITH_AS(norm(Tensor::ones({1, 2, 1})), doctest::Contains("BatchNorm2d: x: expected"),
                       ArgumentError);
}

TEST_CASE("BatchNorm2d: one value for a channel in train mode is refused and changes nothing") {
  const BatchNorm2d norm({.num_features = 2});
  CHECK_THROWS_WITH_AS(norm(Tensor::ones({1, 2, 1, 1})),
                       doctest::Contains("batch_norm: x: expected more than 1 value"),
                       ArgumentError);
  CHECK(norm.running_mean.equal(Tensor::zeros({2})));
  CHECK(norm.num_batches_tracked.item() == 0.0);
}

TEST_CASE("BatchNorm2d: train mode normalizes by the batch and moves the running statistics") {
  manual_seed(3);
  BatchNorm2d norm({.num_features = 3, .momentum = 0.25});
  const Tensor x = randn({4, 3, 5, 6});
  const Tensor y = norm(x);
  const Tensor mean_now = mean(x, {0, 2, 3});
  const Tensor var_now = var(x, {0, 2, 3});
  for (std::int64_t c = 0; c < 3; ++c) {
    CHECK(std::abs(mean(y, {0, 2, 3})[c].item()) < 1e-6);
    CHECK(norm.running_mean[c].item() == doctest::Approx(0.25 * mean_now[c].item()));
    CHECK(norm.running_var[c].item() == doctest::Approx(0.75 + 0.25 * var_now[c].item()));
  }
  CHECK(norm.num_batches_tracked.item() == 1.0);
  norm.eval();
  norm(x);
  CHECK(norm.num_batches_tracked.item() == 1.0);
}

TEST_CASE("BatchNorm2d: without momentum the running statistics are the average of all batches") {
  manual_seed(4);
  const BatchNorm2d norm({.num_features = 2, .momentum = {}});
  const Tensor first = randn({4, 2, 5, 6});
  const Tensor second = randn({4, 2, 5, 6});
  norm(first);
  norm(second);
  for (std::int64_t c = 0; c < 2; ++c) {
    const double average =
        (mean(first, {0, 2, 3})[c].item() + mean(second, {0, 2, 3})[c].item()) / 2.0;
    CHECK(norm.running_mean[c].item() == doctest::Approx(average).epsilon(1e-5));
  }
  CHECK(to_string(norm) ==
        "BatchNorm2d(2, eps=1e-05, momentum=None, affine=True, track_running_stats=True)");
}

TEST_CASE("InstanceNorm2d: an unbatched input gives what the batch of one gives") {
  manual_seed(1);
  const InstanceNorm2d norm({.num_features = 3, .affine = true});
  const Tensor x = randn({3, 5, 4});
  CHECK(norm(x).equal(norm(x.unsqueeze(0)).squeeze(0)));
  CHECK_THROWS_AS(norm(randn({2, 5, 4})), ArgumentError);
}

TEST_CASE("Dropout: train mode zeroes about a share p and keeps the mean") {
  manual_seed(7);
  Dropout dropout(0.25);
  const Tensor x = Tensor::ones({10000});
  int zeros = 0;
  for (const float value : dropout(x).to_float_vector()) {
    if (value == 0.0F) {
      ++zeros;
    } else {
      CHECK(value == doctest::Approx(4.0 / 3.0));
    }
  }
  CHECK(std::abs(zeros - 2500) < 200);
  dropout.eval();
  CHECK(dropout(x).is_same(x));
}

TEST_CASE("Pooling and ReLU layers: quantized tensors keep their parameters") {
  const QTensor x = quantize_per_tensor(randn({1, 3, 6, 6}), 0.05, 60, DType::QUInt8);
  const std::vector<Tensor> results = {ReLU()(x),
                                       ReLU6()(x),
                                       MaxPool2d({.kernel_size = {2}})(x),
                                       AvgPool2d({.kernel_size = {2}})(x),
                                       AdaptiveAvgPool2d(Dims{1})(x),
                                       Flatten()(x),
                                       Identity()(x)};
  for (const Tensor& result : results) {
    const QTensor y = result.as_quantized();
    CHECK(y.q_scale() == 0.05);
    CHECK(y.q_zero_point() == 60);
  }
}

TEST_CASE("PReLU: the slope of negative values is the weight") {
  const PReLU prelu_layer(1, 0.5);
  CHECK(prelu_layer(Tensor::from_values({-2.0F, 3.0F})).to_float_vector() ==
        std::vector<float>{-1.0F, 3.0F});
  CHECK(prelu_layer.state_dict().contains("weight"));
}

}  // namespace
}  // namespace quanta::nn
