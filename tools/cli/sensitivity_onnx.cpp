#include "sensitivity_onnx.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include "console/progress.h"
#include "quanta/fusion/qconfig_file.h"
#include "quanta/fusion/sensitivity.h"
#include "quanta/ops/sqnr.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/parallel.h"

namespace quanta::cli {
namespace {

using graph::NamedTensors;

constexpr double kBytesPerMegabyte = 1e6;
/// What stands for a network whose results are those of the float one.
constexpr double kMostDecibels = 200.0;

/// The SQNR of all floating-point results against those of the float network, in dB.
class ResultSqnr {
 public:
  ResultSqnr(const graph::Model& net, const Samples& samples, std::int64_t count) {
    console::ProgressBar bar("running in float", count);
    for (std::int64_t i = 0; i < count; ++i) {
      inputs_.push_back(samples[i]);
      results_.push_back(net.run(inputs_.back()));
      bar.advance(1);
    }
  }

  double operator()(const graph::Model& model) const {
    SqnrSum sum;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const NamedTensors got = model.run(inputs_[i]);
      for (const auto& [name, reference] : results_[i]) {
        const Tensor& value = got.find(name)->second;
        if (!reference.is_floating_point()) continue;
        if (value.sizes() != reference.sizes()) {
          throw ArgumentError(fmt::format(
              "sensitivity: expected results of the same sizes in every run, got others for '{}': "
              "compare a network without the part that counts objects",
              name));
        }
        sum.add(reference, value);
      }
    }
    return std::min(sum.decibels(), kMostDecibels);
  }

 private:
  std::vector<NamedTensors> inputs_, results_;
};

/// A bar for the runs of the metric; `options` has to be used while this lives.
class Bar {
 public:
  explicit Bar(SensitivityOptions& options) {
    options.progress = [this](std::string_view what, std::size_t done, std::size_t total) {
      if (bar_ == nullptr || done == 1) {
        bar_ = std::make_unique<console::ProgressBar>("trying", static_cast<std::int64_t>(total));
      }
      bar_->advance(1, std::string(what.substr(0, kLongestNote)));
    };
  }

 private:
  static constexpr std::size_t kLongestNote = 40;
  std::unique_ptr<console::ProgressBar> bar_;
};

}  // namespace

int run_sensitivity(const SensitivityCommand& options) {
  const QuantizeOptions& quantize = options.quantize;
  if (quantize.threads > 0) set_num_threads(quantize.threads);
  const bool chooses = options.min_sqnr || options.max_ms || options.max_mb;
  if (!options.out.empty() && !chooses) {
    throw ArgumentError(
        "sensitivity: --out: expected --min-sqnr, --max-ms or --max-mb with it, got none");
  }
  const OnnxModel file = read_onnx(quantize.path);
  const NamedTensors constants = read_constants(quantize.constants, file);
  const std::vector<OnnxValue> inputs = free_inputs(file, constants);
  const graph::Model net = graph::from_onnx(file, {.constants = constants});
  const Samples samples = Samples::open(quantize.calib, inputs, read_sizes(quantize.sizes, inputs),
                                        quantize.pictures, quantize.batch, quantize.samples);
  const QConfigMapping qconfigs = static_qconfigs(quantize);
  const graph::RunFunction run = feed(samples, "calibrating");
  const CalibrationData data(net.in_order(samples[0]), [&](const nn::Module& model) {
    run(static_cast<const graph::Model&>(model));
  });
  const Metric<graph::Model> metric =
      ResultSqnr(net, samples, std::min(options.compared, samples.size()));
  SensitivityOptions tries{.resume = options.resume, .prepare = exact_preparation()};
  if (!chooses) {
    Sensitivity result;
    {
      const Bar bar(tries);
      result = sensitivity(net, qconfigs, data, metric, tries);
    }
    fmt::print("SQNR of the results against float, in dB\n{}", to_string(result));
    return 0;
  }
  PrecisionBudget budget{.metric = options.min_sqnr, .milliseconds = options.max_ms};
  if (options.max_mb) budget.bytes = *options.max_mb * kBytesPerMegabyte;
  MixedPrecisionOptions mixed;
  if (options.int4) mixed.choices.push_back(Precision::Int4);
  mixed.run = tries;
  MixedPrecision chosen;
  {
    const Bar bar(mixed.run);
    chosen = auto_mixed_precision(net, qconfigs, data, metric, budget, mixed);
  }
  fmt::print("SQNR of the results against float, in dB\n{}", to_string(chosen));
  for (const auto& [path, precision] : chosen.choices) {
    if (precision != Precision::Int8) fmt::print("  {:<40} {}\n", path, to_string(precision));
  }
  if (!options.out.empty()) {
    save_qconfig_mapping(chosen.qconfigs, options.out);
    fmt::print("written: {} (quanta quantize --qconfig)\n", options.out);
  }
  return 0;
}

}  // namespace quanta::cli
