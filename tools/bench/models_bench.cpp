// Whole networks, float beside int8: random weights, time a batch, and how much faster int8 is.

#include <benchmark/benchmark.h>

#include "bench_support.h"
#include "quanta/nn/models/fashion.h"
#include "quanta/nn/models/mobilenet_v2.h"
#include "quanta/nn/models/mobilenet_v3.h"
#include "quanta/nn/models/resnet.h"
#include "quanta/runtime/random.h"

namespace quanta::bench {
namespace {

template <typename Net>
void run_network(benchmark::State& state, Net net, const Dims& input) {
  Generator generator(11);
  const Tensor x = randn(input, generator);
  net.eval();
  const Net int8 = quantized_copy(net, x);
  const nn::Module& float_model = net;
  const nn::Module& int8_model = int8;
  for (auto _ : state) benchmark::DoNotOptimize(int8_model(x));
  // In turn, so that a busy machine slows both.
  std::vector<double> ratios;
  for (int round = 0; round < 5; ++round) {
    const double float_seconds = median_seconds([&] { float_model(x); }, 0.4);
    const double int8_seconds = median_seconds([&] { int8_model(x); }, 0.4);
    ratios.push_back(float_seconds / int8_seconds);
    state.counters["float_ms"] = 1e3 * float_seconds;
    state.counters["int8_ms"] = 1e3 * int8_seconds;
  }
  std::sort(ratios.begin(), ratios.end());
  state.counters["float/int8"] = ratios[2];
}

void resnet50_batch1(benchmark::State& state) {
  run_network(state, nn::models::resnet50(), {1, 3, 224, 224});
}
void resnet18_batch1(benchmark::State& state) {
  run_network(state, nn::models::resnet18(), {1, 3, 224, 224});
}
void mobilenet_v2_batch1(benchmark::State& state) {
  run_network(state, nn::models::MobileNetV2(), {1, 3, 224, 224});
}
void mobilenet_v3_large_batch1(benchmark::State& state) {
  run_network(state, nn::models::mobilenet_v3_large(), {1, 3, 224, 224});
}
void fashion_resnet_batch1(benchmark::State& state) {
  run_network(state, nn::models::FashionResNet(), {1, 1, 28, 28});
}
void fashion_mobilenet_batch1(benchmark::State& state) {
  run_network(state, nn::models::FashionMobileNet(), {1, 1, 28, 28});
}

BENCHMARK(resnet50_batch1)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(resnet18_batch1)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(mobilenet_v2_batch1)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(mobilenet_v3_large_batch1)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(fashion_resnet_batch1)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(fashion_mobilenet_batch1)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace quanta::bench
