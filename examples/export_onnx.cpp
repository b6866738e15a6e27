// One trained network as five ONNX files, for whoever runs it elsewhere: float; with the fake
// quantizers of an int8 simulation; converted to int8; in float8; and the float file with AIMET's
// encodings put on. Each file is read again and classifies the test images. Needs Debian's package
// dataset-fashion-mnist.
//
//   export_onnx [IMAGES [FOLDER-FOR-THE-FILES [FOLDER-WITH-FASHION-MNIST [WEIGHTS.safetensors]]]]

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "console/measure.h"
#include "quanta/nn/data/fashion_mnist.h"
#include "quanta/quanta.h"
#include "support/help.h"

namespace {

using quanta::QConfigMapping;
using quanta::Tensor;
using quanta::console::top1;
using quanta::data::FashionMnist;
using quanta::nn::Module;
using quanta::nn::models::FashionResNet;
namespace graph = quanta::graph;

constexpr std::int64_t kBatch = 64;
constexpr std::int64_t kCalibrationImages = 512;

struct Exported {
  std::string name;
  std::filesystem::path file;
  double top1 = 0.0;
};

int run(std::int64_t images, const std::filesystem::path& folder, const std::string& data,
        const std::string& weights) {
  const FashionMnist train(data, FashionMnist::Split::Train);
  const FashionMnist test(data, FashionMnist::Split::Test);
  images = std::clamp<std::int64_t>(images, 1, test.size());
  std::filesystem::create_directories(folder);

  FashionResNet network;
  load_state_dict(network, quanta::read_safetensors(weights));
  network.eval();
  // conv + bn + relu become one layer: fused networks are what quantizers are put into.
  quanta::fuse_modules(network, fusion_groups(network));
  const auto calibrate = [&](const Module& model) {
    for (std::int64_t begin = 0; begin < kCalibrationImages; begin += kBatch) {
      model(train.images(begin, kBatch));
    }
  };

  // The example has two images; the file takes any number of them.
  const Tensor example = test.images(0, 2);
  const graph::ExportOptions options{.trace = {.dynamic_batch = true}};
  std::vector<Exported> files;
  const auto add = [&](const std::string& name, const quanta::OnnxModel& file) {
    const std::filesystem::path path = folder / (name + ".onnx");
    quanta::write_onnx(file, path);
    const graph::Model read = graph::load_onnx(path);
    files.push_back({name, path, top1(read, test, images, name)});
  };
  const auto simulated = [&](const char* format) {
    const QConfigMapping qconfigs =
        QConfigMapping(quanta::qconfig_for_format(format))
            .set_object_type<quanta::nn::QuantStub>(quanta::qconfig_for_format("int8"));
    return quanta::simulate_quantization(network, qconfigs, calibrate);
  };

  const quanta::OnnxModel floats = graph::to_onnx(network, example, options);
  add("float", floats);

  // Q and DQ around the values of each layer; read again, its layers run in int8.
  add("fake_int8", graph::to_onnx(simulated("int8"), example, options));
  add("float8", graph::to_onnx(simulated("fp8"), example, options));

  FashionResNet converted = quanta::prepare(network, quanta::get_default_qconfig());
  calibrate(converted);
  quanta::convert_(converted);
  add("int8", graph::to_onnx(converted, example, options));

  // What AIMET hands on: a float file, and beside it the ranges that were found.
  quanta::aimet::QuantizationSimModel<FashionResNet> sim(network);
  sim.compute_encodings(calibrate);
  sim.export_to(folder, "fashion_resnet");
  add("encodings", graph::apply_encodings(floats, folder / "fashion_resnet.encodings"));

  const double reference = top1(network, test, images, "network");
  std::printf("%-12s %9s %8s\n", "file", "kB", "top-1");
  bool good = true;
  for (const Exported& each : files) {
    const auto bytes = static_cast<double>(std::filesystem::file_size(each.file));
    std::printf("%-12s %9.1f %7.2f%%\n", each.name.c_str(), bytes / 1e3, each.top1);
    good = good && each.top1 > reference - 2.0;
  }
  std::printf("%-12s %9s %7.2f%%\n", "(network)", "", reference);
  std::printf("written into %s\n", folder.string().c_str());
  return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr const char* kUsage =
      "export_onnx [IMAGES [FOLDER-FOR-THE-FILES [FOLDER-WITH-FASHION-MNIST "
      "[WEIGHTS.safetensors]]]]\n"
      "One network as five ONNX files: float, fake-quantized, int8, float8, AIMET's encodings.";
  return quanta::examples::run_main(argc, argv, kUsage, [&] {
    return run(argc > 1 ? std::atoll(argv[1]) : 10000,
               argc > 2 ? std::filesystem::path(argv[2])
                        : std::filesystem::temp_directory_path() / "quanta_export_onnx",
               argc > 3 ? argv[3] : FashionMnist::kDebianFolder,
               argc > 4 ? argv[4] : QUANTA_DEMO_DATA_DIR "/fashion_resnet.safetensors");
  });
}
