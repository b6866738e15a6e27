// Post-training static quantization, start to end: a network trained in float becomes an int8
// network, is measured, saved, loaded again and compared. `quanta demo` does the same with options
// and tables. Needs Debian's package dataset-fashion-mnist.
//
//   static_quantization [WEIGHTS.safetensors [FOLDER-WITH-FASHION-MNIST [INT8-FILE]]]

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "console/measure.h"
#include "console/progress.h"
#include "quanta/nn/data/fashion_mnist.h"
#include "quanta/quanta.h"
#include "support/help.h"

namespace {

using quanta::Tensor;
using quanta::console::median_ms;
using quanta::console::ProgressBar;
using quanta::console::top1;
using quanta::data::FashionMnist;
using quanta::nn::models::FashionResNet;

constexpr std::int64_t kBatch = 64;

// To be removed again.
std::string scratch_file() {
  const std::string name = "static_quantization_" + std::to_string(::getpid()) + ".safetensors";
  return (std::filesystem::temp_directory_path() / name).string();
}

int run(const std::string& weights, const std::string& folder, const std::string& kept) {
  const FashionMnist train(folder, FashionMnist::Split::Train);
  const FashionMnist test(folder, FashionMnist::Split::Test);

  // The float network, with PyTorch's weights under PyTorch's names.
  FashionResNet network;
  load_state_dict(network, quanta::read_safetensors(weights));
  network.eval();
  const double float_top1 = top1(network, test, test.size(), "float accuracy");

  // conv + bn + relu become one layer; nothing is quantized yet.
  quanta::fuse_modules(network, fusion_groups(network));

  // A copy that watches the range of every activation while it runs.
  const auto prepared = quanta::prepare(network, quanta::get_default_qconfig());
  {
    ProgressBar bar("calibrating", 1024);
    for (std::int64_t begin = 0; begin < 1024; begin += kBatch) {
      prepared(train.images(begin, kBatch));
      bar.advance(kBatch);
    }
  }

  // The same type and the same forward, with int8 layers in the slots.
  const auto int8 = quanta::convert(prepared);
  const double int8_top1 = top1(int8, test, test.size(), "int8 accuracy");

  // Saved, and loaded into a network built afresh.
  const std::string file = kept.empty() ? scratch_file() : kept;
  quanta::save_model(int8, file);
  FashionResNet loaded;
  loaded.eval();
  quanta::load_model(loaded, file);
  const Tensor probe = test.images(0, kBatch);
  const bool identical = loaded(probe).equal(int8(probe));

  const Tensor one = test.images(0, 1);
  std::printf("%16s %10s %10s\n", "", "float32", "int8");
  std::printf("%16s %9.2f%% %9.2f%%\n", "top-1", float_top1, int8_top1);
  const auto ms = median_ms({[&] { network(one); }, [&] { int8(one); }}, 200);
  std::printf("%16s %7.3f ms %7.3f ms\n", "latency, 1 image", ms[0], ms[1]);
  std::printf("%16s %10ju %10ju\n", "file bytes", std::filesystem::file_size(weights),
              std::filesystem::file_size(file));
  std::printf("loaded again: outputs %s\n", identical ? "identical" : "differ");
  if (kept.empty()) {
    std::filesystem::remove(file);
  } else {
    std::printf("saved to %s\n", kept.c_str());
  }
  return identical ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr const char* kUsage =
      "static_quantization [WEIGHTS.safetensors [FOLDER-WITH-FASHION-MNIST [INT8-FILE]]]\n"
      "Float weights in, an int8 network out; it is kept if INT8-FILE is given.";
  return quanta::examples::run_main(argc, argv, kUsage, [&] {
    return run(argc > 1 ? argv[1] : QUANTA_DEMO_DATA_DIR "/fashion_resnet.safetensors",
               argc > 2 ? argv[2] : FashionMnist::kDebianFolder, argc > 3 ? argv[3] : "");
  });
}
