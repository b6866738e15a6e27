#pragma once

#include <optional>
#include <string>
#include <vector>

#include "quanta/runtime/profiler.h"

namespace quanta::cli {

/// What the ops of one module take in one run of a network.
struct ModuleTime {
  std::string path;
  std::vector<std::string> ops, kernels;
  double us = 0.0;
  OpWork work;
};

/// The middle one of one or more values.
double median(std::vector<double> values);

/// The median over `runs` of the same network, in the order of the modules' first ops.
std::vector<ModuleTime> median_times(const std::vector<std::vector<ModuleProfile>>& runs);

/// A module of the quantized network beside what the float network has in its place.
struct ComparedModule {
  ModuleTime quantized;
  /// In the float network; unset when it has nothing there (a QuantStub), or when the comparison
  /// stands with another module.
  std::optional<double> float_us;
  /// What float_us is compared with: this module and those that are `compared_at` its path.
  double compared_us = 0.0;
  /// The path of the module that its time is compared at: its own, or the nearest one around it
  /// that has float ops; empty when there is none.
  std::optional<std::string> compared_at;

  /// By more than 2 %, which is what two medians differ by without a reason.
  bool is_slower() const { return float_us && compared_us > 1.02 * *float_us; }
};

struct Comparison {
  std::vector<ComparedModule> modules;
  /// Modules of the float network without a counterpart (a ReLU that was fused).
  std::vector<ModuleTime> float_only;
};

/// Finds modules in both networks by path. Where one of the networks runs in a module what the
/// other runs in its children, all of that is compared at the outer one.
Comparison compare(const std::vector<ModuleTime>& quantized,
                   const std::vector<ModuleTime>& in_float);

}  // namespace quanta::cli
