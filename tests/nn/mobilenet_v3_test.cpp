#include "quanta/nn/models/mobilenet_v3.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "quanta/fusion/convert.h"
#include "quanta/fusion/fuse_modules.h"
#include "quanta/fusion/prepare.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "quanta/runtime/tensor.h"
#include "support/compare.h"

namespace quanta::nn::models {
namespace {

using test::sqnr_db;

std::int64_t count_parameters(const Module& model) {
  std::int64_t count = 0;
  for (const Tensor& tensor : model.parameters()) count += tensor.numel();
  return count;
}

// How many modules of each type the tree holds, by type name.
std::size_t count_type(const Module& model, const std::string& type) {
  const auto modules = model.named_modules();
  return static_cast<std::size_t>(
      std::count_if(modules.begin(), modules.end(),
                    [&](const auto& entry) { return entry.module->type_name() == type; }));
}

std::size_t count_groups(const MobileNetV3& model, std::size_t size) {
  const auto groups = fusion_groups(model);
  return static_cast<std::size_t>(std::count_if(
      groups.begin(), groups.end(), [&](const auto& group) { return group.size() == size; }));
}

// In eval mode, with weights that carry a signal through all layers: new layers shrink it.
MobileNetV3 lively(const MobileNetV3Options& options) {
  manual_seed(20);
  MobileNetV3 model(options);
  StateDict state = model.state_dict();
  for (const auto& [name, tensor] : model.state_dict()) {
    if (tensor.dim() >= 2) state.set(name, mul_scalar(tensor, std::sqrt(6.0)));
  }
  model.load_state_dict(state);
  model.eval();
  return model;
}

// The converted form, the float model fused on the way.
MobileNetV3 quantized(MobileNetV3& model, const Tensor& calibration) {
  fuse_modules(model, fusion_groups(model));
  const MobileNetV3 prepared = prepare(model, get_default_qconfig("x86"));
  prepared(calibration);
  return convert(prepared);
}

void check_int8(const MobileNetV3Options& options, double least_sqnr_db) {
  MobileNetV3 model = lively(options);
  const Tensor x = randn({8, 3, 64, 64});
  const Tensor before = model(x);
  const MobileNetV3 int8 = quantized(model, x);
  CHECK(count_type(model, "BatchNorm2d") == 0);
  CHECK(sqnr_db(before, model(x)) > 100.0);
  const Tensor y = int8(x);
  CHECK(y.sizes() == before.sizes());
  CHECK(sqnr_db(before, y) > least_sqnr_db);
  for (const char* type : {"Conv2d", "ConvReLU2d", "Linear", "Hardswish", "FloatFunctional"}) {
    CHECK_MESSAGE(count_type(int8, type) == 0, type);
  }
}

TEST_CASE("MobileNetV3: the large network's state has torchvision's names and sizes") {
  MobileNetV3 model = mobilenet_v3_large();
  const StateDict state = model.state_dict();
  CHECK(state.size() == 312);
  CHECK(count_parameters(model) == 5483032);
  CHECK(state.at("features.0.0.weight").sizes() == Dims{16, 3, 3, 3});
  CHECK(state.at("features.1.block.0.0.weight").sizes() == Dims{16, 1, 3, 3});
  CHECK(state.at("features.1.block.1.1.running_var").sizes() == Dims{16});
  CHECK(state.at("features.4.block.1.0.weight").sizes() == Dims{72, 1, 5, 5});
  CHECK(state.at("features.4.block.2.fc1.weight").sizes() == Dims{24, 72, 1, 1});
  CHECK(state.at("features.4.block.2.fc1.bias").sizes() == Dims{24});
  CHECK(state.at("features.4.block.2.fc2.weight").sizes() == Dims{72, 24, 1, 1});
  CHECK(state.at("features.15.block.3.0.weight").sizes() == Dims{160, 960, 1, 1});
  CHECK(state.at("features.16.1.num_batches_tracked").dim() == 0);
  CHECK(state.at("features.16.0.weight").sizes() == Dims{960, 160, 1, 1});
  CHECK(state.at("classifier.0.weight").sizes() == Dims{1280, 960});
  CHECK(state.at("classifier.3.weight").sizes() == Dims{1000, 1280});
  CHECK(count_type(model, "SqueezeExcitation") == 8);
  CHECK(count_type(model, "Hardswish") == 21);
  CHECK(count_type(model, "ReLU6") == 0);
}

TEST_CASE("MobileNetV3: the small network's state has torchvision's names and sizes") {
  MobileNetV3 model = mobilenet_v3_small();
  const StateDict state = model.state_dict();
  CHECK(state.size() == 244);
  CHECK(count_parameters(model) == 2542856);
  CHECK(state.at("features.1.block.1.fc1.weight").sizes() == Dims{8, 16, 1, 1});
  CHECK(state.at("features.9.block.2.fc2.bias").sizes() == Dims{288});
  CHECK(state.at("features.12.0.weight").sizes() == Dims{576, 96, 1, 1});
  CHECK(state.at("classifier.0.weight").sizes() == Dims{1024, 576});
  CHECK(state.at("classifier.3.weight").sizes() == Dims{1000, 1024});
  CHECK(count_type(model, "ReLU6") == 0);
}

TEST_CASE("MobileNetV3: width and tail change the sizes as torchvision does") {
  MobileNetV3 narrow({.width_mult = 0.75, .reduced_tail = true});
  CHECK(count_parameters(narrow) == 1620728);
  CHECK(narrow.state_dict().at("features.16.0.weight").sizes() == Dims{384, 64, 1, 1});
  CHECK(count_parameters(MobileNetV3(
            {.size = MobileNetV3Size::Small, .width_mult = 0.75, .reduced_tail = true})) == 752848);
  CHECK_THROWS_WITH_AS(MobileNetV3({.width_mult = 0.0}),
                       doctest::Contains("width_mult: expected more than 0, got 0"), ArgumentError);
}

TEST_CASE("MobileNetV3: a dilated tail keeps the weights and the size of the feature map") {
  MobileNetV3 plain({.size = MobileNetV3Size::Small, .num_classes = 10});
  MobileNetV3 dilated({.size = MobileNetV3Size::Small, .num_classes = 10, .dilated = true});
  plain.eval();
  dilated.eval();
  CHECK(count_parameters(dilated) == count_parameters(plain));
  const Tensor x = randn({1, 3, 64, 64});
  CHECK(plain.features(x).sizes() == Dims{1, 576, 2, 2});
  CHECK(dilated.features(x).sizes() == Dims{1, 576, 4, 4});
}

TEST_CASE("MobileNetV3: only the blocks that keep their sizes add") {
  const MobileNetV3 model = mobilenet_v3_large();
  CHECK(count_type(model, "MobileNetV3Block") == 15);
  // One more than these for each squeeze-and-excitation.
  CHECK(count_type(model, "FloatFunctional") == 10 + 8);
}

TEST_CASE("MobileNetV3: fusion joins what torchvision's fuse_model joins") {
  const MobileNetV3 large = mobilenet_v3_large();
  // 46 convolutions with a batch norm, 11 of them with ReLU, and fc1 with ReLU in 8 blocks.
  CHECK(fusion_groups(large).size() == 54);
  CHECK(count_groups(large, 3) == 11);
  CHECK(fusion_groups(mobilenet_v3_small()).size() == 43);
  std::set<std::string> seen;
  for (const auto& group : fusion_groups(large)) {
    for (const std::string& path : group) CHECK(seen.insert(path).second);
  }
  CHECK(seen.contains("features.4.block.2.activation"));

  MobileNetV3 model({.size = MobileNetV3Size::Small, .num_classes = 10});
  model.eval();
  fuse_modules(model, fusion_groups(model));
  CHECK(count_type(model, "BatchNorm2d") == 0);
  CHECK(model.get_submodule("features.1.block.1.fc1")->type_name() == "ConvReLU2d");
  CHECK(model.get_submodule("features.1.block.1.activation")->type_name() == "Identity");
  CHECK(model.get_submodule("features.0.0")->type_name() == "Conv2d");
}

TEST_CASE("SqueezeExcitation: channels are scaled by the gate of their averages") {
  manual_seed(21);
  constexpr std::int64_t kChannels = 17;
  constexpr std::int64_t kSqueezed = 5;
  constexpr std::int64_t kPixels = 6;
  SqueezeExcitation gate(kChannels, kSqueezed);
  gate.eval();
  const Tensor x = randn({2, kChannels, 2, 3});
  const std::vector<float> in = x.to_float_vector();
  const std::vector<float> out = gate(x).to_float_vector();
  const auto dot = [](const Conv2d& layer, const std::vector<double>& y, std::size_t row) {
    const std::vector<float> weight = layer.weight.to_float_vector();
    double sum = static_cast<double>(layer.bias.to_float_vector()[row]);
    for (std::size_t i = 0; i < y.size(); ++i) {
      sum += static_cast<double>(weight[row * y.size() + i]) * y[i];
    }
    return sum;
  };
  for (std::size_t sample = 0; sample < 2; ++sample) {
    const std::size_t start = sample * kChannels * kPixels;
    std::vector<double> average(kChannels, 0.0);
    for (std::size_t i = 0; i < kChannels * kPixels; ++i) {
      average[i / kPixels] += static_cast<double>(in[start + i]) / kPixels;
    }
    std::vector<double> squeezed(kSqueezed);
    for (std::size_t i = 0; i < kSqueezed; ++i) {
      squeezed[i] = std::max(0.0, dot(*gate.fc1.operator->(), average, i));
    }
    for (std::size_t i = 0; i < kChannels * kPixels; ++i) {
      const double scale = dot(*gate.fc2.operator->(), squeezed, i / kPixels);
      const double want =
          std::clamp(scale / 6.0 + 0.5, 0.0, 1.0) * static_cast<double>(in[start + i]);
      CHECK(static_cast<double>(out[start + i]) == doctest::Approx(want).epsilon(1e-5));
    }
  }
}

TEST_CASE("MobileNetV3: int8 is close to float for the large network") {
  check_int8({.num_classes = 10}, 12.0);
}

TEST_CASE("MobileNetV3: int8 is close to float for the small network") {
  check_int8({.size = MobileNetV3Size::Small, .num_classes = 10}, 20.0);
}

TEST_CASE("MobileNetV3: int8 is close to float with a dilated tail") {
  check_int8({.size = MobileNetV3Size::Small, .num_classes = 10, .dilated = true}, 25.0);
}

TEST_CASE("MobileNetV3: an int8 state loads into a model that saw no data") {
  const MobileNetV3Options options{.size = MobileNetV3Size::Small, .num_classes = 10};
  MobileNetV3 model = lively(options);
  const Tensor x = randn({2, 3, 32, 32});
  const MobileNetV3 int8 = quantized(model, x);
  MobileNetV3 fresh(options);
  fresh.eval();
  fuse_modules(fresh, fusion_groups(fresh));
  MobileNetV3 loaded =
      convert(prepare(fresh, get_default_qconfig("x86")), {.uncalibrated = Uncalibrated::Allow});
  // torchvision's converted networks have these for every block.
  StateDict state = int8.state_dict();
  state.set("features.1.skip_add.scale", Tensor::scalar(1.0));
  state.set("features.1.skip_add.zero_point", Tensor::scalar(0.0, DType::Int64));
  loaded.load_state_dict(state);
  CHECK(loaded(x).equal(int8(x)));
}

TEST_CASE("MobileNetV3: the network trains with quantization in the loop and converts") {
  manual_seed(22);
  MobileNetV3 model({.size = MobileNetV3Size::Small, .num_classes = 10});
  fuse_modules_qat(model, fusion_groups(model));
  MobileNetV3 prepared = prepare_qat(model, get_default_qat_qconfig("x86"));
  const Tensor x = randn({4, 3, 64, 64});
  prepared(x);
  prepared.eval();
  const MobileNetV3 int8 = convert(prepared);
  CHECK(int8(x).sizes() == Dims{4, 10});
  CHECK(count_type(int8, "ConvBnReLU2d") == 0);
}

}  // namespace
}  // namespace quanta::nn::models
