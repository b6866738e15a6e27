// Trains a small ResNet on Fashion-MNIST from scratch and writes its weights, which the other
// examples quantize. A run that was stopped goes on from its checkpoint. Needs Debian's package
// dataset-fashion-mnist.
//
//   train_float [--epochs N] [--out WEIGHTS.safetensors] [--checkpoint FILE] [--data FOLDER]
//               [--images N]

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "console/measure.h"
#include "quanta/nn/data/fashion_mnist.h"
#include "quanta/quanta.h"
#include "support/help.h"
#include "support/train.h"

namespace {

namespace data = quanta::data;
namespace optim = quanta::optim;
using quanta::data::FashionMnist;
using quanta::examples::number_option;
using quanta::examples::option;
using quanta::nn::models::FashionResNet;

int run(int argc, char** argv) {
  const std::int64_t epochs = number_option(argc, argv, "--epochs", 8);
  const std::string out = option(argc, argv, "--out").value_or("fashion_resnet.safetensors");
  const std::string checkpoint = option(argc, argv, "--checkpoint").value_or(out + ".checkpoint");
  const std::string folder = option(argc, argv, "--data").value_or(FashionMnist::kDebianFolder);
  const FashionMnist train(folder, FashionMnist::Split::Train);
  const FashionMnist test(folder, FashionMnist::Split::Test);
  const std::int64_t images = number_option(argc, argv, "--images", train.size());

  // Each epoch sees the pictures in another order, half of them mirrored.
  data::DataLoader loader(std::make_shared<data::Subset>(train.dataset(), 0, images),
                          {.batch_size = 128,
                           .shuffle = true,
                           .drop_last = true,
                           .transform = data::compose(
                               {data::random_horizontal_flip(), FashionMnist::normalization()})});

  quanta::manual_seed(1);
  FashionResNet net;
  net.requires_grad_();
  optim::SGD optimizer(net.parameters(),
                       {.lr = 0.2, .momentum = 0.9, .weight_decay = 5e-4, .nesterov = true});
  // The learning rate rises, then falls to nearly nothing at the last step.
  optim::OneCycleLR scheduler(optimizer, {.max_lr = 0.2, .total_steps = epochs * loader.size()});
  optim::TrainingLoop loop({.model = net, .optimizer = optimizer, .scheduler = &scheduler},
                           {.checkpoint = checkpoint});
  quanta::examples::train_epochs(net, loop, loader, epochs, "training");

  net.eval();
  net.requires_grad_(false);
  const double accuracy = quanta::console::top1(net, test, test.size(), "test images");
  quanta::write_safetensors(net.state_dict(), out);
  std::filesystem::remove(checkpoint);  // the training is done
  std::printf("top-1 on %lld test images: %.2f %%, weights in %s\n",
              static_cast<long long>(test.size()), accuracy, out.c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr const char* kUsage =
      "train_float [--epochs N] [--out WEIGHTS.safetensors] [--checkpoint FILE] [--data FOLDER]\n"
      "                   [--images N]\n"
      "Trains fashion_resnet; writes fashion_resnet.safetensors without --out.";
  return quanta::examples::run_main(argc, argv, kUsage, [&] { return run(argc, argv); });
}
