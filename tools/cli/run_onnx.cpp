#include "run_onnx.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>

#include "console/progress.h"
#include "quanta/fusion/graph/frozen.h"
#include "quanta/fusion/graph/model.h"
#include "quanta/nn/data/npy.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/parallel.h"
#include "quanta/runtime/safetensors.h"

namespace quanta::cli {
namespace {

namespace fs = std::filesystem;
using graph::NamedTensors;

/// The elements of any plain tensor. Integers beyond 2^53 are rounded: these are for people to read.
std::vector<double> values_of(const Tensor& x) {
  const Tensor wide = x.to(DType::Float64).contiguous();
  const auto* values = wide.data<double>();
  return {values, values + wide.numel()};
}

void print_result(const std::string& name, const Tensor& x) {
  constexpr std::size_t kShown = 6;
  const std::vector<double> values = values_of(x);
  fmt::print("{:<24} {:<8} {:<20}", name, torch_name(x.dtype()), to_string(x.sizes()));
  if (!values.empty()) {
    double sum = 0.0;
    for (const double value : values) sum += value;
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    fmt::print(" {:.5g} .. {:.5g}, mean {:.5g}:", *least, *most,
               sum / static_cast<double>(values.size()));
    for (std::size_t i = 0; i < std::min(kShown, values.size()); ++i) {
      fmt::print(" {:.5g}", values[i]);
    }
    if (values.size() > kShown) fmt::print(" ...");
  }
  fmt::print("\n");
}

void write_results(const fs::path& path, const NamedTensors& results) {
  if (path.extension() == ".npz") {
    data::write_npz(results, path);
  } else if (path.extension() == ".npy" && results.size() == 1) {
    data::write_npy(results.begin()->second, path);
  } else if (path.extension() == ".safetensors") {
    StateDict tensors;
    for (const auto& [name, tensor] : results) tensors.set(name, tensor.contiguous());
    write_safetensors(tensors, path);
  } else {
    throw ArgumentError(
        fmt::format("run: --output: expected .npz or .safetensors (or .npy for one result), got {}",
                    path.string()));
  }
}

/// What is wrong with `got`, "" where nothing is.
std::string mismatch(const Tensor& got, const Tensor& want, const RunOptions& options) {
  if (got.dtype() != want.dtype() || got.sizes() != want.sizes()) {
    return fmt::format("expected {} {}, got {} {}", torch_name(want.dtype()), want.sizes(),
                       torch_name(got.dtype()), got.sizes());
  }
  if (got.equal(want)) return {};
  const bool is_float = want.is_floating_point();
  const std::vector<double> a = values_of(got);
  const std::vector<double> b = values_of(want);
  std::size_t wrong = 0;
  std::size_t first = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool same = a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]));
    const double allowed = is_float ? options.atol + options.rtol * std::fabs(b[i]) : 0.0;
    // An infinity has to be itself, and NaN is near nothing.
    if (same || (std::isfinite(b[i]) && std::fabs(a[i] - b[i]) <= allowed)) continue;
    if (wrong++ == 0) first = i;
  }
  if (wrong == 0) return {};
  return fmt::format("{} of {} elements differ, first number {}: expected {}, got {}", wrong,
                     a.size(), first, b[first], a[first]);
}

std::string nearness(const Tensor& got, const Tensor& want) {
  if (got.sizes() != want.sizes() || got.dtype() != want.dtype()) return {};
  if (got.equal(want)) return "equal";
  const std::vector<double> a = values_of(got);
  const std::vector<double> b = values_of(want);
  double signal = 0.0;
  double noise = 0.0;
  double most = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    most = std::max(most, std::fabs(a[i] - b[i]));
    noise += (a[i] - b[i]) * (a[i] - b[i]);
  }
  for (const double value : b) signal += std::isfinite(value) ? value * value : 0.0;
  return fmt::format("largest error {:.3g}, SQNR {:.2f} dB", most,
                     10.0 * std::log10(signal / noise));
}

Tensor read_golden(const fs::path& path) {
  const OnnxTensor tensor = read_onnx_tensor(path);
  if (!tensor.value.defined()) {
    throw UnsupportedError(
        fmt::format("{}: Quanta has no tensors of {}", path.string(), to_string(tensor.type)));
  }
  return tensor.value;
}

