#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "quanta/fusion/freeze.h"
#include "quanta/fusion/quantize.h"
#include "quanta/fusion/quantize_dynamic.h"
#include "quanta/nn/models/fashion.h"
#include "quanta/nn/models/mobilenet_v2.h"
#include "quanta/nn/models/mobilenet_v3.h"
#include "quanta/nn/models/recurrent.h"
#include "quanta/nn/models/resnet.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/conv.h"
#include "quanta/ops/elementwise.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/test_device.h"

// Whole networks on the device: the same program, the same codes.

namespace quanta {
namespace {

const Device kDevice = test::test_device();

template <typename Network>
void check_network(Network network, std::int64_t channels, std::int64_t size,
                   bool with_plan = true) {
  network.eval();
  Generator generator(3);
  std::vector<Tensor> batches;
  for (int i = 0; i < 2; ++i) batches.push_back(randn({2, channels, size, size}, generator));
  Network int8 = quantize(network, batches[0], batches);
  const Tensor x = randn({1, channels, size, size}, generator);
  const Tensor expected = int8(x);
  int8.to(kDevice);
  const Tensor got = int8(x.to(kDevice));
  CHECK(got.device() == kDevice);
  CHECK(got.cpu().equal(expected));
  if (with_plan) {
    // It keeps its memory there.
    const auto frozen = freeze(int8, x.to(kDevice));
    for (int run = 0; run < 2; ++run) CHECK(frozen(x.to(kDevice)).cpu().equal(expected));
    CHECK_THROWS_AS(frozen(x), ArgumentError);
  }
  // And back.
  int8.to(Device::cpu());
  CHECK(int8(x).equal(expected));
}

// A convolution and a sum that a plan makes one step of. Its zero point is not 0, as it is behind
// most relus.
struct Residual : nn::Module {
  quantized::ConvPackedParams conv;
  bool relu = false;

  Tensor forward(const Tensor& x) const override {
    const QTensor codes(quantize_per_tensor(x, 0.04, 121, DType::QUInt8));
    const QTensor y = quantized::conv(codes, conv, 0.11, 97);
    return dequantize(relu ? quantized::add_relu(y, codes, 0.13, 20)
                           : quantized::add(y, codes, 0.17, 110));
  }
};

}  // namespace

TEST_CASE("cuda networks: sums that a plan joins keep their zero point and their relu") {
  Generator generator(4);
  const QTensor weight = quantize_per_tensor(randn({8, 8, 3, 3}, generator), 0.02, 0, DType::QInt8);
  const Tensor x = randn({1, 8, 6, 7}, generator).contiguous(MemoryFormat::ChannelsLast);
  for (const bool relu : {false, true}) {
    Residual block;
    block.conv = {weight, randn({8}, generator), ConvOptions{.padding = {1}}, 2};
    block.relu = relu;
    block.eval();
    const Tensor expected = static_cast<const nn::Module&>(block)(x);
    const auto frozen = freeze(block, x.to(kDevice));
    CHECK(frozen.to_string().find(" + quantized::add") != std::string::npos);
    CHECK(frozen(x.to(kDevice)).cpu().equal(expected));
  }
}

TEST_CASE("cuda networks: a frozen float network gives the eager run's numbers") {
  nn::models::FashionResNet network;
  network.eval();
  network.to(kDevice);
  Generator generator(5);
  const auto frozen = freeze(network, randn({2, 1, 28, 28}, generator).to(kDevice));
  for (int run = 0; run < 3; ++run) {
    const Tensor x = randn({2, 1, 28, 28}, generator).to(kDevice);
    CHECK(frozen(x).cpu().equal(network(x).cpu()));
  }
}

TEST_CASE("cuda networks: a residual network gives the CPU's codes") {
  check_network(nn::models::FashionResNet(), 1, 28);
}

TEST_CASE("cuda networks: inverted residuals give the CPU's codes") {
  check_network(nn::models::FashionMobileNet(), 1, 28);
}

TEST_CASE("cuda networks: torchvision's networks give the CPU's codes") {
  check_network(nn::models::resnet18(10), 3, 32, false);
  check_network(nn::models::resnet50(10), 3, 32, false);
  check_network(nn::models::MobileNetV2({.num_classes = 10}), 3, 32, false);
  check_network(nn::models::MobileNetV3({.num_classes = 10}), 3, 32, false);
}

TEST_CASE("cuda networks: parameters move with the module, tied ones stay tied") {
  struct Tied : nn::Module {
    nn::Child<nn::Linear> first, second;
    Tied() {
      register_module("first", first, {.in_features = 3, .out_features = 3});
      register_module("second", second, {.in_features = 3, .out_features = 3});
      second->weight = first->weight;
    }
    Tensor forward(const Tensor& x) const override { return second(first(x)); }
  };
  Tied network;
  const Tensor before = network.first->weight;
  network.to(kDevice);
  CHECK(before.device().is_cpu());
  for (const auto& [path, tensor] : network.named_parameters()) CHECK(tensor.device() == kDevice);
  CHECK(network.first->weight.is_same(network.second->weight));
  const Tensor x = Tensor::ones({1, 3});
  const Tensor got = network(x.to(kDevice)).cpu();
  network.to(Device::cpu());
  CHECK(sub(got, network(x)).abs().max().item() < 1e-5);
  CHECK(network.first->weight.equal(before));
}

TEST_CASE("a dynamic network on the device: the CPU's floats") {
  nn::Sequential net{nn::Linear(20, 33), nn::ReLU(), nn::Linear(33, 7)};
  net.eval();
  auto int8 = quantize_dynamic(net);
  Generator generator(5);
  const Tensor x = randn({4, 3, 20}, generator);
  const Tensor expected = int8(x);
  int8.to(kDevice);
  CHECK(int8(x.to(kDevice)).cpu().equal(expected));
}

TEST_CASE("cuda networks: recurrent networks quantized dynamically give the CPU's floats") {
  const auto check = [](auto network) {
    network.eval();
    auto int8 = quantize_dynamic(network);
    Generator generator(6);
    const Tensor x = randn({3, 1, 28, 28}, generator);
    const Tensor expected = int8(x);
    int8.to(kDevice);
    CHECK(int8(x.to(kDevice)).cpu().equal(expected));
    const auto frozen = freeze(int8, x.to(kDevice));
    for (int run = 0; run < 2; ++run) CHECK(frozen(x.to(kDevice)).cpu().equal(expected));
  };
  check(nn::models::FashionLstm());
  check(nn::models::FashionGru());
}

}  // namespace quanta
