// One network in every number format: a float network's weights and activations are rounded to
// int8, fp8, MXFP4 and others where each layer begins and ends, while the arithmetic stays float.
// That tells what a format would cost in accuracy before there is a kernel for it. Needs Debian's
// package dataset-fashion-mnist.
//
//   formats [IMAGES [FOLDER-WITH-FASHION-MNIST [WEIGHTS.safetensors]]]

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "console/measure.h"
#include "quanta/nn/data/fashion_mnist.h"
#include "quanta/quanta.h"
#include "support/help.h"

namespace {

using quanta::NumberFormat;
using quanta::QConfigMapping;
using quanta::Tensor;
using quanta::console::top1;
using quanta::data::FashionMnist;
using quanta::nn::Module;
using quanta::nn::models::FashionResNet;

constexpr std::int64_t kBatch = 64;
constexpr std::int64_t kCalibrationImages = 512;

int run(std::int64_t images, const std::string& folder, const std::string& weights) {
  const FashionMnist train(folder, FashionMnist::Split::Train);
  const FashionMnist test(folder, FashionMnist::Split::Test);
  images = std::clamp<std::int64_t>(images, 1, test.size());

  FashionResNet network;
  load_state_dict(network, quanta::read_safetensors(weights));
  network.eval();
  // conv + bn + relu become one layer, so that its result is rounded once.
  quanta::fuse_modules(network, fusion_groups(network));

  const Tensor probe = test.images(0, std::min<std::int64_t>(images, 256));
  const Tensor reference = network(probe);
  const double float_top1 = top1(network, test, images, "float32");

  // Formats with a scale for each tensor have to see what will pass; MX formats look at each block.
  const auto calibrate = [&](const Module& model) {
    for (std::int64_t begin = 0; begin < kCalibrationImages; begin += kBatch) {
      model(train.images(begin, kBatch));
    }
  };

  std::vector<std::string> lines;
  double int8_loss = 100.0;
  for (const NumberFormat& format : quanta::number_formats()) {
    // Pixels have 8 bits; whatever follows is in the format.
    const QConfigMapping qconfigs =
        QConfigMapping(quanta::qconfig_for_format(format.name))
            .set_object_type<quanta::nn::QuantStub>(quanta::qconfig_for_format("int8"));
    const FashionResNet simulated = quanta::simulate_quantization(network, qconfigs, calibrate);
    const double accuracy = top1(simulated, test, images, std::string(format.name));
    if (format.name == "int8") int8_loss = float_top1 - accuracy;
    char line[128];
    std::snprintf(line, sizeof line, "%-14s %16.2f %9.2f%% %10.1f",
                  std::string(format.name).c_str(), format.weight_bits, accuracy,
                  quanta::sqnr(reference, simulated(probe)));
    lines.emplace_back(line);
  }

  std::printf("%-14s %16s %10s %10s\n", "format", "bits per weight", "top-1", "SQNR dB");
  std::printf("%-14s %16.2f %9.2f%%\n", "float32", 32.0, float_top1);
  for (const std::string& line : lines) std::printf("%s\n", line.c_str());
  // int8 is known to cost next to nothing; if it does not, something is broken.
  return int8_loss < 2.0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr const char* kUsage =
      "formats [IMAGES [FOLDER-WITH-FASHION-MNIST [WEIGHTS.safetensors]]]\n"
      "One network in every number format: top-1 and SQNR of each.";
  return quanta::examples::run_main(argc, argv, kUsage, [&] {
    return run(argc > 1 ? std::atoll(argv[1]) : 10000,
               argc > 2 ? argv[2] : FashionMnist::kDebianFolder,
               argc > 3 ? argv[3] : QUANTA_DEMO_DATA_DIR "/fashion_resnet.safetensors");
  });
}
