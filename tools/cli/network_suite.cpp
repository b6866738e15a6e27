#include "network_suite.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "../bench/median_seconds.h"
#include "../bench/peak.h"
#include "json_file.h"
#include "networks.h"
#include "quanta/quanta.h"

namespace quanta::cli {
namespace {

using nlohmann::json;

constexpr std::uint64_t kSeed = 1;
constexpr std::int64_t kCalibrationInputs = 8;
constexpr int kRounds = 5;

/// What one run of a network has to do, as its ops say.
OpWork measure_work(const nn::Module& model, const Tensor& x) {
  const Profiler profiler;
  static_cast<void>(model(x));
  OpWork work;
  for (const ModuleProfile& module : profiler.modules()) {
    work.multiply_adds += module.work.multiply_adds;
    work.bytes += module.work.bytes;
  }
  return work;
}

double state_bytes(const nn::Module& model) {
  double bytes = 0.0;
  for (const auto& [name, tensor] : model.state_dict()) {
    bytes += static_cast<double>(tensor.nbytes());
  }
  return bytes;
}

/// A network in both forms.
struct Pair {
  std::shared_ptr<nn::Module> in_float, quantized;
};

Pair make_pair(const NetworkKind& kind) {
  const NetworkForm form = kind.is_static ? NetworkForm::Int8 : NetworkForm::DynamicInt8;
  manual_seed(kSeed);
  Pair pair{make_random_network(kind, NetworkForm::Float32, {}), nullptr};
  manual_seed(kSeed);
  pair.quantized = make_random_network(kind, form, random_inputs(kind, kCalibrationInputs));
  return pair;
}

/// A network as it runs fastest: frozen, or where that cannot be the modules themselves.
struct Runner {
  std::shared_ptr<nn::Module> model;
  std::optional<FrozenModel> frozen{};

  Runner(std::shared_ptr<nn::Module> network, const Tensor& x) : model(std::move(network)) {
    try {
      frozen = freeze(*model, x);
    } catch (const UnsupportedError&) {
    }
  }
  double seconds(const Tensor& x, double slice) const {
    return bench::median_seconds([&] { static_cast<void>(frozen ? (*frozen)(x) : (*model)(x)); },
                                 slice);
  }
};

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
json time_pair(const NetworkKind& kind, const Pair& pair, int batch, double seconds) {
  const Tensor x = random_inputs(kind, batch);
  const Runner in_float(pair.in_float, x);
  const Runner quantized(pair.quantized, x);
  std::vector<double> float_times, quantized_times, ratios;
  for (int round = 0; round < kRounds; ++round) {
    const double slice = seconds / (2 * kRounds);
    float_times.push_back(in_float.seconds(x, slice));
    quantized_times.push_back(quantized.seconds(x, slice));
    ratios.push_back(float_times.back() / quantized_times.back());
  }
  const double time = middle(quantized_times);
  const double operations = 2.0 * kind.multiply_adds * batch;
  const bench::Int8Peak& peak = bench::int8_peak();
  // Weights are read again in each run, from whatever cache holds them.
  const double weights = state_bytes(*pair.quantized);
  const auto moved = static_cast<double>(measure_work(*pair.quantized, x).bytes);
  json row{
      {"model", kind.name},
      {"dtype", kind.is_static ? "int8" : "dynamic-int8"},
      {"frozen", quantized.frozen.has_value()},
      {"batch", batch},
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
  json figures{{"machine", machine()}, {"networks", json::array()}};
  fmt::print("{:<20} {:>5} {:>7} {:>10} {:>10} {:>8}\n", "network", "batch", "threads", "float ms",
             "int8 ms", "ratio");
  for (const NetworkKind& kind : network_kinds()) {
    const bool wanted = options.models.empty() ||
                        std::ranges::find(options.models, kind.name) != options.models.end();
    if (!wanted) continue;
    const Pair pair = make_pair(kind);
    for (const int batch : options.batches) {
      const json row = time_pair(kind, pair, batch, options.seconds);
      fmt::print("{:<20} {:>5} {:>7} {:>10.3f} {:>10.3f} {:>8.2f}\n", kind.name, batch,
                 get_num_threads(), row["float_ms"].get<double>(), row["int8_ms"].get<double>(),
                 row["float_over_int8"].get<double>());
      std::fflush(stdout);
      figures["networks"].push_back(row);
    }
  }
  if (!options.json.empty()) write_json(options.json, figures);
  return 0;
}

}  // namespace quanta::cli
