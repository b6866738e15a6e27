// Post-training static quantization, start to end: a network trained in float becomes an int8
// network, is saved, loaded again and compared. Run it without arguments on a machine that has
// Debian's package dataset-fashion-mnist.
//
//   static_quantization [WEIGHTS.safetensors [FOLDER-WITH-FASHION-MNIST]]

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>

#include "quanta/quanta.h"
#include "support/fashion_mnist.h"

namespace {

using quanta::QConfig;
using quanta::Tensor;
using quanta::examples::FashionMnist;
namespace nn = quanta::nn;

constexpr std::int64_t kBatch = 64;

// A network as PyTorch's users write it: children with PyTorch's names, and a forward that never
// changes, whoever occupies the slots. QuantStub and DeQuantStub mark where integers begin and end,
// the FloatFunctional gives the addition a scale of its own.
struct Block : nn::Module {
  nn::Child<nn::Conv2d> conv1, conv2;
  nn::Child<nn::BatchNorm2d> bn1, bn2;
  nn::Child<nn::ReLU> relu1, relu2;
  nn::Child<nn::Sequential> down;
  nn::Child<nn::FloatFunctional> add;

  Block(std::int64_t in, std::int64_t out, std::int64_t stride) {
    register_module("conv1", conv1, conv3x3(in, out, stride));
    register_module("bn1", bn1, nn::BatchNormOptions{.num_features = out});
    register_module("relu1", relu1);
    register_module("conv2", conv2, conv3x3(out, out, 1));
    register_module("bn2", bn2, nn::BatchNormOptions{.num_features = out});
    register_module("add", add);
    register_module("relu2", relu2);
    if (in == out && stride == 1) return;
    register_module("down", down);
    down->push_back(nn::make_module<nn::Conv2d>(nn::Conv2dOptions{
        .in_channels = in, .out_channels = out, .kernel_size = {1}, .stride = {stride}, .bias = false}));
    down->push_back(nn::make_module<nn::BatchNorm2d>(nn::BatchNormOptions{.num_features = out}));
  }

  static nn::Conv2dOptions conv3x3(std::int64_t in, std::int64_t out, std::int64_t stride) {
    return {.in_channels = in, .out_channels = out, .kernel_size = {3}, .stride = {stride}, .padding = {1}, .bias = false};
  }

  Tensor forward(const Tensor& x) const override {
    const Tensor y = bn2(conv2(relu1(bn1(conv1(x)))));
    return relu2(add->add(y, down ? down(x) : x));
  }
};

struct FashionResNet : nn::Module {
  nn::Child<nn::QuantStub> quant;
  nn::Child<nn::Conv2d> conv1;
  nn::Child<nn::BatchNorm2d> bn1;
  nn::Child<nn::ReLU> relu;
  nn::Child<nn::Sequential> layer1, layer2, layer3;
  nn::Child<nn::AdaptiveAvgPool2d> pool;
  nn::Child<nn::Linear> fc;
  nn::Child<nn::DeQuantStub> dequant;

  FashionResNet() {
    register_module("quant", quant);
    register_module("conv1", conv1, Block::conv3x3(1, 16, 1));
    register_module("bn1", bn1, nn::BatchNormOptions{.num_features = 16});
    register_module("relu", relu);
    add_layer("layer1", layer1, 16, 16, 1);
    add_layer("layer2", layer2, 16, 32, 2);
    add_layer("layer3", layer3, 32, 64, 2);
    register_module("pool", pool, quanta::Dims{1});
    register_module("fc", fc, nn::LinearOptions{.in_features = 64, .out_features = 10});
    register_module("dequant", dequant);
  }

  void add_layer(const char* name, nn::Child<nn::Sequential>& layer, std::int64_t in, std::int64_t out, std::int64_t stride) {
    register_module(name, layer);
    layer->push_back(nn::make_module<Block>(in, out, stride));
    layer->push_back(nn::make_module<Block>(out, out, 1));
  }

  Tensor forward(const Tensor& x) const override {
    const Tensor y = layer3(layer2(layer1(relu(bn1(conv1(quant(x)))))));
    return dequant(fc(pool(y).flatten(1)));
  }
};

// Which neighbours become one layer.
std::vector<std::vector<std::string>> fusion_groups() {
  std::vector<std::vector<std::string>> groups{{"conv1", "bn1", "relu"}};
  for (const std::string layer : {"layer1", "layer2", "layer3"}) {
    for (const std::string block : {layer + ".0.", layer + ".1."}) {
      groups.push_back({block + "conv1", block + "bn1", block + "relu1"});
      groups.push_back({block + "conv2", block + "bn2"});
    }
    if (layer != "layer1") groups.push_back({layer + ".0.down.0", layer + ".0.down.1"});
  }
  return groups;
}

double top1(const nn::Module& model, const FashionMnist& test) {
  std::int64_t right = 0;
  for (std::int64_t begin = 0; begin < test.size(); begin += kBatch) {
    const std::int64_t count = std::min(kBatch, test.size() - begin);
    const std::vector<float> logits = model(test.images(begin, count)).to_float_vector();
    for (std::int64_t i = 0; i < count; ++i) {
      const auto row = logits.begin() + i * 10;
      right += std::max_element(row, row + 10) - row == test.label(begin + i) ? 1 : 0;
    }
  }
  return 100.0 * static_cast<double>(right) / static_cast<double>(test.size());
}

int run(const std::string& weights, const std::string& folder) {
  const FashionMnist train(folder, FashionMnist::Split::Train);
  const FashionMnist test(folder, FashionMnist::Split::Test);

  FashionResNet net;
  load_state_dict(net, quanta::read_safetensors(weights));
  net.eval();
  std::printf("float top-1: %.2f %%\n", top1(net, test));

  quanta::fuse_modules(net, fusion_groups());
  auto prepared = quanta::prepare(net, quanta::get_default_qconfig());
  for (std::int64_t i = 0; i < 1024; i += kBatch) prepared(train.images(i, kBatch));
  const auto int8 = quanta::convert(prepared);
  std::printf("int8 top-1:  %.2f %%\n", top1(int8, test));

  const std::string file = "fashion_resnet_int8.safetensors";
  quanta::save_model(int8, file);
  FashionResNet loaded;
  loaded.eval();
  quanta::load_model(loaded, file);
  const Tensor probe = test.images(0, kBatch);
  const bool same = loaded(probe).equal(int8(probe));
  std::printf("%s: loaded again, outputs %s\n", file.c_str(), same ? "identical" : "differ");
  return same ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : QUANTA_DEMO_DATA_DIR "/fashion_resnet.safetensors",
               argc > 2 ? argv[2] : FashionMnist::kDebianFolder);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
