#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "quanta/nn/container.h"
#include "quanta/nn/float_functional.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/stubs.h"

namespace quanta::networks {

/// A ranker of recommendations (Huang et al.: "Learning Deep Structured Semantic Models for Web Search
/// using Clickthrough Data", 2013, with layers behind both towers): what is known of a user and of an
/// item goes through four layers each, two more score both. x [N, 2 * num_features], the user's first;
/// result [N, 1]. The towers need nothing of each other.
struct TwoTower : nn::Module {
  nn::Child<nn::QuantStub> quant;
  nn::Child<nn::Sequential> user, item, score;
  nn::Child<nn::FloatFunctional> join;
  nn::Child<nn::DeQuantStub> dequant;

  explicit TwoTower(std::int64_t num_features = 512);
  Tensor forward(const Tensor& features) const override;

 private:
  std::int64_t num_features_;
};

std::vector<std::vector<std::string>> fusion_groups(const TwoTower& model);

}  // namespace quanta::networks
