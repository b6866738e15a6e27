#include <doctest/doctest.h>

#include <set>
#include <string>
#include <vector>

#include "quanta/nn/models/fashion.h"
#include "quanta/nn/models/mobilenet_v2.h"
#include "quanta/nn/models/resnet.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "quanta/runtime/safetensors.h"
#include "support/paths.h"

namespace quanta::nn::models {
namespace {

std::string data(const std::string& name) {
  return (test::source_folder() / "examples" / "data" / name).string();
}

// Every path of the groups leads to a module and none stands twice.
void check_groups(const Module& model, const std::vector<std::vector<std::string>>& groups) {
  std::set<std::string> seen;
  for (const auto& group : groups) {
    CHECK(group.size() >= 2);
    for (const std::string& path : group) {
      CHECK(seen.insert(path).second);
      CHECK_NOTHROW(static_cast<void>(model.get_submodule(path)));
    }
  }
}

TEST_CASE("FashionResNet: the checkpoint loads strictly and the network runs") {
  FashionResNet model;
  const LoadResult result =
      model.load_state_dict(read_safetensors(data("fashion_resnet.safetensors")));
  CHECK(result.missing_keys.empty());
  CHECK(result.unexpected_keys.empty());
  model.eval();
  manual_seed(2);
  const Tensor y = model(randn({2, 1, 28, 28}));
  CHECK(y.sizes() == Dims{2, 10});
  check_groups(model, fusion_groups(model));
  CHECK(fusion_groups(model).size() == 1 + 6 * 2 + 2);
}

TEST_CASE("FashionMobileNet: the checkpoint loads strictly and the network runs") {
  FashionMobileNet model;
  const LoadResult result =
      model.load_state_dict(read_safetensors(data("fashion_mobilenet.safetensors")));
  CHECK(result.missing_keys.empty());
  CHECK(result.unexpected_keys.empty());
  model.eval();
  CHECK(model(randn({2, 1, 28, 28})).sizes() == Dims{2, 10});
  check_groups(model, fusion_groups(model));
  CHECK(fusion_groups(model).size() == 2 + 5 * 3);
}

TEST_CASE("ResNet-18: state has torchvision's names and sizes") {
  ResNet model = resnet18(1000);
  const StateDict state = model.state_dict();
  // 20 convolutions, 20 batch norms of five entries, one linear layer of two.
  CHECK(state.size() == 20 + 20 * 5 + 2);
  CHECK(state.at("conv1.weight").sizes() == Dims{64, 3, 7, 7});
  CHECK(state.at("layer2.0.downsample.0.weight").sizes() == Dims{128, 64, 1, 1});
  CHECK(state.at("layer4.1.bn2.num_batches_tracked").dim() == 0);
  CHECK(state.at("fc.weight").sizes() == Dims{1000, 512});
  std::int64_t parameters = 0;
  for (const Tensor& tensor : model.parameters()) parameters += tensor.numel();
  CHECK(parameters == 11689512);
  model.eval();
  CHECK(model(randn({1, 3, 64, 64})).sizes() == Dims{1, 1000});
  check_groups(model, fusion_groups(model));
  CHECK(fusion_groups(model).size() == 20);
}

TEST_CASE("ResNet-50: state has torchvision's names and sizes") {
  const ResNet model = resnet50(1000);
  const StateDict state = model.state_dict();
  CHECK(state.size() == 53 + 53 * 5 + 2);
  CHECK(state.at("layer1.0.downsample.0.weight").sizes() == Dims{256, 64, 1, 1});
  CHECK(state.at("layer3.5.conv3.weight").sizes() == Dims{1024, 256, 1, 1});
  std::int64_t parameters = 0;
  for (const Tensor& tensor : model.parameters()) parameters += tensor.numel();
  CHECK(parameters == 25557032);
  check_groups(model, fusion_groups(model));
  CHECK(fusion_groups(model).size() == 53);
  CHECK_THROWS_AS(ResNet({.layers = {2, 0, 2, 2}}), ArgumentError);
}

TEST_CASE("MobileNetV2: state has torchvision's names and sizes") {
  MobileNetV2 model;
  const StateDict state = model.state_dict();
  CHECK(state.size() == 52 + 52 * 5 + 2);
  CHECK(state.at("features.0.0.weight").sizes() == Dims{32, 3, 3, 3});
  CHECK(state.at("features.1.conv.0.0.weight").sizes() == Dims{32, 1, 3, 3});
  CHECK(state.at("features.1.conv.1.weight").sizes() == Dims{16, 32, 1, 1});
  CHECK(state.at("features.2.conv.3.running_mean").sizes() == Dims{24});
  CHECK(state.at("features.18.0.weight").sizes() == Dims{1280, 320, 1, 1});
  CHECK(state.at("classifier.1.weight").sizes() == Dims{1000, 1280});
  std::int64_t parameters = 0;
  for (const Tensor& tensor : model.parameters()) parameters += tensor.numel();
  CHECK(parameters == 3504872);
  model.eval();
  CHECK(model(randn({1, 3, 64, 64})).sizes() == Dims{1, 1000});
  const auto pairs = fusion_groups(model);
  check_groups(model, pairs);
  CHECK(pairs.size() == 52);
  CHECK(pairs.front().size() == 2);

  const MobileNetV2 with_relu(
      {.num_classes = 10, .width_mult = 0.5, .activation = MobileNetActivation::ReLU});
  check_groups(with_relu, fusion_groups(with_relu));
  CHECK(fusion_groups(with_relu).front().size() == 3);
  CHECK(with_relu.state_dict().at("features.0.0.weight").sizes() == Dims{16, 3, 3, 3});
}

}  // namespace
}  // namespace quanta::nn::models
