// Dynamic quantization of recurrent networks: an LSTM and a GRU that read a photograph line by line
// become int8 (or float16) networks in one call, without calibration data, and are measured beside
// the float ones. Needs Debian's package dataset-fashion-mnist.
//
//   recurrent [TEST-IMAGES [FOLDER-WITH-WEIGHTS [FOLDER-WITH-FASHION-MNIST]]]

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "console/measure.h"
#include "quanta/nn/data/fashion_mnist.h"
#include "quanta/quanta.h"
#include "support/help.h"

namespace {

using quanta::Tensor;
using quanta::data::FashionMnist;

constexpr std::int64_t kBatch = 64;

template <typename Network>
void compare(const char* name, const std::string& weights, const FashionMnist& test,
             std::int64_t images) {
  Network network;
  load_state_dict(network, quanta::read_safetensors(weights + "/" + name + ".safetensors"));
  network.eval();

  // LSTM or GRU and Linear are replaced by modules of the same call that hold int8 (float16)
  // weights and quantize their input each time; `network` stays as it is.
  const auto int8 = quanta::quantize_dynamic(network);
  const auto half = quanta::quantize_dynamic(network, {}, quanta::DType::Float16);

  const quanta::nn::Module* models[] = {&network, &int8, &half};
  const char* kinds[] = {"float32", "dynamic int8", "dynamic float16"};
  const Tensor one = test.images(0, 1);
  const Tensor many = test.images(0, kBatch);
  std::vector<std::function<void()>> single, batched;
  for (const auto* model : models) {
    single.emplace_back([model, &one] { (*model)(one); });
    batched.emplace_back([model, &many] { (*model)(many); });
  }
  const std::vector<double> single_ms = quanta::console::median_ms(single, 100);
  const std::vector<double> batched_ms = quanta::console::median_ms(batched, 10);

  std::printf("%s, %lld test images, %d threads\n", name, static_cast<long long>(images),
              quanta::get_num_threads());
  std::printf("  %-16s %9s %22s %22s %10s\n", "", "top-1", "sequences/s, batch 1",
              "sequences/s, batch 64", "bytes");
  for (std::size_t i = 0; i < 3; ++i) {
    const double top1 = quanta::console::top1(*models[i], test, images, kinds[i]);
    std::printf("  %-16s %8.2f%% %13.0f (%5.2fx) %13.0f (%5.2fx) %10zu\n", kinds[i], top1,
                1e3 / single_ms[i], single_ms[0] / single_ms[i],
                1e3 * static_cast<double>(kBatch) / batched_ms[i], batched_ms[0] / batched_ms[i],
                quanta::console::weight_bytes(*models[i]));
  }
}

}  // namespace

int main(int argc, char** argv) {
  constexpr const char* kUsage =
      "recurrent [TEST-IMAGES [FOLDER-WITH-WEIGHTS [FOLDER-WITH-FASHION-MNIST]]]\n"
      "An LSTM and a GRU in dynamic int8 beside float.";
  return quanta::examples::run_main(argc, argv, kUsage, [&] {
    const FashionMnist test(argc > 3 ? argv[3] : FashionMnist::kDebianFolder,
                            FashionMnist::Split::Test);
    const std::int64_t wanted = argc > 1 ? std::atoll(argv[1]) : test.size();
    if (wanted < 1) throw quanta::ArgumentError("recurrent: TEST-IMAGES: expected a number >= 1");
    const std::int64_t images = std::min(wanted, test.size());
    const std::string weights = argc > 2 ? argv[2] : QUANTA_DEMO_DATA_DIR;
    compare<quanta::nn::models::FashionLstm>("fashion_lstm", weights, test, images);
    compare<quanta::nn::models::FashionGru>("fashion_gru", weights, test, images);
    return 0;
  });
}
