// A network of one's own, written as in float, to int8 with one call: quanta::quantize finds the
// layers to fuse, checks the network, calibrates it and converts it. A sum, a gate and a function
// without an int8 form stand in forward as they are.

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "quanta/quanta.h"

namespace nn = quanta::nn;
using quanta::Tensor;

struct Block : nn::Module {
  nn::Child<nn::Conv2d> conv;
  nn::Child<nn::BatchNorm2d> bn;
  explicit Block(std::int64_t channels) {
    register_module(
        "conv", conv,
        {.in_channels = channels, .out_channels = channels, .kernel_size = {3}, .padding = {1}});
    register_module("bn", bn, {.num_features = channels});
  }
  Tensor forward(const Tensor& x) const override { return quanta::relu(x + bn(conv(x))); }
};

struct Net : nn::Module {
  nn::Child<nn::QuantStub> quant;  // int8 begins here
  nn::Child<nn::Conv2d> stem;
  nn::Child<nn::ReLU> relu;
  nn::Child<Block> block1, block2;
  nn::Child<nn::Linear> fc;
  nn::Child<nn::DeQuantStub> dequant;  // and ends here
  Net() {
    register_module("quant", quant);
    register_module("stem", stem,
                    {.in_channels = 3, .out_channels = 16, .kernel_size = {3}, .stride = {2}});
    register_module("relu", relu);
    register_module("block1", block1, 16);
    register_module("block2", block2, 16);
    register_module("fc", fc, {.in_features = 16, .out_features = 10});
    register_module("dequant", dequant);
    eval();
  }
  Tensor forward(const Tensor& image) const override {
    const Tensor x = block2(block1(relu(stem(quant(image)))));
    const Tensor gate = quanta::tanh(quanta::mean(x, quanta::Dims{2, 3}));
    return dequant(fc(quanta::exp(gate)));
  }
};

int main(int argc, char**) {
  if (argc > 1) {
    std::puts(
        "one_call: a network of one's own, with a sum and functions in forward, to int8.\n"
        "No options; prints what was fused, what runs in float, and the SQNR.");
    return 0;
  }
  quanta::manual_seed(1);
  quanta::Generator generator(2);
  const Net net;  // load_state_dict(net, read_safetensors("net.safetensors")) in real life
  std::vector<Tensor> batches;
  for (int i = 0; i < 8; ++i) batches.push_back(quanta::randn({8, 3, 32, 32}, generator));
  const Tensor& x = batches[0];

  for (const auto& group : quanta::find_fusion_groups(net, x)) {
    std::string names;
    for (const std::string& name : group) names += (names.empty() ? "" : " + ") + name;
    std::printf("fused: %s\n", names.c_str());
  }
  const Net int8 = quanta::quantize(net, x, batches);
  std::printf("SQNR: %.1f dB\n", quanta::sqnr(net(x), int8(x)));
  for (const quanta::FloatIsland& island : quanta::float_islands(int8)) {
    std::printf("%s\n", island.to_string().c_str());
  }

  // What one layer costs: leave it in float by name. Nothing in forward changes.
  for (const char* name : {"stem", "block1", "fc"}) {
    quanta::QuantizeOptions without;
    without.qconfigs.set_module_name(name, std::nullopt);
    const Net partly = quanta::quantize(net, x, batches, without);
    std::printf("SQNR with '%s' in float: %.1f dB\n", name, quanta::sqnr(net(x), partly(x)));
  }

  const auto frozen = quanta::freeze(int8, x, {.batch_sizes = {1, 8}});
  std::printf("frozen for 1 to any number of images: %zu steps, the same bits: %s\n",
              frozen.info().steps, frozen(x).equal(int8(x)) ? "yes" : "no");
}
