#include "profile.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>
#include <vector>

#include "../bench/peak.h"
#include "networks.h"
#include "profile_report.h"
#include "quanta/quanta.h"

namespace quanta::cli {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

/// What the machine gives to the threads that ops use.
struct Machine {
  bench::Int8Peak int8 = bench::int8_peak();
  bench::ReadBandwidths read;
  double copy = bench::copy_bandwidth(std::size_t{16} << 20, 0.05);
};

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

double op_us(const std::vector<ModuleProfile>& modules) {
  double sum = 0.0;
  for (const ModuleProfile& module : modules) sum += module.op_us;
  return sum;
}

/// Of one network, in microseconds.
struct Totals {
  double call = 0.0;     ///< a whole call, without a profiler
  double ops = 0.0;      ///< the sum of the modules' medians
  double outside = 0.0;  ///< of a profiled call, and not in ops
  double sum() const { return ops + outside; }
};

/// One network, and what several runs of it took.
struct Profiled {
  explicit Profiled(std::shared_ptr<nn::Module> network) : model(std::move(network)) {
    profiler.stop();
  }

  std::shared_ptr<nn::Module> model;
  std::vector<double> call_us, outside_us;
  std::vector<std::vector<ModuleProfile>> runs;
  Profiler profiler;  ///< of the last run

  void warm_up(const Tensor& x) {
    for (int i = 0; i < 3; ++i) static_cast<void>((*model)(x));
    static_cast<void>(profiled_us(x));  // it knows the modules' names then
  }
  double profiled_us(const Tensor& x) {
    profiler.clear();
    profiler.start();
    const auto start = Clock::now();
    static_cast<void>((*model)(x));
    const double us = microseconds_since(start);
    profiler.stop();
    return us;
  }
  void run(const Tensor& x) {
    // The other network has just used the caches.
    static_cast<void>((*model)(x));
    const auto start = Clock::now();
    static_cast<void>((*model)(x));
    call_us.push_back(microseconds_since(start));
    const double us = profiled_us(x);
    runs.push_back(profiler.modules());
    // Differences of one run: on a busy machine those of medians would tell of other runs' delays.
    outside_us.push_back(us - op_us(runs.back()));
  }
  Totals totals(const std::vector<ModuleTime>& modules) const {
    Totals totals{.call = median(call_us), .outside = median(outside_us)};
    for (const ModuleTime& module : modules) totals.ops += module.us;
    return totals;
  }
};

/// The figures of a module, 0 where they are not known.
struct Rates {
  Rates(const OpWork& work, double us, const Machine& machine)
      : giga_ops(giga_ops_per_second(work, us)), giga_bytes(giga_bytes_per_second(work, us)) {
    if (machine.int8.vector_ops > 0.0) of_vector_peak = 1e9 * giga_ops / machine.int8.vector_ops;
    if (machine.int8.tile_ops > 0.0) of_tile_peak = 1e9 * giga_ops / machine.int8.tile_ops;
    of_bandwidth = 1e9 * giga_bytes / machine.read(static_cast<std::size_t>(work.bytes));
  }
  double giga_ops, giga_bytes;
  double of_vector_peak = 0.0, of_tile_peak = 0.0, of_bandwidth = 0.0;
};

/// Everything that is printed and written.
struct Result {
  const ProfileOptions& options;
  NetworkForm form;
  const Machine& machine;
  std::map<std::string, std::string> types;  ///< of the quantized network's modules, by path
  Comparison comparison;
  Totals quantized, in_float;