/// Inputs of a folder in ONNX's own layout, by position; those that --set has are skipped.
NamedTensors golden_inputs(const OnnxModel& file, const NamedTensors& constants,
                           const fs::path& folder) {
  NamedTensors inputs;
  const std::vector<OnnxValue> all = free_inputs(file);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (constants.contains(all[i].name)) continue;
    inputs[all[i].name] = read_golden(folder / fmt::format("input_{}.pb", i));
  }
  return inputs;
}

bool compare_golden(const graph::Model& net, const NamedTensors& results,
                    const RunOptions& options) {
  bool right = true;
  std::size_t position = 0;
  for (const std::string& name : net.output_names()) {
    const fs::path path = fs::path(options.golden) / fmt::format("output_{}.pb", position++);
    if (!fs::exists(path)) break;
    const Tensor want = read_golden(path);
    const Tensor& got = results.find(name)->second;
    const std::string text = mismatch(got, want, options);
    fmt::print("{:<24} {} {}\n", name, text.empty() ? "as expected:" : "DIFFERS: " + text + ";",
               nearness(got, want));
    right = right && text.empty();
  }
  if (position == 0 || !fs::exists(fs::path(options.golden) / "output_0.pb")) {
    throw FileError(
        fmt::format("run: --golden: {}: expected output_0.pb in it, got none", options.golden));
  }
  return right;
}

NamedTensors given_inputs(const RunOptions& options, const std::vector<OnnxValue>& inputs) {
  const SizesByName sizes = read_sizes(options.sizes, inputs);
  std::map<std::string, std::string> texts;
  for (const std::string& text : options.inputs) {
    // A .npz without a name has them all.
    if (text.find('=') == std::string::npos && inputs.size() > 1 &&
        (text.ends_with(".npz") || text.ends_with(".safetensors"))) {
      for (const OnnxValue& input : inputs) texts[input.name] = text;
      continue;
    }
    const auto [name, path] = split_input(text, inputs, "--input");
    texts[name] = path;
  }
  NamedTensors given;
  for (const OnnxValue& input : inputs) {
    const auto found = texts.find(input.name);
    if (found == texts.end()) fmt::print(stderr, "run: input '{}': random\n", input.name);
    given[input.name] =
        read_input(input, found == texts.end() ? "random" : found->second, sizes, options.pictures);
  }
  return given;
}

/// Milliseconds of each call.
std::vector<double> time_calls(const std::function<void()>& call, int repeats) {
  std::vector<double> times;
  std::optional<console::ProgressBar> bar;
  if (repeats > 1) bar.emplace("running", repeats);
  for (int i = 0; i < repeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    call();
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    times.push_back(took.count());
    if (bar) bar->advance(1);
  }
  std::sort(times.begin(), times.end());
  return times;
}

}  // namespace

int run_onnx(const RunOptions& options) {
  if (options.threads > 0) set_num_threads(options.threads);
  const auto begin = std::chrono::steady_clock::now();
  const OnnxModel file = read_onnx(options.path);
  const NamedTensors constants = read_constants(options.constants, file);
  const graph::Model net =
      graph::from_onnx(file, {.constants = constants, .literal = options.literal});
  const std::chrono::duration<double, std::milli> loading =
      std::chrono::steady_clock::now() - begin;
  const NamedTensors inputs = options.golden.empty()
                                  ? given_inputs(options, free_inputs(file, constants))
                                  : golden_inputs(file, constants, options.golden);
  std::optional<graph::FrozenGraph> frozen;
  if (options.plan == "on") frozen.emplace(net);
  const auto call = [&] { return frozen ? frozen->run(inputs) : net.run(inputs); };

  const NamedTensors results = call();
  for (const std::string& name : net.output_names()) {
    print_result(name, results.find(name)->second);
  }
  if (!options.output.empty()) write_results(options.output, results);
  const std::vector<double> times = time_calls([&] { static_cast<void>(call()); }, options.repeats);
  fmt::print("loaded in {:.2f} ms; {:.3f} ms a run (median of {}, fastest {:.3f}), {} threads",
             loading.count(), times[times.size() / 2], times.size(), times.front(),
             get_num_threads());
  if (frozen) {
    const graph::FrozenGraph::Info info = frozen->info();
    fmt::print(", {} steps, {} nodes outside of plans", info.steps, info.eager_nodes);
  }
  fmt::print("\n");
  if (options.golden.empty()) return 0;
  return compare_golden(net, results, options) ? 0 : 1;
}

}  // namespace quanta::cli
