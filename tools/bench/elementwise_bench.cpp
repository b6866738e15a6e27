// Ops whose limit is memory: tensors far larger than the caches, with the bytes moved per second
// beside the machine's own copy speed ("of_copy": 1 is as fast as memcpy).

#include <benchmark/benchmark.h>

#include "bench_support.h"
#include "peak.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/random.h"

namespace quanta::bench {
namespace {

constexpr std::int64_t kLarge = 256 << 20;  // elements; beyond the caches of any server
constexpr double kScale = 0.05;
constexpr std::int64_t kZeroPoint = 64;

double copy_speed() {
  static const double speed = copy_bandwidth(static_cast<std::size_t>(kLarge));
  return speed;
}

QTensor codes(std::int64_t numel) {
  const QTensor result = QTensor::empty({numel}, kScale, kZeroPoint, DType::QUInt8);
  auto* data = result.mutable_data<std::uint8_t>();
  for (std::int64_t i = 0; i < numel; ++i) data[i] = static_cast<std::uint8_t>(i * 7 + i / 251);
  return result;
}

Tensor values(std::int64_t numel) {
  const Tensor result = Tensor::empty({numel});
  auto* data = result.mutable_data<float>();
  for (std::int64_t i = 0; i < numel; ++i) data[i] = static_cast<float>(i % 1009 - 500) * 0.013F;
  return result;
}

template <typename Run>
void run_memory_bound(benchmark::State& state, double bytes, Run&& run) {
  for (auto _ : state) benchmark::DoNotOptimize(run());
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes) * state.iterations());
  const double seconds = median_seconds(run, 0.5);
  state.counters["GB/s"] = bytes / seconds / 1e9;
  state.counters["of_copy"] = bytes / seconds / copy_speed();
}

void quantize_large(benchmark::State& state) {
  const Tensor x = values(kLarge / 4);
  run_memory_bound(state, 5.0 * static_cast<double>(x.numel()),
                   [&] { return quantize_per_tensor(x, kScale, kZeroPoint, DType::QUInt8); });
}
void dequantize_large(benchmark::State& state) {
  const QTensor x = codes(kLarge / 4);
  run_memory_bound(state, 5.0 * static_cast<double>(x.numel()), [&] { return dequantize(x); });
}
void relu_large(benchmark::State& state) {
  const QTensor x = codes(kLarge);
  run_memory_bound(state, 2.0 * static_cast<double>(x.numel()), [&] { return relu(x); });
}
void add_large(benchmark::State& state) {
  const QTensor x = codes(kLarge);
  const QTensor y = codes(kLarge);
  run_memory_bound(state, 3.0 * static_cast<double>(x.numel()),
                   [&] { return quantized::add(x, y, kScale, kZeroPoint); });
}
void mul_large(benchmark::State& state) {
  const QTensor x = codes(kLarge);
  const QTensor y = codes(kLarge);
  run_memory_bound(state, 3.0 * static_cast<double>(x.numel()),
                   [&] { return quantized::mul(x, y, kScale, kZeroPoint); });
}
void sigmoid_large(benchmark::State& state) {
  const QTensor x = codes(kLarge);
  run_memory_bound(state, 2.0 * static_cast<double>(x.numel()), [&] { return sigmoid(x); });
}

BENCHMARK(quantize_large)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(dequantize_large)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(relu_large)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(add_large)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(mul_large)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(sigmoid_large)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace quanta::bench
