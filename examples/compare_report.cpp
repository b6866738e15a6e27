// Finding the layer where accuracy got lost, and seeing it mended: a MobileNet with weights of 4 bits
// beside the float one, layer by layer, as a text here and as a page for a browser; then the same after
// cross-layer equalization, which the report suggests. Needs Debian's package dataset-fashion-mnist.
//
//   compare_report [--bits N] [--out FOLDER] [--test N] [--data FOLDER]

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "quanta/nn/data/fashion_mnist.h"
#include "quanta/quanta.h"
#include "support/help.h"
#include "support/train.h"

namespace {

using quanta::Report;
using quanta::Tensor;
using quanta::data::FashionMnist;
using quanta::examples::number_option;
using quanta::examples::option;
using quanta::nn::models::FashionMobileNet;

// The layers that lose most when they are given what the float layers were given.
void print_worst(const Report& report) {
  std::vector<const quanta::LayerReport*> layers;
  for (const quanta::LayerReport& layer : report.layers) {
    if (layer.sqnr_alone) layers.push_back(&layer);
  }
  std::ranges::stable_sort(layers, {}, [](const auto* layer) { return *layer->sqnr_alone; });
  layers.resize(std::min<std::size_t>(layers.size(), 5));
  std::printf("  %-24s %10s %12s %11s\n", "the worst layers", "alone, dB", "with others", "weight");
  for (const quanta::LayerReport* layer : layers) {
    std::printf("  %-24s %10.1f %12.1f %11.1f\n", layer->name.c_str(), *layer->sqnr_alone,
                layer->sqnr, layer->weight ? layer->weight->sqnr : 0.0);
  }
  for (std::size_t i = 0; i < std::min<std::size_t>(report.suggestions.size(), 3); ++i) {
    const quanta::Suggestion& suggestion = report.suggestions[i];
    std::printf("  try %s%s%s: %s\n", suggestion.method.c_str(),
                suggestion.layer.empty() ? "" : " on ", suggestion.layer.c_str(),
                suggestion.text.c_str());
  }
}

int run(int argc, char** argv) {
  const int bits = static_cast<int>(number_option(argc, argv, "--bits", 4));
  const std::filesystem::path out = option(argc, argv, "--out").value_or(".");
  const std::string folder = option(argc, argv, "--data").value_or(FashionMnist::kDebianFolder);
  const FashionMnist train(folder, FashionMnist::Split::Train);
  const FashionMnist test(folder, FashionMnist::Split::Test);
  const std::int64_t tested = std::min(number_option(argc, argv, "--test", 1000), test.size());

  FashionMobileNet net;
  load_state_dict(net,
                  quanta::read_safetensors(QUANTA_DEMO_DATA_DIR "/fashion_mobilenet.safetensors"));
  net.eval();
  quanta::fuse_modules(net, fusion_groups(net));
  std::vector<Tensor> calibration, batches;
  for (std::int64_t begin = 0; begin < 512; begin += 64) {
    calibration.push_back(train.images(begin, 64));
  }
  std::vector<std::int64_t> labels;
  for (std::int64_t begin = 0; begin < tested; begin += 100) {
    batches.push_back(test.images(begin, std::min<std::int64_t>(100, tested - begin)));
  }
  for (std::int64_t i = 0; i < tested; ++i) labels.push_back(test.label(i));
  const quanta::ReportData data(batches, Tensor::from_int64(labels));

  // One scale for a whole weight, which is hard on depthwise layers.
  const quanta::QConfig eight{quanta::get_default_qconfig().activation,
                              quanta::default_weight_observer()};
  const quanta::QConfigMapping qconfigs(quanta::with_weight_bits(eight, bits));
  double plain = 0.0, mended = 0.0;
  for (const bool equalized : {false, true}) {
    FashionMobileNet model =
        equalized ? quanta::cross_layer_equalization(net, quanta::CalibrationData(calibration))
                  : quanta::nn::deep_copy(net);
    // Its ReLU6s are ReLUs then, which belong to the layers before them.
    if (equalized) {
      quanta::fuse_modules(model, quanta::find_fusion_groups(model, calibration[0]));
    }
    const FashionMobileNet int8 =
        quanta::quantize(model, calibration[0], calibration, {.qconfigs = qconfigs});
    const std::string title = std::to_string(bits) + "-bit weights, " +
                              (equalized ? "channels equalized" : "quantized as they are");
    const Report report = quanta::make_report(model, int8, data, {.title = title, .repeats = 3});
    std::printf("%s: top-1 %.2f %%, in float %.2f %%\n", title.c_str(), *report.top1,
                *report.float_top1);
    print_worst(report);
    const std::filesystem::path page = out / (equalized ? "equalized.html" : "plain.html");
    quanta::write_report(report, page);
    std::printf("  written: %s\n", page.c_str());
    (equalized ? mended : plain) = *report.top1;
  }
  return mended > plain ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr const char* kUsage =
      "compare_report [--bits N] [--out FOLDER] [--test N] [--data FOLDER]\n"
      "Compares a network with weights of few bits with the float one, layer by layer, before and\n"
      "after cross-layer equalization; writes plain.html and equalized.html into FOLDER.";
  return quanta::examples::run_main(argc, argv, kUsage, [&] { return run(argc, argv); });
}
