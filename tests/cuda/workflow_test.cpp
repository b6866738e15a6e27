// The eager workflow with the model on a CUDA device: prepare, calibrate, convert; and training with
// fake quantizers. Float products there are a library's, so ranges may differ from the CPU's by
// rounding; the converted network is the same on both.

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "quanta/fusion/convert.h"
#include "quanta/fusion/fuse_modules.h"
#include "quanta/fusion/prepare.h"
#include "quanta/nn/models/fashion.h"
#include "quanta/nn/optim/optimizer.h"
#include "quanta/observers/defaults.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/elementwise.h"
#include "quanta/ops/loss.h"
#include "quanta/runtime/random.h"
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

TEST_CASE("cuda workflow: a step of quantization-aware training on the device") {
  Generator generator(2);
  const Tensor x = randn({4, 1, 28, 28}, generator);
  const Tensor target = Tensor::from_span(std::vector<std::int64_t>{3, 1, 9, 0});
  nn::models::FashionResNet network;
  network.train();
  fuse_modules_qat(network, fusion_groups(network));
  const auto trained = [&](Device device) {
    nn::models::FashionResNet prepared = prepare_qat(network, get_default_qat_qconfig("fbgemm"));
    prepared.requires_grad_();
    prepared.to(device);
    optim::SGD optimizer(prepared.parameters(), {.lr = 0.01, .momentum = 0.9});
    std::vector<double> losses;
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      const Tensor loss = cross_entropy(prepared(x.to(device)), target.to(device));
      loss.backward();
      optimizer.step();
      losses.push_back(loss.item());
    }
    for (const auto& [path, parameter] : prepared.named_parameters()) {
      CAPTURE(path);
      CHECK(parameter.device() == device);
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

}  // namespace quanta
