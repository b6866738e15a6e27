// What a call costs beside its work: cached ops on tensors of a few elements.

#include <benchmark/benchmark.h>

#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/conv.h"
#include "quanta/ops/linear.h"
#include "quanta/ops/pooling.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/random.h"

namespace quanta::bench {
namespace {

constexpr double kScale = 0.05;

QTensor tiny(const Dims& sizes, DType dtype = DType::QUInt8) {
  Generator generator(7);
  return quantize_per_tensor(randn(sizes, generator), kScale, 0, dtype);
}

void tiny_relu(benchmark::State& state) {
  const QTensor x = tiny({1, 8, 4, 4});
  for (auto _ : state) benchmark::DoNotOptimize(relu(x));
}
void tiny_add(benchmark::State& state) {
  const QTensor x = tiny({1, 8, 4, 4});
  for (auto _ : state) benchmark::DoNotOptimize(quantized::add(x, x, kScale, 0));
}
void tiny_quantize(benchmark::State& state) {
  const Tensor x = Tensor::ones({1, 8, 4, 4});
  for (auto _ : state) benchmark::DoNotOptimize(quantize_per_tensor(x, kScale, 0, DType::QUInt8));
}
void tiny_max_pool2d(benchmark::State& state) {
  const Tensor x = tiny({1, 8, 4, 4}).contiguous(MemoryFormat::ChannelsLast);
  for (auto _ : state) benchmark::DoNotOptimize(max_pool2d(x, {.kernel_size = {2}}));
}
void tiny_conv2d(benchmark::State& state) {
  const Tensor x = tiny({1, 8, 4, 4}).contiguous(MemoryFormat::ChannelsLast);
  const QTensor quantized_x(x);
  const quantized::ConvPackedParams packed(tiny({8, 8, 1, 1}, DType::QInt8), {}, {}, 2);
  for (auto _ : state) benchmark::DoNotOptimize(quantized::conv(quantized_x, packed, kScale, 0));
}
void tiny_linear(benchmark::State& state) {
  const QTensor x = tiny({1, 16});
  const quantized::LinearPackedParams packed(tiny({16, 16}, DType::QInt8), {});
  for (auto _ : state) benchmark::DoNotOptimize(quantized::linear(x, packed, kScale, 0));
}

BENCHMARK(tiny_relu)->Unit(benchmark::kMicrosecond)->UseRealTime();
BENCHMARK(tiny_add)->Unit(benchmark::kMicrosecond)->UseRealTime();
BENCHMARK(tiny_quantize)->Unit(benchmark::kMicrosecond)->UseRealTime();
BENCHMARK(tiny_max_pool2d)->Unit(benchmark::kMicrosecond)->UseRealTime();
BENCHMARK(tiny_conv2d)->Unit(benchmark::kMicrosecond)->UseRealTime();
BENCHMARK(tiny_linear)->Unit(benchmark::kMicrosecond)->UseRealTime();

}  // namespace
}  // namespace quanta::bench
