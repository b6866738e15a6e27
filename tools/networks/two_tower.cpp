#include "two_tower.h"

#include <fmt/format.h>

#include "quanta/nn/activation.h"

namespace quanta::networks {
namespace {

nn::Linear linear(std::int64_t in, std::int64_t out) {
  return nn::Linear({.in_features = in, .out_features = out});
}

nn::Sequential tower(std::int64_t features) {
  return nn::Sequential(linear(features, 512), nn::ReLU(), linear(512, 512), nn::ReLU(),
                        linear(512, 256), nn::ReLU(), linear(256, 128), nn::ReLU());
}

}  // namespace

TwoTower::TwoTower(std::int64_t num_features) : num_features_(num_features) {
  register_module("quant", quant);
  register_module("user", user, tower(num_features));
  register_module("item", item, tower(num_features));
  register_module("join", join);
  register_module("score", score, nn::Sequential(linear(256, 64), nn::ReLU(), linear(64, 1)));
  register_module("dequant", dequant);
}

Tensor TwoTower::forward(const Tensor& features) const {
  const Tensor x = quant(features);
  const Tensor of_user = user(x.slice(1, 0, num_features_));
  const Tensor of_item = item(x.slice(1, num_features_, 2 * num_features_));
  return dequant(score(join->cat({of_user, of_item}, 1)));
}

std::vector<std::vector<std::string>> fusion_groups(const TwoTower& /*model*/) {
  std::vector<std::vector<std::string>> groups{{"score.0", "score.1"}};
  for (const char* tower : {"user", "item"}) {
    for (const int linear : {0, 2, 4, 6}) {
      groups.push_back(
          {fmt::format("{}.{}", tower, linear), fmt::format("{}.{}", tower, linear + 1)});
    }
  }
  return groups;
}

}  // namespace quanta::networks
