#include "bench.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "json_file.h"
#include "layer_report.h"
#include "networks.h"
#include "process_memory.h"
#include "quanta/quanta.h"
#include "quanta/runtime/detail/file_memory.h"

namespace quanta::cli {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

std::int64_t nanoseconds(Clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
}

std::int64_t median(std::vector<std::int64_t> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Inputs to calibrate a network of random weights with.
constexpr std::int64_t kRandomCalibration = 8;

/// A network that is ready to run, with the inputs to run it on.
class Subject {
 public:
  explicit Subject(const BenchOptions& options)
      : kind_(network_kind(options.model)),
        batch_(options.batch),
        inputs_(options.input.empty() ? random_inputs(kind_, options.batch)
                                      : read_inputs(kind_, options.input)) {
    if (inputs_.size(0) < batch_) {
      throw ArgumentError(
          fmt::format("bench: --batch: expected at most the {} inputs of {}, got {}",
                      inputs_.size(0), options.input, batch_));
    }
    if (!options.input.empty()) {
      const StateDict file = read_safetensors(options.input);
      if (const Tensor* expected = file.find("float_out")) expected_ = *expected;
    }
    make_model(options);
    x_ = inputs_.slice(0, 0, batch_).clone();
    if (x_.dim() == 4) x_ = x_.contiguous(MemoryFormat::ChannelsLast);
    if (!options.eager) {
      frozen_ = freeze(*model_, x_);
      model_.reset();
    }
  }

  void run() const { static_cast<void>(call(x_)); }

  /// The outputs for as many inputs as whole batches hold.
  Tensor outputs() const {
    std::vector<Tensor> parts;
    for (std::int64_t begin = 0; begin + batch_ <= inputs_.size(0); begin += batch_) {
      parts.push_back(call(inputs_.slice(0, begin, begin + batch_)));
      // The figures tell of the network's memory, not of how many inputs a file holds.
      quanta::detail::release_file_memory(inputs_);
    }
    return cat(parts, 0);
  }

  const Tensor& expected() const { return expected_; }
  double operations() const { return 2.0 * kind_.multiply_adds * static_cast<double>(batch_); }
  double file_megabytes() const { return file_bytes_ / 1e6; }

 private:
  void make_model(const BenchOptions& options) {
    const NetworkForm form = network_form(options.dtype);
    const bool is_random = options.weights.empty();
    Tensor calibration;
    if (!options.calib.empty()) {
      calibration = read_inputs(kind_, options.calib);
    } else if (is_random) {
      calibration = random_inputs(kind_, kRandomCalibration);
    }
    model_ = is_random ? make_random_network(kind_, form, calibration)
                       : load_network(kind_, form, options.weights, calibration);
    if (!options.save.empty()) save_model(*model_, options.save);
    const std::string& file = options.save.empty() ? options.weights : options.save;
    if (!file.empty()) file_bytes_ = static_cast<double>(std::filesystem::file_size(file));
  }

  Tensor call(const Tensor& x) const { return model_ != nullptr ? (*model_)(x) : frozen_(x); }

  const NetworkKind& kind_;
  std::int64_t batch_;
  Tensor inputs_, expected_, x_;
  std::shared_ptr<nn::Module> model_;  // null when frozen
  FrozenModel frozen_;
  double file_bytes_ = 0.0;
};

/// Calls for so many seconds, at least one; nanoseconds of each.
std::vector<std::int64_t> time_calls(const Subject& subject, double seconds) {
  std::vector<std::int64_t> times;
  const Clock::time_point stop = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                    std::chrono::duration<double>(seconds));
  for (;;) {
    const Clock::time_point begin = Clock::now();
    subject.run();
    const Clock::time_point end = Clock::now();
    times.push_back(nanoseconds(end - begin));
    if (end >= stop) return times;
  }
}

json accuracy(const Subject& subject) {
  const Tensor got = subject.outputs();
  const Tensor expected = subject.expected().slice(0, 0, got.size(0));
  const std::vector<std::int64_t> a = argmax(got, 1).to_int64_vector();
  const std::vector<std::int64_t> b = argmax(expected, 1).to_int64_vector();
  std::size_t same = 0;
  for (std::size_t i = 0; i < a.size(); ++i) same += a[i] == b[i] ? 1 : 0;
  return {{"sqnr_db", sqnr_db(expected, got)},
          {"top1", static_cast<double>(same) / static_cast<double>(a.size())}};
}

json answer(const Subject& subject, const json& request, std::int64_t& last_median) {
  const std::string command = request.at("cmd");
  if (command == "accuracy") {
    if (!subject.expected().defined()) {
      throw ArgumentError("bench: --input: expected a file with float_out, got one without");
    }
    return accuracy(subject);
  }
  const double seconds = request.at("seconds");
  // Not timed: caches and clocks.
  if (static_cast<double>(last_median) < seconds * 0.3e9) subject.run();
  const double cpu = process_cpu_seconds();
  const std::vector<std::int64_t> times = time_calls(subject, seconds);
  last_median = median(times);
  return {{"ns", times},
          {"cpu_ns", static_cast<std::int64_t>(1e9 * (process_cpu_seconds() - cpu))},
          {"reps", times.size()}};
}

void say(const json& message) { std::cout << message.dump() << std::endl; }

// One JSON object a line; errors become one as well, so that the harness can tell them.
int run_worker(const BenchOptions& options) {
  std::unique_ptr<const Subject> subject;
  const double before = process_memory().resident;
  double first_result_ms = 0.0;
  try {
    subject = std::make_unique<const Subject>(options);
    subject->run();
    first_result_ms = milliseconds_since_start();
    for (int i = 0; i < 2; ++i) subject->run();
  } catch (const std::exception& error) {
    say({{"error", error.what()}});
    return 1;
  }
  const double start_peak = process_memory().peak;
  const bool was_reset = reset_memory_peak();
  say({{"ready", true},
       {"file_mb", subject->file_megabytes()},
       {"rss_runtime_mb", before},
       {"rss_loaded_mb", process_memory().resident},
       {"info",
        {{"first_result_ms", first_result_ms},
         {"start_peak_mb", start_peak},
         {"threads", get_num_threads()}}}});
  std::string line;
  std::int64_t last_median = 0;
  double peak = 0.0;
  while (std::getline(std::cin, line)) {
    try {
      const json request = json::parse(line);
      if (request.at("cmd") == "quit") break;
      if (request.at("cmd") == "accuracy") peak = std::max(peak, process_memory().peak);
      say(answer(*subject, request, last_median));
    } catch (const std::exception& error) {
      say({{"error", error.what()}});
    }
  }
  // As the other peers report it: the peak with everything that was asked for.
  say({{"rss_peak_mb", process_memory().peak},
       {"rss_peak_timed_mb", peak},
       {"peak_was_reset", was_reset}});
  return 0;
}

void print_text(const BenchOptions& options, const json& figures) {
  fmt::print("{} {}, batch {}, {} threads\n", options.model, options.dtype, options.batch,
             figures["threads"].get<int>());
  const auto row = [&](const char* label, const char* key, const char* unit) {
    if (figures.contains(key)) {
      fmt::print("  {:<28} {:>12.3f} {}\n", label, figures[key].get<double>(), unit);
    }
  };
  row("median", "median_ms", "ms");
  row("fastest", "min_ms", "ms");
  row("start to first result", "first_result_ms", "ms");
  row("speed", "gops_median", "GOP/s");
  row("peak memory", "rss_peak_mb", "MB");
  row("file", "file_mb", "MB");
  row("SQNR against float", "sqnr_db", "dB");
  row("top-1 as float", "top1", "");
}

}  // namespace

