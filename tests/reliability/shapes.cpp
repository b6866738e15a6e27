// Sizes that vary for ever. quanta_shapes [SHAPES [PLANS [KEPT]]] runs a float (fused) and an int8 network
// on SHAPES images of random sizes (default: 100,000), freezes PLANS plans (default: 10,000), and
// writes down what memory the process holds after each tenth. It ends with 1 if it holds 20 MB more
// at the end than it did after the first 1,000. KEPT is how many of oneDNN's convolutions may be kept
// (default: 512): with fewer the memory is level after fewer sizes.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "quanta/fusion/convert.h"
#include "quanta/fusion/freeze.h"
#include "quanta/fusion/fuse_modules.h"
#include "quanta/fusion/prepare.h"
#include "quanta/nn/models/fashion.h"
#include "quanta/observers/defaults.h"
#include "quanta/ops/cpu/onednn/kept_convolutions.h"
#include "quanta/runtime/random.h"
#include "support/resources.h"

namespace {

using quanta::Tensor;
using quanta::nn::models::FashionResNet;

constexpr double kMostMegabytes = 20.0;

struct Networks {
  Networks() {
    quanta::manual_seed(5);
    floats = FashionResNet();
    floats.eval();
    quanta::fuse_modules(floats, fusion_groups(floats));
    const FashionResNet prepared = quanta::prepare(floats, quanta::get_default_qconfig());
    prepared(image(28, 28));
    int8 = quanta::convert(prepared);
  }
  Tensor image(std::int64_t height, std::int64_t width) {
    return quanta::randn({1, 1, height, width}, generator);
  }
  Tensor random_image() { return image(generator.integer(8, 96), generator.integer(8, 96)); }

  quanta::Generator generator{9};
  FashionResNet floats, int8;
};

// Runs `step` `count` times; the growth from the 1,000th (or the last third) to the end.
template <typename Step>
double growth_of(const char* what, std::int64_t count, Step&& step) {
  const std::int64_t first = std::min<std::int64_t>(1000, count / 3);
  double before = 0.0, now = 0.0;
  for (std::int64_t i = 1; i <= count; ++i) {
    step();
    if (i != first && i != count && i % std::max<std::int64_t>(count / 10, 1) != 0) continue;
    now = quanta::test::resident_megabytes();
    if (i == first) before = now;
    std::printf("%8jd %s: %8.1f MB\n", std::intmax_t{i}, what, now);
    std::fflush(stdout);
  }
  return now - before;
}

int run(std::int64_t shapes, std::int64_t plans) {
  Networks networks;
  const double by_shapes = growth_of("sizes", shapes, [&] {
    const Tensor x = networks.random_image();
    networks.int8(x);
    networks.floats(x);
  });
  const double by_plans = growth_of("plans", plans, [&] {
    const Tensor x = networks.random_image();
    quanta::freeze(networks.int8, x)(x);
  });
  std::printf("grown by %.1f MB with sizes, %.1f MB with plans; at most %.0f are allowed\n",
              by_shapes, by_plans, kMostMegabytes);
  return std::max(by_shapes, by_plans) < kMostMegabytes ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t shapes = argc > 1 ? std::atoll(argv[1]) : 100'000;
  const std::int64_t plans = argc > 2 ? std::atoll(argv[2]) : 10'000;
  if (shapes < 3 || plans < 3 || argc > 4) {
    std::fprintf(stderr, "usage: %s [SHAPES [PLANS [KEPT]]]\n", argv[0]);
    return 2;
  }
  if (argc > 3) {
    quanta::cpu::onednn::set_most_kept_convolutions(
        static_cast<std::size_t>(std::strtoull(argv[3], nullptr, 10)));
  }
  try {
    return run(shapes, plans);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
