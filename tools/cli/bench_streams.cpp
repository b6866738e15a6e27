#include "bench_streams.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace quanta::cli {
namespace {

using nlohmann::json;

constexpr int kRounds = 5;

double middle(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

std::unique_ptr<Streams> make_streams(const BenchSubject& subject, int count, int threads) {
  return std::make_unique<Streams>(count, threads, [&subject](int) -> std::function<void()> {
    return [&subject, inputs = subject.request()] { subject.run(inputs); };
  });
}

json time_streams(const BenchSubject& subject, const BenchOptions& options) {
  const int threads = std::max(options.threads, 1);
  const std::unique_ptr<Streams> many = make_streams(subject, options.streams, threads);
  const std::unique_ptr<Streams> one = make_streams(subject, 1, threads);
  const double slice = options.seconds / (2 * kRounds);
  std::vector<double> rates, single_rates, ratios;
  std::vector<std::int64_t> ns;
  for (int round = 0; round < kRounds; ++round) {
    const double single = one->run(slice).requests_per_second();
    const StreamTurn turn = many->run(slice);
    ns.insert(ns.end(), turn.ns.begin(), turn.ns.end());
    rates.push_back(turn.requests_per_second());
    single_rates.push_back(single);
    ratios.push_back(rates.back() / single);
  }
  const double rate = middle(rates);
  return {{"streams", options.streams},
          {"threads_per_stream", threads},
          {"requests", ns.size()},
          {"requests_per_second", rate},
          {"inputs_per_second", rate * options.batch},
          {"latency_median_ms", static_cast<double>(percentile(ns, 0.5)) / 1e6},
          {"latency_p99_ms", static_cast<double>(percentile(ns, 0.99)) / 1e6},
          {"one_stream_requests_per_second", middle(single_rates)},
          {"ratio_to_one_stream", middle(ratios)}};
}

void print_streams(const json& figures) {
  const auto row = [&](const char* label, const char* key, const char* unit) {
    fmt::print("  {:<28} {:>12.3f} {}\n", label, figures[key].get<double>(), unit);
  };
  fmt::print("{} streams, {} thread{} each, {} requests\n", figures["streams"].get<int>(),
             figures["threads_per_stream"].get<int>(),
             figures["threads_per_stream"].get<int>() == 1 ? "" : "s",
             figures["requests"].get<std::size_t>());
  row("throughput", "requests_per_second", "requests/s");
  row("", "inputs_per_second", "inputs/s");
  row("latency, median", "latency_median_ms", "ms");
  row("latency, 99 %", "latency_p99_ms", "ms");
  row("one stream", "one_stream_requests_per_second", "requests/s");
  row("ratio to one stream", "ratio_to_one_stream", "");
}

}  // namespace quanta::cli
