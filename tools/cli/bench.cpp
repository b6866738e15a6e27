#include "bench.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "bench_streams.h"
#include "bench_subject.h"
#include "first_result.h"
#include "json_file.h"
#include "process_memory.h"
#include "quanta/quanta.h"

namespace quanta::cli {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

std::int64_t nanoseconds(Clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
}

/// Calls for so many seconds, at least one; nanoseconds of each.
std::vector<std::int64_t> time_calls(const std::function<void()>& run, double seconds) {
  std::vector<std::int64_t> times;
  const Clock::time_point stop = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                    std::chrono::duration<double>(seconds));
  for (;;) {
    const Clock::time_point begin = Clock::now();
    run();
    const Clock::time_point end = Clock::now();
    times.push_back(nanoseconds(end - begin));
    if (end >= stop) return times;
  }
}

json accuracy(const BenchSubject& subject) {
  const Tensor got = subject.outputs();
  const Tensor expected = subject.expected().slice(0, 0, got.size(0));
  const std::vector<std::int64_t> a = argmax(got, 1).to_int64_vector();
  const std::vector<std::int64_t> b = argmax(expected, 1).to_int64_vector();
  std::size_t same = 0;
  for (std::size_t i = 0; i < a.size(); ++i) same += a[i] == b[i] ? 1 : 0;
  return {{"sqnr_db", sqnr(expected, got)},
          {"top1", static_cast<double>(same) / static_cast<double>(a.size())}};
}

/// What a worker is asked for, as one stream or several.
class Worker {
 public:
  explicit Worker(const BenchOptions& options)
      : subject_(make_bench_subject(options)), inputs_(subject_->request()) {
    run();
    first_result_ms_ = milliseconds_since_start();
    if (options.streams > 0) {
      streams_ = make_streams(*subject_, options.streams, std::max(options.threads, 1));
    } else {
      for (int i = 0; i < 2; ++i) run();
    }
  }

  json answer(const json& request) {
    const std::string command = request.at("cmd");
    if (command == "accuracy") {
      if (!subject_->expected().defined()) {
        throw ArgumentError("bench: --input: expected a file with float_out, got one without");
      }
      return accuracy(*subject_);
    }
    const double seconds = request.at("seconds");
    // Not timed: caches and clocks.
    const bool is_short = static_cast<double>(last_median_) < seconds * 0.3e9;
    if (streams_ == nullptr && is_short) run();
    const double cpu = process_cpu_seconds();
    json figures = streams_ != nullptr ? turn_of_streams(seconds) : turn_of_one(seconds);
    figures["cpu_ns"] = static_cast<std::int64_t>(1e9 * (process_cpu_seconds() - cpu));
    return figures;
  }

  const BenchSubject& subject() const { return *subject_; }
  double first_result_ms() const { return first_result_ms_; }

 private:
  void run() const { subject_->run(inputs_); }

  json turn_of_one(double seconds) {
    const std::vector<std::int64_t> times = time_calls([&] { run(); }, seconds);
    last_median_ = percentile(times, 0.5);
    return {{"ns", times}, {"reps", times.size()}};
  }
  json turn_of_streams(double seconds) {
    const StreamTurn turn = streams_->run(seconds);
    return {{"ns", turn.ns},
            {"reps", turn.ns.size()},
            {"elapsed_ns", static_cast<std::int64_t>(1e9 * turn.seconds)}};
  }

  std::unique_ptr<const BenchSubject> subject_;
  std::vector<Tensor> inputs_;
  std::unique_ptr<Streams> streams_;  // null: requests one after the other
  double first_result_ms_ = 0.0;
  std::int64_t last_median_ = 0;
};

void say(const json& message) { std::cout << message.dump() << std::endl; }

// One JSON object a line; errors become one as well, so that the harness can tell them.
int run_worker(const BenchOptions& options) {
  std::unique_ptr<Worker> worker;
  const double before = process_memory().resident;
  try {
    worker = std::make_unique<Worker>(options);
  } catch (const std::exception& error) {
    say({{"error", error.what()}});
    return 1;
  }
  const double start_peak = process_memory().peak;
  const bool was_reset = reset_memory_peak();
  say({{"ready", true},
       {"file_mb", worker->subject().file_megabytes()},
       {"rss_runtime_mb", before},
       {"rss_loaded_mb", process_memory().resident},
       {"info",
        {{"first_result_ms", worker->first_result_ms()},
         {"start_peak_mb", start_peak},
         {"threads", get_num_threads()}}}});
  std::string line;
  double peak = 0.0;
  while (std::getline(std::cin, line)) {
    try {
      const json request = json::parse(line);
      if (request.at("cmd") == "quit") break;
      if (request.at("cmd") == "accuracy") peak = std::max(peak, process_memory().peak);
      say(worker->answer(request));
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

/// One request after the other.
json time_alone(const BenchSubject& subject, const std::function<void()>& run, double seconds) {
  const std::vector<std::int64_t> times = time_calls(run, seconds);
  const auto middle = static_cast<double>(percentile(times, 0.5));
  const auto least = static_cast<double>(*std::min_element(times.begin(), times.end()));
  json figures{{"threads", get_num_threads()},
               {"median_ms", middle / 1e6},
               {"min_ms", least / 1e6},
               {"reps", times.size()}};
  if (subject.operations() > 0.0) figures["gops_median"] = subject.operations() / middle;
  return figures;
}

void print_text(const BenchOptions& options, const json& figures) {
  fmt::print("{} {}, batch {}, {}", figures["model"].get<std::string>(),
             figures["dtype"].get<std::string>(), options.batch,
             options.device.empty() ? "" : options.device + ", ");
  if (options.streams > 0) {
    print_streams(figures);
  } else {
    fmt::print("{} threads\n", figures["threads"].get<int>());
  }
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
  // A plan is made with as many threads as will run it.
  if (options.streams > 0) {
    set_num_threads(std::max(options.threads, 1));
  } else if (options.threads > 0) {
    set_num_threads(options.threads);
  }
  if (options.worker) return run_worker(options);
  if (options.first) return run_first_result(options);
  const std::unique_ptr<const BenchSubject> made = make_bench_subject(options);
  const BenchSubject& subject = *made;
  const std::vector<Tensor> inputs = subject.request();
  const auto run = [&] { subject.run(inputs); };
  run();
  const double first_result_ms = milliseconds_since_start();
  for (int i = 0; i < 2; ++i) run();
  json figures{{"model", options.onnx.empty() ? options.model : options.onnx},
               {"dtype", options.onnx.empty() ? options.dtype : "onnx"},
               {"batch", options.batch},
               {"device", options.device.empty() ? "cpu" : options.device},
               {"first_result_ms", first_result_ms},
               {"file_mb", subject.file_megabytes()}};
  if (options.streams > 0) {
    figures.update(time_streams(subject, options));
  } else {
    figures.update(time_alone(subject, run, options.seconds));
  }
  figures["rss_peak_mb"] = process_memory().peak;
  if (subject.expected().defined()) figures.update(accuracy(subject));
  if (!options.output.empty()) {
    StateDict outputs;
    outputs.set("y", subject.outputs());
    write_safetensors(outputs, options.output);
  }
  if (!options.json.empty()) write_json(options.json, figures);
  print_text(options, figures);
  return 0;
}

}  // namespace quanta::cli
