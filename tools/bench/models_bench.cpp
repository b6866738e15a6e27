// Whole networks, float beside int8: random weights, time a batch, and how much faster int8 is.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <vector>

#include "bench_support.h"
#include "quanta/fusion/quantize_dynamic.h"
#include "quanta/nn/models/efficientnet.h"
#include "quanta/nn/models/encoder_classifier.h"
#include "quanta/nn/models/fashion.h"
#include "quanta/nn/models/mobilenet_v2.h"
#include "quanta/nn/models/mobilenet_v3.h"
#include "quanta/nn/models/resnet.h"
#include "quanta/nn/models/vision_transformer.h"
#include "quanta/runtime/random.h"
#include "quanta/tools/networks/detector.h"

namespace quanta::bench {
namespace {

void time_both(benchmark::State& state, const nn::Module& float_model, const nn::Module& int8_model,
               const Tensor& x) {
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

Tensor network_input(const Dims& sizes) {
  Generator generator(11);
  return randn(sizes, generator);
}

template <typename Net>
void run_network(benchmark::State& state, Net net, const Dims& input) {
  const Tensor x = network_input(input);
  net.eval();
  const Net int8 = quantized_copy(net, x);
  time_both(state, net, int8, x);
}

template <typename Net>
void run_dynamic_network(benchmark::State& state, Net net, const Dims& input) {
  net.eval();
  time_both(state, net, quantize_dynamic(net), network_input(input));
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
void efficientnet_b0_batch1(benchmark::State& state) {
  run_network(state, nn::models::efficientnet_b0(), {1, 3, 224, 224});
}
void yolo_n_batch1(benchmark::State& state) {
  run_network(state, networks::Detector(), {1, 3, 320, 320});
}
void vit_tiny_batch1(benchmark::State& state) {
  run_dynamic_network(state, nn::models::VisionTransformer(), {1, 3, 224, 224});
}
void distilbert_16_batch1(benchmark::State& state) {
  run_dynamic_network(state, nn::models::EncoderClassifier(6), {1, 16, 768});
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
BENCHMARK(efficientnet_b0_batch1)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(yolo_n_batch1)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(vit_tiny_batch1)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(distilbert_16_batch1)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(fashion_resnet_batch1)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(fashion_mobilenet_batch1)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace quanta::bench
