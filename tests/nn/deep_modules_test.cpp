#include <doctest/doctest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "quanta/fusion/prepare.h"
#include "quanta/nn/container.h"
#include "quanta/nn/misc.h"
#include "quanta/observers/defaults.h"
#include "quanta/runtime/error.h"

namespace quanta::nn {
namespace {

/// A Sequential with `below` modules below it, each in the one before, the last of them a layer.
std::shared_ptr<Sequential> chain(std::size_t below) {
  std::shared_ptr<Module> inner = make_module<Identity>();
  for (std::size_t i = 1; i < below; ++i) {
    auto outer = make_module<Sequential>();
    outer->push_back(std::move(inner));
    inner = std::move(outer);
  }
  auto root = make_module<Sequential>();
  root->push_back(std::move(inner));
  return root;
}

}  // namespace

TEST_CASE("Module: modules as deep as the limit are walked and called and copied") {
  const std::shared_ptr<Sequential> net = chain(kMaxModuleDepth);
  const Tensor x = Tensor::from_values({1.0F});
  CHECK((*net)(x).is_same(x));
  CHECK(net->named_modules().size() == kMaxModuleDepth + 1);
  CHECK(net->state_dict().size() == 0);
  CHECK_NOTHROW(net->load_state_dict(net->state_dict()));
  CHECK_NOTHROW(net->eval());
  CHECK_FALSE(to_string(*net).empty());
  CHECK(net->clone()->named_modules().size() == kMaxModuleDepth + 1);
}

TEST_CASE("Module: deeper trees are refused by what walks them and destroyed all the same") {
  for (const std::size_t below : {kMaxModuleDepth + 2, std::size_t{200000}}) {
    const std::shared_ptr<Sequential> net = chain(below);
    const Tensor x = Tensor::from_values({1.0F});
    const auto refused = [](const auto& call) {
      CHECK_THROWS_WITH_AS(call(), doctest::Contains("at most 1000 deep"), ArgumentError);
    };
    refused([&] { (*net)(x); });
    refused([&] { net->named_modules(); });
    refused([&] { net->parameters(); });
    refused([&] { net->state_dict(); });
    refused([&] { net->load_state_dict({}); });
    refused([&] { net->train(false); });
    CHECK(net->is_training());
    CHECK((*net)[0].is_training());
    refused([&] { net->clone(); });
    refused([&] { const Sequential copy = *net; });  // NOLINT: the copy is the point
    refused([&] { static_cast<void>(to_string(*net)); });
    refused([&] { prepare(*net, QConfigMapping(get_default_qconfig())); });
    CHECK((*net)[0].named_children().size() == 1);
  }
}

TEST_CASE("Module: a module within itself is refused by what would never end") {
  const auto net = make_module<Sequential>();
  net->push_back(make_module<Identity>());
  net->replace_child("0", net);
  CHECK_THROWS_AS(net->state_dict(), ArgumentError);
  CHECK_THROWS_AS((*net)(Tensor::from_values({1.0F})), ArgumentError);
  net->replace_child("0", make_module<Identity>());
  CHECK_NOTHROW(net->state_dict());
}

TEST_CASE("Module: a long chain ends where its slot gets another module") {
  Sequential net;
  net.push_back(chain(200000));
  net.replace_child("0", make_module<Identity>());
  CHECK(net.named_modules().size() == 2);
}

}  // namespace quanta::nn
