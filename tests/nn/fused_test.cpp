#include "quanta/nn/intrinsic/fused.h"

#include <doctest/doctest.h>

#include <vector>

#include "observed.h"
#include "quanta/nn/activation.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/float_functional.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/norm.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/compare.h"

namespace quanta::nn {
namespace {

using test::check_close;

std::shared_ptr<Conv2d> small_conv() {
  return make_module<Conv2d>(
      Conv2dOptions{.in_channels = 3, .out_channels = 4, .kernel_size = {3}});
}

TEST_CASE("fused modules: moving averages of their result move twice, as in torch") {
  ConvNdOptions options{.in_channels = 1, .out_channels = 1, .kernel_size = {1}};
  const auto conv = make_module<Conv2d>(options);
  conv->weight.fill_(1.0);
  conv->bias.fill_(0.0);
  intrinsic::ConvReLU2d fused(conv, make_module<ReLU>());
  fused.eval();
  MovingAverageMinMaxObserver::Options averaging;
  averaging.averaging_constant = 0.1;
  const auto observer = std::make_shared<MovingAverageMinMaxObserver>(averaging);
  fused.set_activation_post_process(observer);
  for (const double value : {1.0, 2.0, 3.0}) fused(Tensor::full({1, 1, 2, 2}, value));
  // torch 2.15: prepare, then these batches.
  CHECK(observer->max_val().item() == doctest::Approx(1.5339));
}

TEST_CASE("ConvReLU2d: eval mode gives what the parts give and names them by position") {
  auto conv = small_conv();
  conv->eval();
  const auto relu_layer = make_module<ReLU>();
  relu_layer->eval();
  const intrinsic::ConvReLU2d fused(conv, relu_layer);
  CHECK_FALSE(fused.is_training());
  CHECK(fused.state_dict().contains("0.weight"));
  const Tensor x = randn({2, 3, 6, 6});
  check_close(fused(x), relu((*conv)(x)));
  const auto* base = dynamic_cast<const intrinsic::FusedModule*>(&fused);
  CHECK(base != nullptr);
}

TEST_CASE("ConvReLU2d: a hook on a part still runs") {
  intrinsic::ConvReLU2d fused(small_conv(), make_module<ReLU>());
  fused.eval();
  int calls = 0;
  fused[0].register_forward_hook([&](const Module&, const Tensor&, const Tensor& output) {
    ++calls;
    return output;
  });
  static_cast<void>(fused(randn({1, 3, 5, 5})));
  CHECK(calls == 1);
}

TEST_CASE("Fused modules: parts of another type are refused by name") {
  const auto conv = small_conv();
  CHECK_THROWS_WITH_AS(intrinsic::ConvReLU2d(conv, make_module<ReLU6>()),
                       doctest::Contains("nn::ReLU as part 1, got quanta::nn::ReLU6"),
                       ArgumentError);
  CHECK_THROWS_AS(intrinsic::ConvReLU1d(conv, make_module<ReLU>()), ArgumentError);
  CHECK_THROWS_AS(intrinsic::LinearReLU(nullptr, make_module<ReLU>()), ArgumentError);
  CHECK_THROWS_AS(
      intrinsic::ConvBn2d(conv, make_module<BatchNorm3d>(BatchNormOptions{.num_features = 4})),
      ArgumentError);
}

TEST_CASE("LinearReLU and its like: results are those of the parts") {
  const auto linear = make_module<Linear>(LinearOptions{.in_features = 5, .out_features = 3});
  const Tensor x = randn({4, 5});
  intrinsic::LinearReLU fused(linear, make_module<ReLU>());
  fused.eval();
  const Tensor y = (*linear)(x);
  check_close(fused(x), relu(y));
  intrinsic::LinearLeakyReLU leaky(linear, make_module<LeakyReLU>(0.2));
  check_close(leaky(x), leaky_relu(y, 0.2));
  intrinsic::LinearTanh tanh_layer(linear, make_module<Tanh>());
  check_close(tanh_layer(x), tanh(y));
}

TEST_CASE("ConvAdd2d: two tensors go in and the sum is observed") {
  auto conv = small_conv();
  conv->eval();
  const Tensor x = randn({1, 3, 5, 5});
  const Tensor accum = randn({1, 4, 3, 3});
  const Tensor sum = add((*conv)(x), accum);
  intrinsic::ConvAdd2d fused(conv);
  CHECK(fused.forward(x, accum).equal(sum));
  CHECK_THROWS_AS(fused(x), UnsupportedError);
  intrinsic::ConvAddReLU2d with_relu(conv, make_module<ReLU>());
  CHECK(with_relu.forward(x, accum).equal(relu(sum)));

  const auto observer = std::make_shared<MinMaxObserver>();
  fused.set_activation_post_process(observer);
  static_cast<void>(fused.forward(x, accum));
  CHECK(observer->has_data());
}

TEST_CASE("FloatFunctional: all but the scalar operations are observed") {
  FloatFunctional functional;
  const Tensor a = Tensor::from_values({1.0F, -3.0F});
  const Tensor b = Tensor::from_values({2.0F, 1.0F});
  CHECK(functional.add(a, b).to_float_vector() == std::vector<float>{3.0F, -2.0F});
  CHECK(functional.mul(a, b).to_float_vector() == std::vector<float>{2.0F, -3.0F});
  CHECK(functional.add_relu(a, b).to_float_vector() == std::vector<float>{3.0F, 0.0F});
  CHECK(functional.cat({a, b}).numel() == 4);
  CHECK(functional.matmul(a, b).item() == -1.0);
  const auto observer = std::make_shared<MinMaxObserver>();
  functional.set_activation_post_process(observer, Module::Observation::Explicit);
  static_cast<void>(functional.add_scalar(a, 5.0));
  static_cast<void>(functional.mul_scalar(a, 5.0));
  CHECK_FALSE(observer->has_data());
  static_cast<void>(functional.add(a, b));
  CHECK(observer->has_data());
  CHECK_THROWS_AS(functional(a), UnsupportedError);
  const QTensor q = quantize_per_tensor(a, 0.1, 10, DType::QUInt8);
  CHECK_THROWS_AS(functional.add(q, q), UnsupportedError);
}

TEST_CASE("FXFloatFunctional: operations are those of FloatFunctional without an observer") {
  const FXFloatFunctional functional;
  const Tensor a = Tensor::from_values({1.0F, -3.0F});
  CHECK(functional.add(a, a).to_float_vector() == std::vector<float>{2.0F, -6.0F});
  CHECK(functional.mul_scalar(a, 2.0).to_float_vector() == std::vector<float>{2.0F, -6.0F});
  CHECK_THROWS_AS(functional(a), UnsupportedError);
}

}  // namespace
}  // namespace quanta::nn
