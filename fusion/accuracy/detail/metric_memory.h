#pragma once

// Private: what a metric said of networks that were tried, also in an earlier run.

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>

#include "quanta/fusion/accuracy/detail/layer_switches.h"
#include "quanta/fusion/sensitivity.h"

namespace quanta::accuracy {

class MetricMemory {
 public:
  /// Reads options.resume, if it is there. Throws FileError where it is of another network.
  MetricMemory(const LayerSwitches& switches, detail::AnyMetric metric,
               const SensitivityOptions& options);
  /// How many answers will be asked for in all.
  void expect(std::size_t total) noexcept { total_ = total; }
  /// The metric of the network, which `what` names, or what the file has under that name. Throws what
  /// the metric throws, ArgumentError for a NaN, and FileError when the file cannot be written.
  double measure(const nn::Module& model, const std::string& what);

 private:
  void save() const;

  detail::AnyMetric metric_;
  SensitivityOptions options_;
  std::string network_;
  std::map<std::string, double> known_;
  std::size_t done_ = 0, total_ = 0;
};

}  // namespace quanta::accuracy
