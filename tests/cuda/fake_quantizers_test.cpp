// Fake quantizers (the modules) whose input is on a CUDA device: the same numbers as on the CPU,
// while what they gather stays on the CPU.

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cuda/devices_support.h"
#include "quanta/fusion/convert.h"
#include "quanta/fusion/prepare.h"
#include "quanta/fusion/quantize_dynamic.h"
#include "quanta/nn/aimet/affine_quantizer.h"
#include "quanta/nn/aimet/fake_quantize.h"
#include "quanta/nn/aimet/float_quantizer.h"
#include "quanta/nn/container.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/stubs.h"
#include "quanta/observers/defaults.h"
#include "quanta/observers/format_fake_quantize.h"
#include "quanta/observers/fused_fake_quantize.h"
#include "quanta/observers/histogram_observer.h"
#include "quanta/observers/learnable_fake_quantize.h"
#include "quanta/observers/min_max_observer.h"
#include "quanta/observers/modelopt/tensor_quantizer.h"
#include "quanta/observers/other_observers.h"
#include "quanta/runtime/cuda/emulation.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/capture_binding.h"

namespace quanta {
namespace {

using test::same_numbers;

const Device kDevice = test::test_device();
using Make = std::function<std::shared_ptr<FakeQuantizeBase>()>;

template <typename Kind, typename... Arguments>
Make make(const Arguments&... arguments) {
  return [=] { return std::make_shared<Kind>(arguments...); };
}

ObserverFactory channels_observer() {
  return MovingAveragePerChannelMinMaxObserver::with_args(
      {.dtype = DType::QInt8, .qscheme = QScheme::PerChannelSymmetric});
}

modelopt::QuantizerConfig modelopt_config(NumBits bits, const Dims& axis = {}) {
  modelopt::QuantizerConfig config;
  config.num_bits = bits;
  if (!axis.empty()) config.axis = modelopt::Axis{axis};
  return config;
}

modelopt::QuantizerConfig modelopt_blocks(NumBits bits, std::optional<NumBits> scale_bits,
                                          std::int64_t block) {
  modelopt::QuantizerConfig config;
  config.num_bits = bits;
  config.block_sizes =
      modelopt::BlockConfig{{{-1, block}}, modelopt::QuantType::Dynamic, scale_bits};
  return config;
}

// Observes two tensors, then quantizes a third one with what they had, on both devices.
void check_module(const Make& make_fake) {
  const auto passed = [&](Device device) {
    Generator generator(1);
    const std::shared_ptr<FakeQuantizeBase> fake = make_fake();
    CAPTURE(fake->name());
    // What is learned is where the module is, as Module::to has it.
    std::vector<Tensor> parameters;
    for (const auto& [name, value] : fake->named_parameters())
      parameters.push_back(value.to(device));
    fake->replace_parameters(parameters);
    std::vector<Tensor> results;
    for (int round = 0; round < 2; ++round) {
      const Tensor x = randn({3, 4, 32}, generator).to(device);
      results.push_back(fake->forward(x));
      CHECK(results.back().device() == device);
    }
    fake->disable_observer();
    Tensor last = randn({3, 4, 32}, generator).to(device);
    last.set_requires_grad();
    const Tensor y = fake->forward(last);
    y.backward(randn({3, 4, 32}, generator).to(device));
    results.push_back(y.detach());
    results.push_back(last.grad());
    StateDict state;
    fake->save_state(state, "");
    for (const auto& [name, tensor] : state) results.push_back(tensor.cpu());
    return results;
  };
  const std::vector<Tensor> expected = passed(Device::cpu());
  const std::vector<Tensor> got = passed(kDevice);
  REQUIRE(got.size() == expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(same_numbers(got[i], expected[i]));
  }
}

}  // namespace

TEST_CASE("cuda fake quantizers: torch's classes give the CPU's numbers") {
  check_module(make<FakeQuantize>());
  check_module(make<FakeQuantize>(HistogramObserver::with_args()));
  check_module(make<FakeQuantize>(channels_observer()));
  check_module(make<FusedMovingAvgObsFakeQuantize>(
      MovingAverageMinMaxObserver::with_args({.reduce_range = true})));
  check_module(make<FusedMovingAvgObsFakeQuantize>(channels_observer()));
  check_module(make<FixedQParamsFakeQuantize>(
      FixedQParamsObserver::with_args({.scale = 1.0 / 32.0, .zero_point = 128})));
  check_module(make<LearnableFakeQuantize>());
  check_module(make<LearnableFakeQuantize>(LearnableFakeQuantizeOptions{
      .observer = channels_observer(), .channel_len = 3, .use_grad_scaling = true}));
}

TEST_CASE("cuda fake quantizers: formats and AIMET's and ModelOpt's give the CPU's numbers") {
  check_module(make<FormatFakeQuantize>(FormatOptions{}));
  check_module(make<FormatFakeQuantize>(FormatOptions{.kind = FormatKind::DynamicBlocks,
                                                      .num_bits = NumBits::floating(2, 1),
                                                      .scale_bits = NumBits::floating(4, 3),
                                                      .block_size = 16}));
  check_module(make<FormatFakeQuantize>(FormatOptions{.kind = FormatKind::IntegerBlocks,
                                                      .num_bits = NumBits::integer(4),
                                                      .block_size = 5,
                                                      .block_axis = BlockAxis::Rows}));
  for (const bool symmetric : {false, true}) {
    check_module(make<AimetFakeQuantize>(
        aimet::QuantizeDequantize({.bitwidth = 8, .symmetric = symmetric})));
    check_module(make<AimetFakeQuantize>(
        aimet::QuantizeDequantize({.shape = {3, 1, 1}, .bitwidth = 4, .symmetric = symmetric})));
  }
}

TEST_CASE("cuda fake quantizers: ModelOpt's give the CPU's numbers") {
  const auto check = [](const auto& described) {
    check_module([=] {
      auto quantizer = std::make_shared<modelopt::TensorQuantizer>(described);
      quantizer->enable_calib();
      return quantizer;
    });
  };
  check(modelopt_config(NumBits::integer(8)));
  check(modelopt_config(NumBits::integer(4), {0}));
  check(modelopt_config(NumBits::floating(4, 3)));
  check(modelopt_blocks(NumBits::floating(2, 1), NumBits::floating(4, 3), 16));
  check(modelopt_blocks(NumBits::floating(2, 1), NumBits::floating(8, 0), 32));
  check(modelopt_blocks(NumBits::integer(5), std::nullopt, 32));
  check(modelopt_blocks(NumBits::integer(5), NumBits::integer(8), 8));
  modelopt::ScaledQuantDescriptor descriptor;
  descriptor.amax = Tensor::scalar(1.0);
  descriptor.scale_amax = 0.75;
  check(descriptor);
  descriptor.learn_amax = true;
  check(descriptor);
  modelopt::ScaledQuantDescriptor blocks;
  blocks.dialect = modelopt::ScaledQuantDescriptor::Dialect::ModelOpt;
  blocks.block_sizes = modelopt::BlockConfig{{{-1, 16}}, modelopt::QuantType::Dynamic};
  blocks.scale_amax = 0.5;
  check(blocks);
}

TEST_CASE("cuda fake quantizers: AIMET's parameters are learned on the CPU from a device's data") {
  const auto learned = [](Device device) {
    Generator generator(2);
    aimet::QuantizeDequantize quantizer({.bitwidth = 4, .symmetric = false});
    quantizer.set_range(-1.0, 1.5);
    quantizer.requires_grad_(true);
    const Tensor x = randn({40}, generator).to(device);
    quantizer.forward(x).backward(randn({40}, generator).to(device));
    std::vector<Tensor> gradients;
    for (const auto& [name, parameter] : quantizer.named_parameters()) {
      CHECK(parameter.grad().device().is_cpu());
      gradients.push_back(parameter.grad());
    }
    return gradients;
  };
  const std::vector<Tensor> expected = learned(Device::cpu());
  const std::vector<Tensor> got = learned(kDevice);
  for (std::size_t i = 0; i < got.size(); ++i) CHECK(same_numbers(got[i], expected[i]));
}

TEST_CASE("cuda fake quantizers: what has no kernel or is elsewhere is refused by name") {
  const Tensor x = Tensor::ones({2, 3}).to(kDevice);
  AimetFakeQuantize floats(aimet::FloatQuantizeDequantize({.dtype = "float16"}));
  CHECK_THROWS_WITH_AS(floats.forward(x), doctest::Contains("float_quantize_dequantize"),
                       UnsupportedError);
  LearnableFakeQuantize learned;
  CHECK_THROWS_WITH_AS(learned.forward(x), doctest::Contains("all on one device"), ArgumentError);
}

TEST_CASE("cuda fake quantizers: scale and zero point are copied when they change alone") {
  if (!kDevice.is_emulated()) {
    MESSAGE("skipped: transfers are counted on the emulated device");
    return;
  }
  Generator generator(3);
  const Tensor x = randn({4, 8}, generator).to(kDevice);
  for (const Make& make_fake :
       {make<FakeQuantize>(),
        make<FusedMovingAvgObsFakeQuantize>(MovingAverageMinMaxObserver::with_args())}) {
    const std::shared_ptr<FakeQuantizeBase> fake = make_fake();
    fake->forward(x);
    cuda::emulation::reset_counters();
    fake->forward(x);  // The range rests.
    fake->disable_observer();
    fake->forward(x);
    CHECK(cuda::emulation::counters().bytes_to_device == 0);
    fake->enable_observer();
    fake->forward(randn({4, 8}, generator).to(kDevice));
    CHECK(cuda::emulation::counters().bytes_to_device > 0);
    // And back on the CPU they are those of the CPU.
    CHECK(fake->forward(x.cpu()).device().is_cpu());
  }
}

TEST_CASE("cuda fake quantizers: learned parameters move with their module") {
  const ObserverFactory learned = LearnableFakeQuantize::with_args();
  nn::QuantWrapper network(nn::make_module<nn::Linear>(4, 3));
  network.train();
  nn::QuantWrapper prepared = prepare_qat(
      network, QConfig{learned, LearnableFakeQuantize::with_args(
                                    {.observer = channels_observer(), .channel_len = 3})});
  prepared.requires_grad_();
  prepared.to(kDevice);
  std::size_t scales = 0;
  for (const auto& [path, parameter] : prepared.named_parameters()) {
    CAPTURE_BINDING(path);
    CHECK(parameter.device() == kDevice);
    CHECK(parameter.requires_grad());
    CHECK(parameter.is_leaf());
    scales += path.ends_with("scale") ? 1 : 0;
  }
  CHECK(scales >= 3);
  const StateDict state = prepared.state_dict();
  prepared.to(Device::cpu());
  prepared.load_state_dict(state);
  for (const auto& [path, parameter] : prepared.named_parameters()) {
    CHECK(parameter.device().is_cpu());
  }
}

TEST_CASE("cuda fake quantizers: a network on a device is quantized dynamically and stays there") {
  Generator generator(4);
  nn::Sequential network(nn::Linear(8, 5), nn::Linear(5, 3));
  network.eval();
  const Tensor x = randn({6, 8}, generator);
  const nn::Sequential here = quantize_dynamic(network);
  network.to(kDevice);
  const nn::Sequential there = quantize_dynamic(network);
  const Tensor got = there(x.to(kDevice));
  CHECK(got.device() == kDevice);
  CHECK(same_numbers(got, here(x)));
}

TEST_CASE("cuda fake quantizers: a conversion that is refused leaves the network where it was") {
  nn::QuantWrapper network(nn::make_module<nn::Linear>(4, 3));
  network.eval();
  nn::QuantWrapper prepared = prepare(network, get_default_qconfig("fbgemm"));
  prepared.to(kDevice);
  const std::vector<Tensor> before = prepared.parameters();
  CHECK_THROWS_WITH_AS(convert_(prepared), doctest::Contains("saw no data"), ArgumentError);
  const std::vector<Tensor> after = prepared.parameters();
  REQUIRE(after.size() == before.size());
  for (std::size_t i = 0; i < after.size(); ++i) CHECK(after[i].is_same(before[i]));
}

}  // namespace quanta