  std::string form_name() const { return form == NetworkForm::Int8 ? "int8" : "dynamic-int8"; }
  std::string type_of(const std::string& path) const {
    const auto found = types.find(path);
    return found == types.end() ? std::string() : found->second;
  }
};

std::string label(const std::string& path) { return path.empty() ? "(network)" : path; }

std::string shortened(const std::string& text, std::size_t length) {
  return text.size() <= length ? text : text.substr(0, length - 2) + "..";
}

std::string number_or_dash(double value, int digits) {
  return value > 0.0 ? fmt::format("{:.{}f}", value, digits) : "-";
}
std::string percent_or_dash(double share) {
  return share > 0.0 ? fmt::format("{:.1f}%", 100.0 * share) : "-";
}

using Cells = std::vector<std::string>;

/// Text to the left in the first `left` columns, numbers to the right in the others.
void print_table(const std::vector<Cells>& rows, std::size_t left) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const Cells& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  for (const Cells& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      line += c < left ? fmt::format("{:<{}}  ", row[c], widths[c])
                       : fmt::format("{:>{}}  ", row[c], widths[c]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    fmt::print("{}\n", line);
  }
}

Cells header(const Result& result) {
  Cells cells{"module", "type", "kernel", "us", "share", "GOP/s"};
  cells.push_back(fmt::format("of {}", result.machine.int8.instruction));
  if (result.machine.int8.tile_ops > 0.0) cells.push_back("of AMX");
  for (const char* name : {"GB/s", "of read", "float us", "float/int8", ""}) cells.push_back(name);
  return cells;
}

Cells table_row(const Result& result, const ComparedModule& row) {
  const ModuleTime& module = row.quantized;
  const Rates rates(module.work, module.us, result.machine);
  Cells cells{label(module.path),
              shortened(result.type_of(module.path), 24),
              shortened(fmt::format("{}", fmt::join(module.kernels, ", ")), 32),
              fmt::format("{:.1f}", module.us),
              percent_or_dash(module.us / result.quantized.sum()),
              number_or_dash(rates.giga_ops, 1),
              percent_or_dash(rates.of_vector_peak)};
  if (result.machine.int8.tile_ops > 0.0) cells.push_back(percent_or_dash(rates.of_tile_peak));
  cells.push_back(number_or_dash(rates.giga_bytes, 1));
  cells.push_back(percent_or_dash(rates.of_bandwidth));
  if (row.float_us) {
    cells.push_back(fmt::format("{:.1f}", *row.float_us));
    cells.push_back(fmt::format("{:.2f}", *row.float_us / row.compared_us));
    cells.push_back(row.is_slower() ? "slower" : "");
  } else {
    const bool elsewhere = row.compared_at && *row.compared_at != module.path;
    cells.push_back(elsewhere ? fmt::format("with {}", label(*row.compared_at)) : "-");
    cells.push_back("");
    cells.push_back("");
  }
  return cells;
}

void print_slower(const Result& result) {
  std::vector<const ComparedModule*> slower;
  for (const ComparedModule& row : result.comparison.modules) {
    if (row.is_slower()) slower.push_back(&row);
  }
  if (slower.empty()) {
    fmt::print("slower in {} than in float: none\n", result.form_name());
    return;
  }
  fmt::print("slower in {} than in float:\n", result.form_name());
  for (const ComparedModule* row : slower) {
    fmt::print("  {} ({}): {:.1f} us, float {:.1f} us\n", label(*row->compared_at),
               fmt::join(row->quantized.ops, ", "), row->compared_us, *row->float_us);
  }
}

void print_text(const Result& result) {
  const Machine& machine = result.machine;
  fmt::print("{} {}, batch {}, {} threads, medians of {} runs\n", result.options.model,
             result.form_name(), result.options.batch, get_num_threads(), result.options.repeats);
  fmt::print("this machine: {:.0f} GOP/s of int8 {}", machine.int8.vector_ops / 1e9,
             machine.int8.instruction);
  if (machine.int8.tile_ops > 0.0) {
    fmt::print(", {:.0f} GOP/s of AMX tiles", machine.int8.tile_ops / 1e9);
  }
  fmt::print(", reads {:.1f} GB/s from caches and {:.1f} GB/s from memory, copies {:.1f} GB/s\n\n",
             machine.read.from_cache() / 1e9, machine.read.from_memory() / 1e9, machine.copy / 1e9);

  std::vector<Cells> rows{header(result)};
  for (const ComparedModule& row : result.comparison.modules) {
    rows.push_back(table_row(result, row));
  }
  print_table(rows, 3);
  fmt::print("\n");

  const auto print_totals = [](const std::string& name, const Totals& totals) {
    fmt::print("{:<12}  {:.1f} us in ops, {:.1f} us outside of them ({:.1f} %); {:.1f} us a call\n",
               name, totals.ops, totals.outside, 100.0 * totals.outside / totals.sum(),
               totals.call);
  };
  print_totals(result.form_name(), result.quantized);
  print_totals("float32", result.in_float);
  fmt::print("{:<12}  {:.2f}\n\n", "float/int8", result.in_float.call / result.quantized.call);
  for (const ModuleTime& module : result.comparison.float_only) {
    fmt::print("only in float: {} ({}), {:.1f} us\n", label(module.path),
               fmt::join(module.ops, ", "), module.us);
  }
  print_slower(result);
}

json totals_json(const Totals& totals) {
  return {{"call_us", totals.call}, {"op_us", totals.ops}, {"outside_us", totals.outside}};
}

json module_json(const Result& result, const ComparedModule& row) {
  const ModuleTime& module = row.quantized;
  const Rates rates(module.work, module.us, result.machine);
  json object{{"path", module.path},
              {"type", result.type_of(module.path)},
              {"ops", module.ops},
              {"kernels", module.kernels},
              {"us", module.us},
              {"share", module.us / result.quantized.sum()},
              {"multiply_adds", module.work.multiply_adds},
              {"bytes", module.work.bytes},
              {"gops", rates.giga_ops},
              {"of_int8_peak", rates.of_vector_peak},
              {"of_tile_peak", rates.of_tile_peak},
              {"gbytes", rates.giga_bytes},
              {"of_read_bandwidth", rates.of_bandwidth},
              {"slower_than_float", row.is_slower()}};
  if (row.compared_at) object["compared_at"] = *row.compared_at;
  if (row.float_us) {
    object["float_us"] = *row.float_us;
    object["compared_us"] = row.compared_us;
  }
  return object;
}

void write_json(const Result& result) {
  const Machine& machine = result.machine;
  json figures{{"model", result.options.model},
               {"dtype", result.form_name()},
               {"batch", result.options.batch},
               {"threads", get_num_threads()},
               {"repeats", result.options.repeats},
               {"total", totals_json(result.quantized)},
               {"float_total", totals_json(result.in_float)},
               {"machine",
                {{"int8_instruction", machine.int8.instruction},
                 {"int8_gops", machine.int8.vector_ops / 1e9},
                 {"tile_gops", machine.int8.tile_ops / 1e9},
                 {"read_cache_gbytes", machine.read.from_cache() / 1e9},
                 {"read_memory_gbytes", machine.read.from_memory() / 1e9},
                 {"copy_gbytes", machine.copy / 1e9}}},
               {"modules", json::array()},
               {"float_only", json::array()}};
  for (const ComparedModule& row : result.comparison.modules) {
    figures["modules"].push_back(module_json(result, row));
  }
  for (const ModuleTime& module : result.comparison.float_only) {
    figures["float_only"].push_back(
        {{"path", module.path}, {"ops", module.ops}, {"us", module.us}});
  }
  const std::string text = figures.dump(2) + "\n";
  write_file_atomically(result.options.json,
                        [&](const auto& sink) { sink(std::as_bytes(std::span(text))); });
}

NetworkForm chosen_form(const NetworkKind& kind, const std::string& dtype) {
  if (dtype.empty()) return kind.is_static ? NetworkForm::Int8 : NetworkForm::DynamicInt8;
  const NetworkForm form = network_form(dtype);
  if (form == NetworkForm::Float32) {
    throw ArgumentError("profile: --dtype: expected int8 or dynamic-int8, got float32");
  }
  return form;
}

Tensor first_batch(const NetworkKind& kind, const ProfileOptions& options) {
  const Tensor inputs = read_inputs(kind, options.input);
  if (inputs.size(0) < options.batch) {
    throw ArgumentError(
        fmt::format("profile: --batch: expected at most the {} inputs of {}, got {}",
                    inputs.size(0), options.input, options.batch));
  }
  const Tensor x = inputs.slice(0, 0, options.batch).clone();
  return x.dim() == 4 ? x.contiguous(MemoryFormat::ChannelsLast) : x;
}

}  // namespace

