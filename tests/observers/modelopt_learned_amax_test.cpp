#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "quanta/nn/optim/optimizer.h"
#include "quanta/nn/qat/linear.h"
#include "quanta/observers/modelopt/reduce.h"
#include "quanta/observers/modelopt/tensor_quantizer.h"
#include "quanta/observers/qconfig.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/elementwise.h"
#include "quanta/ops/loss.h"
#include "quanta/ops/reduce.h"
#include "quanta/ops/tensor_quant.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "quanta/runtime/state_dict.h"
#include "support/tensors.h"

namespace quanta::modelopt {
namespace {

using test::random_tensor;

void check_equal(const Tensor& got, const Tensor& want) {
  CHECK(got.sizes() == want.sizes());
  CHECK(got.to_float_vector() == want.to_float_vector());
}

ScaledQuantDescriptor learning(double amax) {
  ScaledQuantDescriptor descriptor;
  descriptor.amax = Tensor::scalar(amax);
  descriptor.learn_amax = true;
  return descriptor;
}

TEST_CASE("TensorQuantizer: a learned amax is a parameter that gets what clipped elements lose") {
  TensorQuantizer quantizer(learning(1.0));
  REQUIRE(quantizer.named_parameters().size() == 1);
  CHECK(quantizer.named_parameters()[0].first == "_amax");
  Tensor x = Tensor::from_values({-3.0F, -0.5F, 0.25F, 2.0F});
  x.set_requires_grad();
  quantizer.forward(x).backward(Tensor::from_values({8.0F, 4.0F, 2.0F, 1.0F}));
  CHECK(x.grad().to_float_vector() == std::vector<float>{0.0F, 4.0F, 2.0F, 0.0F});
  CHECK(quantizer.amax().grad().item() == -7.0);
  CHECK(quantizer.to_string() ==
        "8 bit fake per-tensor amax=1.0000 learned calibrator=MaxCalibrator quant");
  // In place: who has the parameter keeps it.
  const Tensor parameter = quantizer.amax();
  quantizer.set_amax(Tensor::scalar(4.0));
  CHECK(parameter.item() == 4.0);
  const auto copy = quantizer.clone();
  quantizer.set_amax(Tensor::scalar(5.0));
  CHECK(std::static_pointer_cast<TensorQuantizer>(copy)->amax().item() == 4.0);
  CHECK(std::static_pointer_cast<TensorQuantizer>(copy)->amax().requires_grad());
  StateDict state;
  quantizer.save_state(state, "");
  quantizer.set_amax(Tensor::scalar(1.0));
  quantizer.load_state(state, "");
  CHECK(parameter.item() == 5.0);
  CHECK(quantizer.amax().requires_grad());
}

TEST_CASE("TensorQuantizer: an optimizer trains the amax until little is clipped") {
  const Tensor x = random_tensor({4000});
  ScaledQuantDescriptor descriptor = learning(0.05);
  descriptor.num_bits = NumBits::integer(4);
  TensorQuantizer quantizer(descriptor);
  const auto error = [&](TensorQuantizer& one) { return mse_loss(one.forward(x), x); };
  optim::Adam optimizer({quantizer.amax()}, {.lr = 0.02});
  const double before = error(quantizer).item();
  for (int step = 0; step < 200; ++step) {
    optimizer.zero_grad();
    error(quantizer).backward();
    optimizer.step();
  }
  CHECK(error(quantizer).item() < 0.05 * before);
  CHECK(quantizer.amax().item() > 1.5);
}

TEST_CASE("TensorQuantizer: a QConfig trains the amax of layers and needs one to start from") {
  const QConfig qconfig{TensorQuantizer::with_args(learning(0.1)),
                        TensorQuantizer::with_args(learning(0.05))};
  manual_seed(71);
  nn::qat::Linear layer({8, 4}, qconfig);
  layer.set_activation_post_process(qconfig.activation());
  layer.requires_grad_();
  std::vector<std::string> names;
  std::vector<Tensor> maxima;
  for (const auto& [name, parameter] : layer.named_parameters()) {
    if (!name.ends_with("._amax")) continue;
    names.push_back(name);
    maxima.push_back(parameter);
  }
  REQUIRE(names ==
          std::vector<std::string>{"weight_fake_quant._amax", "activation_post_process._amax"});
  optim::SGD optimizer(layer.parameters(), {.lr = 0.005});
  const Tensor x = random_tensor({16, 8});
  const Tensor target = mul_scalar(random_tensor({16, 4}), 3.0);
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    mse_loss(layer(x), target).backward();
    optimizer.step();
  }
  for (const Tensor& each : maxima) REQUIRE(each.item() > 0.0);
  CHECK(maxima[0].item() != doctest::Approx(0.05));
  CHECK(maxima[1].item() != doctest::Approx(0.1));
  // What is converted has what was learned.
  CHECK(qconfig.weight()->calculate_qparams().scale.item() == doctest::Approx(0.05 / 127.0));
  CHECK(layer.weight_fake_quant()->calculate_qparams().scale.item() ==
        doctest::Approx(maxima[0].item() / 127.0));
  ScaledQuantDescriptor descriptor;
  descriptor.learn_amax = true;
  CHECK_THROWS_WITH_AS(
      TensorQuantizer::with_args(descriptor),
      "TensorQuantizer: with_args: amax: expected one to start from with learn_amax, got none",
      ArgumentError);
}

TEST_CASE(
    "TensorQuantizer: what is calibrated becomes the learned amax and a step below 0 is undone") {
  ScaledQuantDescriptor descriptor;
  descriptor.learn_amax = true;
  descriptor.num_bits = NumBits::floating(4, 3);
  descriptor.block_sizes = BlockConfig{{{-1, 4}}};
  descriptor.dialect = ScaledQuantDescriptor::Dialect::ModelOpt;
  TensorQuantizer quantizer(descriptor);
  CHECK(quantizer.named_parameters().empty());
  const Tensor x = random_tensor({3, 8});
  quantizer.update(x);
  quantizer.load_calib_amax();
  REQUIRE(quantizer.amax().sizes() == Dims{6, 1});
  CHECK(quantizer.amax().requires_grad());
  quantizer.amax().detach().fill_(-1.0);
  quantizer.forward(x).backward(x);
  CHECK(quantizer.amax().to_float_vector() == std::vector<float>(6, 0.0F));
  // Every element lies beyond 0: each block gets the sum of its magnitudes, and can grow again.
  const std::vector<float> gradient = quantizer.amax().grad().to_float_vector();
  const std::vector<float> magnitudes = sum(abs(x.reshape({6, 4})), {1}).to_float_vector();
  for (std::size_t i = 0; i < 6; ++i) CHECK(gradient[i] == doctest::Approx(magnitudes[i]));
}

TEST_CASE("TensorQuantizer: scale_amax multiplies the amax of the descriptor and of data") {
  const Tensor x = random_tensor({5, 6});
  const TensorQuantOptions codes{8, false, false};
  ScaledQuantDescriptor descriptor;
  descriptor.scale_amax = 0.5;
  descriptor.amax = Tensor::scalar(3.0);
  TensorQuantizer given(descriptor);
  check_equal(given.forward(x), fake_tensor_quant(x, Tensor::scalar(1.5), {codes}));
  CHECK(given.amax().item() == 3.0);
  CHECK(given.export_amax().item() == 1.5);
  CHECK(given.step_size().item() == doctest::Approx(1.5 / 127.0));
  CHECK(given.calculate_qparams().scale.item() == doctest::Approx(1.5 / 127.0));
  const Tensor half = mul_scalar(reduce_amax(x), 0.5);
  descriptor.amax = {};
  TensorQuantizer calibrated(descriptor);
  calibrated.update(x);
  check_equal(calibrated.forward(x), fake_tensor_quant(x, half, {codes}));
  calibrated.load_calib_amax();
  check_equal(calibrated.forward(x), fake_tensor_quant(x, half, {codes}));
  descriptor.dialect = ScaledQuantDescriptor::Dialect::ModelOpt;
  descriptor.dynamic = true;
  check_equal(TensorQuantizer(descriptor).forward(x), fake_tensor_quant(x, half, {codes}));
  descriptor.dynamic = false;
  descriptor.learn_amax = true;
  descriptor.amax = Tensor::scalar(3.0);
  TensorQuantizer learned(descriptor);
  learned.forward(Tensor::from_values({2.0F})).backward(Tensor::ones({1}));
  CHECK(learned.amax().grad().item() == 0.5);
}

TEST_CASE("TensorQuantizer: what excludes an amax in a descriptor is refused by name") {
  const auto refuse = [](const char* text, auto&& change) {
    ScaledQuantDescriptor descriptor;
    descriptor.dialect = ScaledQuantDescriptor::Dialect::ModelOpt;
    change(descriptor);
    CHECK_THROWS_WITH_AS(TensorQuantizer{descriptor}, doctest::Contains(text), Error);
  };
  using Descriptor = ScaledQuantDescriptor;
  refuse("learn_amax: expected False", [](Descriptor& d) { d.learn_amax = d.dynamic = true; });
  refuse("amax: expected none", [](Descriptor& d) {
    d.amax = Tensor::scalar(1.0);
    d.dynamic = true;
  });
  refuse("learn_amax: expected False", [](Descriptor& d) {
    d.learn_amax = true;
    d.block_sizes = BlockConfig{{{-1, 4}}, QuantType::Dynamic};
  });
  refuse("fake_quant: expected True", [](Descriptor& d) {
    d.learn_amax = true;
    d.fake_quant = false;
  });
  refuse("scale_amax: expected a finite number above 0, got -1",
         [](Descriptor& d) { d.scale_amax = -1.0; });
  refuse("calib_method: expected max or histogram, got mse",
         [](Descriptor& d) { d.calib_method = "mse"; });
}

}  // namespace
}  // namespace quanta::modelopt
