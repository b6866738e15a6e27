// Ranges that are trained: AIMET's quantizers stand as modules beside the convolutions of a small
// ResNet, with 4 bits for weights and activations. What the minimum and maximum of the data cost (a
// little with 4 bits, much with 3) is brought back by training ranges and weights together. Needs
// Debian's package dataset-fashion-mnist.
//
//   aimet_ranges [--bits N] [--epochs N] [--weights FLOAT-FILE] [--data FOLDER] [--images N]
//                [--test N] [--out FILE]

#include <cstdio>
#include <memory>
#include <string>

#include "console/measure.h"
#include "quanta/nn/data/fashion_mnist.h"
#include "quanta/quanta.h"
#include "support/help.h"
#include "support/train.h"

namespace {

namespace aimet = quanta::aimet;
namespace data = quanta::data;
namespace nn = quanta::nn;
namespace optim = quanta::optim;
using quanta::Tensor;
using quanta::console::top1;
using quanta::data::FashionMnist;
using quanta::examples::number_option;
using quanta::examples::option;
using quanta::nn::models::FashionResNet;

// A convolution whose weight has a range for each channel, and whose input has one in all.
struct QuantizedConv : nn::Module {
  nn::Child<nn::Conv2d> conv;
  nn::Child<aimet::QuantizeDequantize> input, weight;

  QuantizedConv(const nn::Conv2d& from, std::int64_t bits) {
    const std::int64_t channels = from.weight.size(0);
    register_module("conv", conv, from);
    register_module("input", input, {.bitwidth = bits, .symmetric = false});
    register_module("weight", weight,
                    {.shape = {channels, 1, 1, 1}, .bitwidth = bits, .symmetric = true});
  }
  Tensor forward(const Tensor& x) const override {
    return quanta::conv2d(input(x), weight(conv->weight), conv->bias,
                          {.stride = conv->options().stride, .padding = conv->options().padding});
  }
};

// The first convolution sees images: it stays as it is, as the classifier does.
void quantize_convs(FashionResNet& net, std::int64_t bits) {
  for (const auto& [path, module] : net.named_modules()) {
    const auto* conv = dynamic_cast<const nn::Conv2d*>(module);
    if (conv == nullptr || path == "conv1") continue;
    const std::size_t dot = path.rfind('.');
    net.get_submodule(path.substr(0, dot))
        ->replace_child(path.substr(dot + 1), nn::make_module<QuantizedConv>(*conv, bits));
  }
}

int run(int argc, char** argv) {
  const std::int64_t bits = number_option(argc, argv, "--bits", 4);
  const std::int64_t epochs = number_option(argc, argv, "--epochs", 1);
  const std::string weights =
      option(argc, argv, "--weights").value_or(QUANTA_DEMO_DATA_DIR "/fashion_resnet.safetensors");
  const std::string folder = option(argc, argv, "--data").value_or(FashionMnist::kDebianFolder);
  const FashionMnist train(folder, FashionMnist::Split::Train);
  const FashionMnist test(folder, FashionMnist::Split::Test);
  const std::int64_t images = number_option(argc, argv, "--images", train.size());
  const std::int64_t tested = number_option(argc, argv, "--test", test.size());

  FashionResNet net;
  load_state_dict(net, quanta::read_safetensors(weights));
  net.eval();
  const double float_top1 = top1(net, test, tested, "float");

  quantize_convs(net, bits);
  aimet::compute_encodings(net, [&] {
    for (std::int64_t begin = 0; begin < 1024; begin += 64) net(train.images(begin, 64));
  });
  const double min_max = top1(net, test, tested, "min/max");

  // Ranges move slower than weights, whose steps they are.
  std::vector<Tensor> ranges;
  std::vector<Tensor> others;
  net.requires_grad_();
  for (const auto& [path, parameter] : net.named_parameters()) {
    const bool is_range = path.ends_with(".min") || path.ends_with(".max");
    (is_range ? ranges : others).push_back(parameter);
  }
  const auto examples = std::make_shared<data::Subset>(train.dataset(), 0, images);
  data::DataLoader loader(examples, {.batch_size = 128,
                                     .shuffle = true,
                                     .drop_last = true,
                                     .transform = FashionMnist::normalization(),
                                     .seed = 1});
  net.train();
  optim::SGD optimizer(others, {.lr = 0.01, .momentum = 0.9});
  optimizer.add_param_group(ranges, 0.001, 0.0);
  optim::CosineAnnealingLR scheduler(optimizer, epochs * loader.size());
  optim::TrainingLoop loop({.model = net, .optimizer = optimizer, .scheduler = &scheduler},
                           {.max_grad_norm = 2.0});
  quanta::examples::train_epochs(net, loop, loader, epochs, "ranges and weights");
  net.requires_grad_(false);
  net.eval();
  const double trained = top1(net, test, tested, "trained");

  // What was trained comes back from a file, ranges and all.
  const std::string file =
      option(argc, argv, "--out").value_or("fashion_resnet_ranges.safetensors");
  quanta::write_safetensors(file, net.state_dict());
  FashionResNet again;
  again.eval();
  quantize_convs(again, bits);
  load_state_dict(again, quanta::read_safetensors(file));
  const Tensor sample = test.images(0, 64);
  const bool same = again(sample).equal(net(sample));

  std::printf(
      "top-1 in %%  float %.2f, %lld bits with min/max %.2f, trained %.2f; read again: %s\n",
      float_top1, static_cast<long long>(bits), min_max, trained, same ? "the same" : "different");
  return same && trained > min_max ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr const char* kUsage =
      "aimet_ranges [--bits N] [--epochs N] [--weights FLOAT-FILE] [--data FOLDER] [--images N]\n"
      "                    [--test N] [--out FILE]\n"
      "Trains ranges and weights of a ResNet with 4 (or N) bits together.";
  return quanta::examples::run_main(argc, argv, kUsage, [&] { return run(argc, argv); });
}