int run_profile(const ProfileOptions& options) {
  if (options.threads > 0) set_num_threads(options.threads);
  const NetworkKind& kind = network_kind(options.model);
  const NetworkForm form = chosen_form(kind, options.dtype);
  if (is_saved_model(options.weights)) {
    throw ArgumentError(fmt::format(
        "profile: --weights: expected float weights, which both networks are made of, got the "
        "quantized model {}",
        options.weights));
  }
  const Tensor x = first_batch(kind, options);
  const Tensor calibration = options.calib.empty() ? Tensor() : read_inputs(kind, options.calib);
  Profiled in_float(load_float_network(kind, options.weights));
  Profiled quantized(load_network(kind, form, options.weights, calibration));
  in_float.warm_up(x);
  quantized.warm_up(x);
  const Machine machine;
  for (int i = 0; i < options.repeats; ++i) {
    in_float.run(x);
    quantized.run(x);
  }

  const std::vector<ModuleTime> times = median_times(quantized.runs);
  const std::vector<ModuleTime> float_times = median_times(in_float.runs);
  Result result{options,
                form,
                machine,
                {},
                compare(times, float_times),
                quantized.totals(times),
                in_float.totals(float_times)};
  for (const nn::Module::NamedModule& entry : quantized.model->named_modules()) {
    result.types[entry.path] = entry.module->type_name();
  }
  print_text(result);
  if (!options.json.empty()) write_json(result);
  if (!options.trace.empty()) {
    write_chrome_trace(options.trace, {{result.form_name(), quantized.profiler.events()},
                                       {"float32", in_float.profiler.events()}});
  }
  return 0;
}

}  // namespace quanta::cli
