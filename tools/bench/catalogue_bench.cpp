// Every operation of the catalogue on its sample call, for each dtype that it takes. Samples have a
// few elements, so this is what a call costs beside its work; an operation that is added to the
// catalogue is timed here without a line of its own.

#include <benchmark/benchmark.h>

#include <span>
#include <string>

#include "op_bench.h"
#include "quanta/ops/catalogue.h"

namespace quanta::bench {
namespace {

void run_sample(benchmark::State& state, const OperationEntry& row, DType dtype) {
  const Sample sample = row.sample(dtype);
  const auto call = [&] {
    return run_all(*sample.operation, std::span<const Tensor>(sample.inputs));
  };
  for (auto _ : state) benchmark::DoNotOptimize(call());
  state.SetLabel(kernels_of(call));
}

void add_catalogue() {
  constexpr double kSeconds = 0.02;
  for (const OperationEntry& row : operations().entries()) {
    for (const DType dtype : row.dtypes) {
      const std::string name =
          "catalogue/" + std::string(row.name) + "/" + std::string(torch_name(dtype));
      benchmark::RegisterBenchmark(
          name.c_str(), [&row, dtype](benchmark::State& state) { run_sample(state, row, dtype); })
          ->Unit(benchmark::kMicrosecond)
          ->MinTime(kSeconds)
          ->UseRealTime();
    }
  }
}

const Family kCatalogue(add_catalogue);

}  // namespace
}  // namespace quanta::bench
