#pragma once

// Times of single ops, int8 beside float32. The two run in turns, so that a busy machine slows
// both, and medians count.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "bench_support.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/random.h"

namespace quanta::bench {

inline constexpr double kScale = 0.05;
inline constexpr std::int64_t kZeroPoint = 64;

/// Standard normal values, channels-last where there are spatial dimensions.
Tensor float_input(const Dims& sizes);
/// The same quantized.
QTensor quint8_input(const Dims& sizes);
/// QInt8 weights, one scale for each index of dimension 0.
QTensor qint8_weight(const Dims& sizes);

/// What limits an op: bytes that have to move, or multiply-adds (two operations each).
struct Work {
  double bytes = 0.0;
  double operations = 0.0;
  /// Not 0: the bytes are only read, and calls go through so many of them before they come back to
  /// the same ones. Compared with reading (of_read), not with copying.
  std::size_t read_set = 0;
};

/// Runs both and sets the counters: float_ms, float/int8, slower_than_float, GB/s and of_copy
/// or of_read, GOP/s, of_peak and, where the machine has AMX, of_amx. The first three only when
/// `float_seconds` is not 0.
void set_counters(benchmark::State& state, const Work& work, double int8_seconds,
                  double float_seconds, double ratio);

/// The kernels that the ops of one call chose, joined with +.
std::string kernels_of(const std::function<void()>& call);

/// Calls make(), which prepares the operands and returns the calls (int8, float) as a pair, only
/// when the benchmark is run. Null stands for an op that float has no counterpart of.
template <typename Make>
void add_benchmark(const std::string& name, const Work& work, Make make) {
  benchmark::RegisterBenchmark(
      name.c_str(),
      [work, make](benchmark::State& state) {
        const auto [int8, float32] = make();
        constexpr int kRounds = 5;
        constexpr double kSeconds = 0.03;
        std::vector<double> int8_times;
        std::vector<double> float_times;
        std::vector<double> ratios;
        for (auto _ : state) {
          for (int round = 0; round < kRounds; ++round) {
            if constexpr (std::is_null_pointer_v<std::remove_cvref_t<decltype(float32)>>) {
              float_times.push_back(0.0);
            } else {
              float_times.push_back(median_seconds(float32, kSeconds));
            }
            int8_times.push_back(median_seconds(int8, kSeconds));
            ratios.push_back(float_times.back() / int8_times.back());
          }
          for (std::vector<double>* values : {&int8_times, &float_times, &ratios}) {
            std::sort(values->begin(), values->end());
          }
          state.SetIterationTime(int8_times[kRounds / 2]);
        }
        state.SetLabel(kernels_of(int8));
        set_counters(state, work, int8_times[kRounds / 2], float_times[kRounds / 2],
                     ratios[kRounds / 2]);
      })
      ->Unit(benchmark::kMillisecond)
      ->Iterations(1)
      ->UseManualTime();
}

/// Adds a family of benchmarks before main, as Google Benchmark's macros do.
struct Family {
  explicit Family(void (*add)()) { add(); }
};

}  // namespace quanta::bench
