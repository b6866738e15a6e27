#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "quanta/runtime/profiler.h"

/// Tables of what a Profiler heard, such as `quanta profile` prints:
///
///   Profiler profiler;
///   net(x);
///   fmt::print("{}", profile_table(median_times({profiler.modules()})));
///
/// Nothing here throws but for want of memory; many threads may call all of it at once.
namespace quanta {

/// What the ops of one module take in one run of a network.
struct ModuleTime {
  std::string path;
  std::vector<std::string> ops, kernels;
  double us = 0.0;
  OpWork work;
};

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

struct ProfileComparison {
  std::vector<ComparedModule> modules;
  /// Modules of the float network without a counterpart (a ReLU that was fused).
  std::vector<ModuleTime> float_only;
};

/// Finds modules in both networks by path. Where one of the networks runs in a module what the
/// other runs in its children, all of that is compared at the outer one.
ProfileComparison compare_profiles(const std::vector<ModuleTime>& quantized,
                                   const std::vector<ModuleTime>& in_float);

/// What a machine gives, to compare with. 0 or empty: not known, and not in the table.
struct MachineRates {
  double int8_ops = 0.0;  ///< operations a second of the vector units; a multiply-add is two
  double tile_ops = 0.0;  ///< of AMX tiles
  /// Bytes a second that are read again and again from so many bytes.
  std::function<double(std::size_t bytes)> read_bandwidth{};
};

/// What else a table shows.
struct ProfileTableOptions {
  std::map<std::string, std::string> types{};  ///< of the modules, by path
  std::map<std::string, double> plan_us{};     ///< of their steps in a frozen plan, by path
  double outside_us = 0.0;                     ///< time that belongs to no module, for the shares
  MachineRates machine{};
  /// Columns of text that a line may take; 0: any number. Long names are shortened, and if that is
  /// not enough, type, GB/s, % AMX, GOP/s and kernel are left out, in this order, and named below.
  std::size_t width = 100;
};

/// A line for each module: path, class, kernels, time in microseconds and its share, in the plan,
/// 10^9 operations and bytes a second with their shares of what the machine gives, the float time
/// and float / quantized time, with a star where it is slower. Where the time is compared with
/// another module around this one, the float time is "(outer)". Columns without any figure are left
/// out.
std::string profile_table(const ProfileComparison& comparison,
                          const ProfileTableOptions& options = {});
/// The same for one network alone.
std::string profile_table(const std::vector<ModuleTime>& modules,
                          const ProfileTableOptions& options = {});

}  // namespace quanta
