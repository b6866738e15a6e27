#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>

#include "../bench/peak.h"
#include "profile.h"
#include "quanta/runtime/profile_table.h"

namespace quanta::cli {

/// What the machine gives to the threads that ops use.
struct Machine {
  bench::Int8Peak int8 = bench::int8_peak();
  bench::ReadBandwidths read;
  double copy = bench::copy_bandwidth(std::size_t{16} << 20, 0.05);
};

/// Of one network, in microseconds.
struct Totals {
  double call = 0.0;     ///< a whole call, without a profiler
  double ops = 0.0;      ///< the sum of the modules' medians
  double outside = 0.0;  ///< of a profiled call, and not in ops
  double sum() const { return ops + outside; }
};

/// Everything that is printed and written.
struct ProfileResult {
  const ProfileOptions& options;
  std::string form;  ///< "int8", "dynamic-int8"
  const Machine& machine;
  std::map<std::string, std::string> types;  ///< of the quantized network's modules, by path
  ProfileComparison comparison;
  Totals quantized, in_float;
  std::optional<Totals> plan;             ///< of the frozen network
  std::map<std::string, double> plan_us;  ///< by path
  std::string plan_refusal;               ///< why there is none
};

/// The table, the totals, and the list of what is slower than in float, on stdout.
void print_profile(const ProfileResult& result);
/// All figures to options.json.
void write_profile_json(const ProfileResult& result);

}  // namespace quanta::cli