int run_bench(const BenchOptions& options) {
  if (options.threads > 0) set_num_threads(options.threads);
  if (options.worker) return run_worker(options);
  const Subject subject(options);
  subject.run();
  const double first_result_ms = milliseconds_since_start();
  for (int i = 0; i < 2; ++i) subject.run();
  const std::vector<std::int64_t> times = time_calls(subject, options.seconds);
  const double middle = static_cast<double>(median(times));
  json figures{{"model", options.model},
               {"dtype", options.dtype},
               {"batch", options.batch},
               {"threads", get_num_threads()},
               {"median_ms", middle / 1e6},
               {"min_ms", static_cast<double>(*std::min_element(times.begin(), times.end())) / 1e6},
               {"reps", times.size()},
               {"gops_median", subject.operations() / middle},
               {"first_result_ms", first_result_ms},
               {"file_mb", subject.file_megabytes()},
               {"rss_peak_mb", process_memory().peak}};
  if (subject.expected().defined()) figures.update(accuracy(subject));
  if (!options.output.empty()) {
    StateDict outputs;
    outputs.set("y", subject.outputs());
    write_safetensors(options.output, outputs);
  }
  if (!options.json.empty()) write_json(options.json, figures);
  print_text(options, figures);
  return 0;
}

}  // namespace quanta::cli
