// The eager workflow with the model on a CUDA device: prepare, calibrate, convert; and training with
// fake quantizers. Float products there are a library's, so ranges may differ from the CPU's by
// rounding; the converted network is the same on both.

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "quanta/fusion/convert.h"
#include "quanta/fusion/fuse_modules.h"
#include "quanta/fusion/prepare.h"
#include "quanta/nn/activation.h"
#include "quanta/nn/container.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/misc.h"
#include "quanta/nn/models/fashion.h"
#include "quanta/nn/optim/optimizer.h"
#include "quanta/nn/pooling.h"
#include "quanta/nn/stubs.h"
#include "quanta/observers/defaults.h"
#include "quanta/observers/learnable_fake_quantize.h"
#include "quanta/observers/min_max_observer.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/elementwise.h"
#include "quanta/ops/loss.h"
#include "quanta/runtime/random.h"
#include "support/capture_binding.h"
#include "support/compare.h"
#include "support/test_device.h"

namespace quanta {
namespace {

const Device kDevice = test::test_device();

// Calibrated where its parameters are.
template <typename Network>
Network calibrated(const Network& network, const QConfig& qconfig,
                   const std::vector<Tensor>& batches, Device device) {
  Network prepared = prepare(network, qconfig);
  prepared.to(device);
  for (const Tensor& batch : batches) prepared(batch.to(device));
  return convert(prepared);
}

std::vector<LearnableFakeQuantize*> learnable_parts(const nn::Module& model) {
  std::vector<LearnableFakeQuantize*> result;
  for (const auto& [path, module] : model.named_modules()) {
    for (const auto& [name, observer] : module->named_observers()) {
      if (auto* fake = dynamic_cast<LearnableFakeQuantize*>(observer.get())) result.push_back(fake);
    }
  }
  return result;
}

// Two steps on both devices and what they leave: the losses are near each other, and what is
// converted on the device gives its codes on the CPU as well.
template <typename Network>
void check_training(const Network& network, const Tensor& x, const Tensor& target) {
  const auto trained = [&](Device device) {
    Network prepared = nn::deep_copy(network);
    prepared.to(device);
    prepared.requires_grad_();
    optim::AdamW optimizer(prepared.parameters(), {.lr = 0.001, .weight_decay = 0.01});
    std::vector<double> losses;
    manual_seed(5);
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      const Tensor loss = cross_entropy(prepared(x.to(device)), target.to(device));
      loss.backward();
      optim::clip_grad_norm_(prepared.parameters(), 1.0);
      optimizer.step();
      losses.push_back(loss.item());
    }
    for (const auto& [path, parameter] : prepared.named_parameters()) {
      CAPTURE_BINDING(path);
      CHECK(parameter.device() == device);
      CHECK(parameter.grad().defined());
    }
    prepared.eval();
    auto int8 = convert(prepared);
    const Tensor got = int8(x.to(device)).cpu();
    int8.to(Device::cpu());
    CHECK(int8(x).equal(got));
    return losses;
  };
  const std::vector<double> expected = trained(Device::cpu());
  const std::vector<double> got = trained(kDevice);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(got[i] == doctest::Approx(expected[i]).epsilon(0.01));
  }
}

}  // namespace

TEST_CASE("cuda workflow: prepared, calibrated and converted on the device") {
  Generator generator(1);
  std::vector<Tensor> batches;
  for (int i = 0; i < 2; ++i) batches.push_back(randn({2, 1, 28, 28}, generator));
  nn::models::FashionResNet network;
  network.eval();
  fuse_modules(network, fusion_groups(network));
  for (const char* backend : {"fbgemm", "x86"}) {
    CAPTURE(backend);
    const QConfig qconfig = get_default_qconfig(backend);
    const auto here = calibrated(network, qconfig, batches, Device::cpu());
    auto there = calibrated(network, qconfig, batches, kDevice);
    const Tensor x = batches[0];
    const Tensor got = there(x.to(kDevice));
    CHECK(got.device() == kDevice);
    // What was calibrated there gives its codes here as well.
    there.to(Device::cpu());
    CHECK(there(x).equal(got.cpu()));
    // It is the network that the CPU calibrates, but for the rounding of float sums.
    const Tensor expected = here(x);
    const double apart = sub(got.cpu(), expected).abs().max().item();
    CHECK(apart <= 0.05 * expected.abs().max().item());
  }
}

TEST_CASE("cuda workflow: steps of quantization-aware training on the device") {
  // Not any numbers: where a sum's last bit gives another code, batch norms over four values can make a
  // per cent of it, on the CPU alone as well.
  manual_seed(1);
  Generator generator(1);
  const Tensor target = Tensor::from_span(std::vector<std::int64_t>{3, 1, 9, 0});
  const QConfig qconfig = get_default_qat_qconfig("fbgemm");
  nn::models::FashionResNet resnet;
  resnet.train();
  fuse_modules_qat(resnet, fusion_groups(resnet));
  check_training(prepare_qat(resnet, qconfig), randn({4, 1, 14, 14}, generator), target);
  nn::models::FashionMobileNet mobile_net;
  mobile_net.train();
  fuse_modules_qat(mobile_net, fusion_groups(mobile_net));
  check_training(prepare_qat(mobile_net, qconfig), randn({4, 1, 14, 14}, generator), target);
}

TEST_CASE("cuda workflow: training with dropout and with learned scales on the device") {
  Generator generator(3);
  const Tensor x = randn({4, 3, 9, 9}, generator);
  const Tensor target = Tensor::from_span(std::vector<std::int64_t>{3, 1, 0, 0});
  const auto learned = [](const ObserverFactory& observer) {
    return LearnableFakeQuantize::with_args({.observer = observer, .use_grad_scaling = true});
  };
  for (const bool learns : {false, true}) {
    CAPTURE(learns);
    const QConfig usual = get_default_qat_qconfig("fbgemm");
    const QConfig qconfig =
        learns ? QConfig{learned(MovingAverageMinMaxObserver::with_args({.reduce_range = true})),
                         learned(MinMaxObserver::with_args(
                             {.dtype = DType::QInt8, .qscheme = QScheme::PerTensorSymmetric}))}
               : usual;
    nn::QuantWrapper network(nn::make_module<nn::Sequential>(
        nn::Conv2d({.in_channels = 3, .out_channels = 6, .kernel_size = {3}}), nn::ReLU(),
        nn::MaxPool2d({.kernel_size = {2}}), nn::Dropout(0.3), nn::Flatten(),
        nn::Linear({.in_features = 54, .out_features = 4})));
    network.train();
    nn::QuantWrapper prepared = prepare_qat(network, qconfig);
    if (learns) {
      prepared(x);
      for (LearnableFakeQuantize* fake : learnable_parts(prepared)) fake->enable_param_learning();
    }
    check_training(prepared, x, target);
  }
}

}  // namespace quanta
