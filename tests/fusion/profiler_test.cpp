#include "quanta/runtime/profiler.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "quanta/fusion/convert.h"
#include "quanta/fusion/freeze.h"
#include "quanta/fusion/fuse_modules.h"
#include "quanta/fusion/prepare.h"
#include "quanta/nn/activation.h"
#include "quanta/nn/container.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/rnn.h"
#include "quanta/nn/stubs.h"
#include "support/tensors.h"

namespace quanta {
namespace {

struct Body : nn::Module {
  nn::Child<nn::Conv2d> conv;
  nn::Child<nn::ReLU> relu;
  Body() {
    register_module("conv", conv,
                    nn::Conv2dOptions{.in_channels = 3, .out_channels = 8, .kernel_size = {3}});
    register_module("relu", relu);
  }
  Tensor forward(const Tensor& x) const override { return relu(conv(x)); }
};

struct Network : nn::Module {
  nn::Child<nn::QuantStub> quant;
  nn::Child<Body> body;
  nn::Child<nn::DeQuantStub> dequant;
  Network() {
    register_module("quant", quant);
    register_module("body", body);
    register_module("dequant", dequant);
  }
  Tensor forward(const Tensor& x) const override { return dequant(body(quant(x))); }
};

std::vector<std::string> paths(const std::vector<ModuleProfile>& rows) {
  std::vector<std::string> result;
  for (const ModuleProfile& row : rows) result.push_back(row.path);
  return result;
}

const ModuleProfile& row(const std::vector<ModuleProfile>& rows, const std::string& path) {
  const auto found = std::find_if(rows.begin(), rows.end(),
                                  [&](const ModuleProfile& each) { return each.path == path; });
  REQUIRE(found != rows.end());
  return *found;
}

Tensor images() { return test::random_tensor({2, 3, 6, 6}, 3); }

// Products of the convolution above: 2 images, 4 x 4 positions, 8 channels, 3 x 3 x 3 each.
constexpr std::int64_t kProducts = 2 * 4 * 4 * 8 * 3 * 3 * 3;
constexpr std::int64_t kWeights = 8 * 3 * 3 * 3;

}  // namespace

TEST_CASE("Profiler: ops stand under the path of the module that ran them") {
  Network net;
  net.eval();
  // The copies of weights that the first call packs are operations too.
  const Tensor x = images().contiguous(MemoryFormat::ChannelsLast);
  net(x);
  Profiler profiler;
  net(x);
  net(x);
  const std::vector<ModuleProfile> rows = profiler.modules();
  CHECK(paths(rows) == std::vector<std::string>{"body.conv", "body.relu"});
  const ModuleProfile conv = row(rows, "body.conv");
  CHECK(conv.calls == 2);
  CHECK(conv.ops == std::vector<std::string>{"conv2d"});
  CHECK(conv.work.multiply_adds == 2 * kProducts);
  CHECK(conv.work.bytes == 2 * 4 * (2 * 3 * 36 + 2 * 8 * 16 + kWeights));
  CHECK(conv.op_us <= conv.inclusive_us);
  CHECK(row(rows, "body.relu").work.bytes == 2 * 2 * 4 * 2 * 8 * 16);
}

TEST_CASE("Profiler: modules are slices that hold their children's") {
  Network net;
  net.eval();
  Profiler profiler;
  net(images());
  const auto find = [&](const std::string& path) -> const ProfileEvent& {
    const auto found = std::find_if(
        profiler.events().begin(), profiler.events().end(), [&](const ProfileEvent& event) {
          return event.kind == ProfileEvent::Kind::Module && event.module == path;
        });
    REQUIRE(found != profiler.events().end());
    return *found;
  };
  const ProfileEvent& whole = find("");
  CHECK(whole.name == "Network");
  const ProfileEvent& body = find("body");
  const ProfileEvent& conv = find("body.conv");
  CHECK(body.name == "body");
  CHECK(whole.start_us <= body.start_us);
  CHECK(body.start_us <= conv.start_us);
  CHECK(conv.start_us + conv.duration_us <= body.start_us + body.duration_us);
  CHECK(body.start_us + body.duration_us <= whole.start_us + whole.duration_us);
  CHECK(profiler.events().back().name == "Network");
}

TEST_CASE("Profiler: a converted network has the same paths with int8 ops and bytes") {
  Network net;
  net.eval();
  fuse_modules(net, {{"body.conv", "body.relu"}});
  const Network prepared = prepare(net, get_default_qconfig());
  prepared(images());
  const Network int8 = convert(prepared);
  Profiler profiler;
  int8(images());
  const std::vector<ModuleProfile> rows = profiler.modules();
  CHECK(paths(rows) == std::vector<std::string>{"quant", "body.conv", "dequant"});
  const ModuleProfile conv = row(rows, "body.conv");
  CHECK(conv.ops == std::vector<std::string>{"quantized::conv2d_relu"});
  CHECK(conv.work.multiply_adds == kProducts);
  CHECK(conv.work.bytes == 2 * 3 * 36 + 2 * 8 * 16 + kWeights);
  CHECK(row(rows, "quant").work.bytes == (4 + 1) * 2 * 3 * 36);
  CHECK(row(rows, "dequant").work.bytes == (4 + 1) * 2 * 8 * 16);
}

TEST_CASE("Profiler: steps of a frozen network stand under the modules they were recorded in") {
  Network net;
  net.eval();
  fuse_modules(net, {{"body.conv", "body.relu"}});
  const Network prepared = prepare(net, get_default_qconfig());
  prepared(images());
  const FrozenModel frozen = freeze(convert(prepared), images());
  Profiler profiler;
  frozen(images());
  const std::vector<std::string> seen = paths(profiler.modules());
  CHECK(std::find(seen.begin(), seen.end(), "body.conv") != seen.end());
  CHECK(std::find(seen.begin(), seen.end(), "") == seen.end());
}

TEST_CASE("Profiler: a profiler that begins within a module knows where it is") {
  std::vector<std::string> seen;
  nn::Sequential net;
  auto linear = nn::make_module<nn::Linear>(nn::LinearOptions{.in_features = 4, .out_features = 2});
  net.add_module("first", linear);
  linear->register_forward_hook([&](const nn::Module&, const Tensor&, const Tensor& output) {
    Profiler profiler;
    Tensor result = nn::ReLU().forward(output);
    for (const ProfileEvent& event : profiler.events()) seen.push_back(event.module);
    return result;
  });
  net.eval();
  net(Tensor::ones({1, 4}));
  CHECK(seen == std::vector<std::string>{"first"});
}

TEST_CASE("Profiler: a recurrent layer reports the products of all its steps") {
  nn::LSTM lstm({.input_size = 5, .hidden_size = 7});
  lstm.eval();
  Profiler profiler;
  lstm(Tensor::ones({3, 2, 5}));
  std::int64_t products = 0;
  for (const ModuleProfile& each : profiler.modules()) products += each.work.multiply_adds;
  CHECK(products == 3 * 2 * 4 * 7 * (5 + 7));
}

}  // namespace quanta
