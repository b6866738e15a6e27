// A frozen network: the int8 network's steps for images of one size, noted down once and run again
// without modules, checks and allocations between them. Needs Debian's package
// dataset-fashion-mnist.
//
//   frozen [WEIGHTS.safetensors [FOLDER-WITH-FASHION-MNIST]]

#include <cstdio>
#include <string>

#include "console/measure.h"
#include "quanta/nn/data/fashion_mnist.h"
#include "quanta/quanta.h"
#include "support/help.h"

namespace {

using quanta::Tensor;
using quanta::console::median_ms;
using quanta::data::FashionMnist;

constexpr std::int64_t kImages = 1000;

int run(const std::string& weights, const std::string& folder) {
  const FashionMnist train(folder, FashionMnist::Split::Train);
  const FashionMnist test(folder, FashionMnist::Split::Test);

  // An int8 network, as in static_quantization.cpp.
  quanta::nn::models::FashionMobileNet network;
  load_state_dict(network, quanta::read_safetensors(weights));
  network.eval();
  quanta::fuse_modules(network, fusion_groups(network));
  const auto prepared = quanta::prepare(network, quanta::get_default_qconfig());
  for (std::int64_t begin = 0; begin < 512; begin += 64) prepared(train.images(begin, 64));
  const auto int8 = quanta::convert(prepared);

  // A plan for one image, and one for eight: each is for inputs of its example's sizes. The
  // network runs once on the example; only the sizes matter.
  const Tensor one = test.images(0, 1);
  const Tensor eight = test.images(0, 8);
  const quanta::FrozenModel frozen = quanta::freeze(int8, one);
  const quanta::FrozenModel frozen_eight = quanta::freeze(int8, eight);

  // What it does: a line for each step, with what was joined with it and where its result lies.
  std::printf("%s\n", frozen.to_string().c_str());

  // The same results, to the last bit.
  std::int64_t equal = 0;
  for (std::int64_t i = 0; i < kImages; ++i) {
    const Tensor image = test.images(i, 1);
    equal += frozen(image).equal(int8(image)) ? 1 : 0;
  }
  std::printf("%lld of %lld results equal those of the eager network\n",
              static_cast<long long>(equal), static_cast<long long>(kImages));

  const auto ms = median_ms({[&] { network(one); }, [&] { int8(one); }, [&] { frozen(one); }}, 500);
  const auto ms_eight =
      median_ms({[&] { network(eight); }, [&] { int8(eight); }, [&] { frozen_eight(eight); }}, 200);
  std::printf("%18s %12s %12s %12s\n", "", "float32", "int8", "int8 frozen");
  std::printf("%18s %9.3f ms %9.3f ms %9.3f ms  (%.2fx)\n", "latency, 1 image", ms[0], ms[1], ms[2],
              ms[1] / ms[2]);
  std::printf("%18s %9.3f ms %9.3f ms %9.3f ms  (%.2fx)\n", "8 images", ms_eight[0], ms_eight[1],
              ms_eight[2], ms_eight[1] / ms_eight[2]);
  std::printf("%zu steps of %zu recorded; %zu bytes hold results of %zu\n", frozen.info().steps,
              frozen.info().recorded_steps, frozen.info().arena_bytes, frozen.info().result_bytes);
  return equal == kImages ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr const char* kUsage =
      "frozen [WEIGHTS.safetensors [FOLDER-WITH-FASHION-MNIST]]\n"
      "An int8 network as a plan, timed beside the eager one.";
  return quanta::examples::run_main(argc, argv, kUsage, [&] {
    return run(argc > 1 ? argv[1] : QUANTA_DEMO_DATA_DIR "/fashion_mobilenet.safetensors",
               argc > 2 ? argv[2] : FashionMnist::kDebianFolder);
  });
}
