#include "profile_output.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <vector>

#include "json_file.h"
#include "quanta/runtime/atomic_file.h"
#include "quanta/runtime/parallel.h"

namespace quanta::cli {
namespace {

using nlohmann::json;

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

std::string label(const std::string& path) { return path.empty() ? "(network)" : path; }

std::string type_of(const ProfileResult& result, const std::string& path) {
  const auto found = result.types.find(path);
  return found == result.types.end() ? std::string() : found->second;
}

/// Lines of at most 100 columns, broken at blanks; those after the first are indented.
void print_wrapped(const std::string& text) {
  constexpr std::size_t kWidth = 100;
  std::string line;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    if (line.size() + 1 + end - begin > kWidth && line.find_first_not_of(' ') != line.npos) {
      fmt::print("{}\n", line);
      line = "   ";
    }
    if (begin > 0) line += ' ';
    line += text.substr(begin, end - begin);
    begin = end + 1;
  }
  fmt::print("{}\n", line);
}

void print_slower(const ProfileResult& result) {
  std::vector<const ComparedModule*> slower;
  for (const ComparedModule& row : result.comparison.modules) {
    if (row.is_slower()) slower.push_back(&row);
  }
  if (slower.empty()) {
    fmt::print("slower in {} than in float: none\n", result.form);
    return;
  }
  fmt::print("slower in {} than in float:\n", result.form);
  for (const ComparedModule* row : slower) {
    print_wrapped(fmt::format("  {} ({}): {:.1f} us, float {:.1f} us", label(*row->compared_at),
                              fmt::join(row->quantized.ops, ", "), row->compared_us,
                              *row->float_us));
  }
}

void print_totals(std::string_view name, const Totals& totals) {
  fmt::print("{:<12}  {:.1f} us in ops, {:.1f} us outside of them ({:.1f} %); {:.1f} us a call\n",
             name, totals.ops, totals.outside, 100.0 * totals.outside / totals.sum(), totals.call);
}

json totals_json(const Totals& totals) {
  return {{"call_us", totals.call}, {"op_us", totals.ops}, {"outside_us", totals.outside}};
}

json module_json(const ProfileResult& result, const ComparedModule& row) {
  const ModuleTime& module = row.quantized;
  const Rates rates(module.work, module.us, result.machine);
  json object{{"path", module.path},
              {"type", type_of(result, module.path)},
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
  if (const auto plan = result.plan_us.find(module.path); plan != result.plan_us.end()) {
    object["plan_us"] = plan->second;
  }
  if (row.compared_at) object["compared_at"] = *row.compared_at;
  if (row.float_us) {
    object["float_us"] = *row.float_us;
    object["compared_us"] = row.compared_us;
  }
  return object;
}

}  // namespace

void print_profile(const ProfileResult& result) {
  const Machine& machine = result.machine;
  fmt::print("{} {}, batch {}, {} threads, medians of {} runs\n", result.options.model, result.form,
             result.options.batch, get_num_threads(), result.options.repeats);
  std::string peaks = fmt::format("this machine: {:.0f} GOP/s of int8 {} (the peak)",
                                  machine.int8.vector_ops / 1e9, machine.int8.instruction);
  if (machine.int8.tile_ops > 0.0) {
    peaks += fmt::format(", {:.0f} GOP/s of AMX tiles", machine.int8.tile_ops / 1e9);
  }
  print_wrapped(fmt::format(
      "{}, reads {:.1f} GB/s from caches and {:.1f} GB/s from memory, copies {:.1f} GB/s", peaks,
      machine.read.from_cache() / 1e9, machine.read.from_memory() / 1e9, machine.copy / 1e9));
  fmt::print(
      "\n{}\n",
      profile_table(
          result.comparison,
          {.types = result.types,
           .plan_us = result.plan_us,
           .outside_us = result.quantized.outside,
           .machine = {.int8_ops = machine.int8.vector_ops,
                       .tile_ops = machine.int8.tile_ops,
                       .read_bandwidth = [&](std::size_t bytes) { return machine.read(bytes); }},
           .width = result.options.wide ? std::size_t{0} : std::size_t{100}}));

  print_totals(result.form, result.quantized);
  if (result.plan) {
    print_totals("plan", *result.plan);
  } else {
    print_wrapped(fmt::format("plan          none: {}", result.plan_refusal));
  }
  print_totals("float32", result.in_float);
  fmt::print("{:<12}  {:.2f}", "float/int8", result.in_float.call / result.quantized.call);
  if (result.plan) fmt::print(", {:.2f} as a plan", result.in_float.call / result.plan->call);
  fmt::print("\n\n");
  for (const ModuleTime& module : result.comparison.float_only) {
    print_wrapped(fmt::format("only in float: {} ({}), {:.1f} us", label(module.path),
                              fmt::join(module.ops, ", "), module.us));
  }
  print_slower(result);
}

void write_profile_json(const ProfileResult& result) {
  const Machine& machine = result.machine;
  json figures{{"model", result.options.model},
               {"dtype", result.form},
               {"batch", result.options.batch},
               {"threads", get_num_threads()},
               {"repeats", result.options.repeats},
               {"total", totals_json(result.quantized)},
               {"float_total", totals_json(result.in_float)},
               {"plan_refusal", result.plan_refusal},
               {"machine",
                {{"int8_instruction", machine.int8.instruction},
                 {"int8_gops", machine.int8.vector_ops / 1e9},
                 {"tile_gops", machine.int8.tile_ops / 1e9},
                 {"read_cache_gbytes", machine.read.from_cache() / 1e9},
                 {"read_memory_gbytes", machine.read.from_memory() / 1e9},
                 {"copy_gbytes", machine.copy / 1e9}}},
               {"modules", json::array()},
               {"float_only", json::array()}};
  if (result.plan) figures["plan_total"] = totals_json(*result.plan);
  for (const ComparedModule& row : result.comparison.modules) {
    figures["modules"].push_back(module_json(result, row));
  }
  for (const ModuleTime& module : result.comparison.float_only) {
    figures["float_only"].push_back(
        {{"path", module.path}, {"ops", module.ops}, {"us", module.us}});
  }
  write_json(result.options.json, figures, 2);
}

}  // namespace quanta::cli
