#include "network_suite.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "../bench/median_seconds.h"
#include "../bench/peak.h"
#include "json_file.h"
#include "networks.h"
#include "on_device.h"
#include "quanta/quanta.h"
#include "suite_network.h"

namespace quanta::cli {
namespace {

using nlohmann::json;

constexpr int kRounds = 5;

/// Seconds of a call. Where even a few take longer than the slice, one of them.
double seconds_of(const SuiteSide& side, double slice) {
  const auto start = std::chrono::steady_clock::now();
  side.run();
  const std::chrono::duration<double> once = std::chrono::steady_clock::now() - start;
  return once.count() > slice ? once.count() : bench::median_seconds(side.run, slice);
}

double middle(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Bytes per second that the machine reads. The best of some measurements: on a busy machine one
/// may tell of something else.
class Bandwidth {
 public:
  double operator()(std::size_t bytes) const {
    double best = 0.0;
    for (const bench::ReadBandwidths& measured : measured_) best = std::max(best, measured(bytes));
    return best;
  }
  static const Bandwidth& instance() {
    static const Bandwidth bandwidth;
    return bandwidth;
  }

 private:
  std::array<bench::ReadBandwidths, 4> measured_;
};

/// In turns, so that a busy machine slows both.
json time_pair(const SuiteNetwork& network, int batch, double seconds) {
  const SuiteSide in_float = network.in_float(batch);
  const SuiteSide quantized = network.quantized(batch);
  in_float.run();
  quantized.run();
  std::vector<double> float_times, quantized_times, ratios;
  for (int round = 0; round < kRounds; ++round) {
    const double slice = seconds / (2 * kRounds);
    float_times.push_back(seconds_of(in_float, slice));
    quantized_times.push_back(seconds_of(quantized, slice));
    ratios.push_back(float_times.back() / quantized_times.back());
  }
  const double time = middle(quantized_times);
  const double operations = 2.0 * network.multiply_adds() * batch;
  const bench::Int8Peak& peak = bench::int8_peak();
  // Weights are read again in each run, from whatever cache holds them.
  const double weights = network.weight_bytes();
  const double moved = network.moved_bytes(batch);
  json row{
      {"model", network.name()},
      {"dtype", network.dtype()},
      {"frozen", quantized.is_frozen},
      {"batch", batch},
      {"device", to_string(quantized.device)},
      {"float_device", to_string(in_float.device)},
      {"threads", get_num_threads()},
      {"float_ms", 1e3 * middle(float_times)},
      {"int8_ms", 1e3 * time},
      {"float_over_int8", middle(ratios)},
      {"gops", operations / time / 1e9},
      {"weights_mb", weights / 1e6},
      {"gbytes_per_second", moved / time / 1e9},
      {"of_bandwidth", moved / time / Bandwidth::instance()(static_cast<std::size_t>(weights))}};
  if (peak.vector_ops > 0.0) row["of_peak"] = operations / time / peak.vector_ops;
  if (peak.tile_ops > 0.0) row["of_tiles"] = operations / time / peak.tile_ops;
  return row;
}

json machine() {
  const bench::Int8Peak& peak = bench::int8_peak();
  const Bandwidth& bandwidth = Bandwidth::instance();
  return {{"threads", get_num_threads()},
          {"peak_instruction", peak.instruction},
          {"peak_gops", peak.vector_ops / 1e9},
          {"tiles_gops", peak.tile_ops / 1e9},
          {"cache_gbytes_per_second", bandwidth(1) / 1e9},
          {"memory_gbytes_per_second", bandwidth(std::numeric_limits<std::size_t>::max()) / 1e9}};
}

}  // namespace

int run_network_suite(const NetworkSuiteOptions& options) {
  if (options.threads > 0) set_num_threads(options.threads);
  const Device device = device_option(options.device);
  if (device.is_cuda() && !options.onnx.empty()) {
    throw UnsupportedError(
        "networks: --onnx: expected --device cpu beside it, as the constants of ONNX graphs stay "
        "on "
        "the CPU, got " +
        options.device);
  }
  json figures{{"machine", machine()}, {"networks", json::array()}};
  fmt::print("{:<20} {:>5} {:>7} {:>10} {:>10} {:>8}\n", "network", "batch", "threads", "float ms",
             "int8 ms", "ratio");
  bool float_on_cpu = false;
  const auto time_all = [&](const SuiteNetwork& network) {
    for (const int batch : options.batches) {
      const json row = time_pair(network, batch, options.seconds);
      fmt::print("{:<20} {:>5} {:>7} {:>10.3f} {:>10.3f} {:>8.2f}\n", network.name(), batch,
                 get_num_threads(), row["float_ms"].get<double>(), row["int8_ms"].get<double>(),
                 row["float_over_int8"].get<double>());
      std::fflush(stdout);
      float_on_cpu = float_on_cpu || row["device"] != row["float_device"];
      figures["networks"].push_back(row);
    }
  };
  for (const NetworkKind& kind : network_kinds()) {
    const bool wanted = options.models.empty() ||
                        std::ranges::find(options.models, kind.name) != options.models.end();
    if (!wanted) continue;
    try {
      time_all(*make_suite_network(kind, device));
    } catch (const UnsupportedError& error) {
      if (device.is_cpu()) throw;
      fmt::print("{:<20} {}\n", kind.name, error.what());
      figures["networks"].push_back({{"model", kind.name}, {"unsupported", error.what()}});
    }
  }
  if (float_on_cpu)
    fmt::print("float ms are the CPU's: float layers have no kernels on {}\n", to_string(device));
  for (const auto& [name, path, sizes] : options.onnx) {
    time_all(*make_suite_network(name, path, sizes));
  }
  if (!options.json.empty()) write_json(options.json, figures);
  return 0;
}

}  // namespace quanta::cli
