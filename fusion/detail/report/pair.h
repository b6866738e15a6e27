#pragma once

// Private: a float network and its quantized form, whatever they are made of: what make_report goes
// through.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "quanta/fusion/report.h"
#include "quanta/nn/module.h"

namespace quanta::reporting {

/// One result of one layer.
struct LayerResult {
  std::size_t layer = 0;
  Tensor reference, value;
  Tensor alone;  ///< undefined where it is not known
  std::optional<ReportGrid> grid;
};
using Visit = std::function<void(const LayerResult& result)>;

/// What both networks gave.
struct Outputs {
  std::vector<std::string> names;
  std::vector<Tensor> reference, value;
};

struct LayerTime {
  std::vector<double> ms;  ///< of each run
  std::int64_t multiply_adds = 0;
};

/// The times of one network.
struct Times {
  std::vector<double> whole_ms;
  std::vector<LayerTime> layers;  ///< as many as layers
};

class Pair {
 public:
  Pair() = default;
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  virtual ~Pair() = default;

  /// Without figures: names, types, kinds and weights, in the order of the quantized network's first
  /// calls. Known after find_layers.
  std::vector<LayerReport> layers;
  std::vector<ReportNode> nodes;

  /// Both networks as `metric` gets them.
  virtual const nn::Module& in_float() const = 0;
  virtual const nn::Module& quantized() const = 0;

  /// Adds a run of each to the times, in turns, after a warm-up. The layers are known.
  virtual void time(std::span<const Tensor> inputs, int repeats, Times& in_float,
                    Times& quantized) = 0;
  /// Fills in layers and nodes, by a run.
  virtual void find_layers(std::span<const Tensor> inputs) = 0;
  /// Runs both and shows the results of layers that are `wanted` (all where it is empty), with those
  /// of the layers alone if asked for.
  virtual Outputs run(std::span<const Tensor> inputs, bool alone, const std::vector<bool>& wanted,
                      const Visit& visit) = 0;
};

/// Both are spoiled.
std::unique_ptr<Pair> eager_pair(std::shared_ptr<nn::Module> in_float,
                                 std::shared_ptr<nn::Module> quantized);
std::unique_ptr<Pair> graph_pair(const graph::Model& in_float, const graph::Model& quantized,
                                 const std::vector<std::pair<std::string, std::string>>& aliases);

/// What the quantized layer's inputs are when the float network's are given to it: those that were
/// codes become codes of the same parameters. Nothing where that cannot be.
std::optional<std::vector<Tensor>> as_taken(std::span<const Tensor> in_float,
                                            std::span<const Tensor> taken);

/// The report of a pair.
Report report_of(Pair& pair, const ReportData& data, const ReportOptions& options);

/// By the rules of docs/report.md.
std::vector<Suggestion> suggestions_for(const Report& report);

}  // namespace quanta::reporting
