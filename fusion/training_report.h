#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/nn/module.h"

/// What happens in a training run with quantization in the loop: the loss, figures of merit, and the
/// range of each fake quantizer over the steps, as one HTML page or as JSON.
namespace quanta {

/// Collects the curves of one run. Long runs are thinned out: at most 1024 points a curve, each for as
/// many steps as the next.
///
///   TrainingReport report("4-bit weights");
///   for (...) report.step(prepared, loop.step([&] { ... }));
///   report.metric("top-1 in %", top1);
///   write_report(report, "training.html");
///
/// For one thread at a time.
class TrainingReport {
 public:
  static constexpr std::size_t kMostPoints = 1024;

  /// A value that changes with the steps. Point i stands for step first_step + i * stride() and, of a
  /// loss, for the mean of the steps up to the next point.
  struct Range {
    std::string name;  ///< "features.3.conv.weight_fake_quant"
    bool is_weight = false;
    std::vector<double> low, high;  ///< what the codes reach; NaN where there was no data yet
  };
  struct Metric {
    std::string name;
    std::vector<std::int64_t> steps;
    std::vector<double> values;
  };
  struct Event {
    std::int64_t step = 0;
    std::string text;
  };

  explicit TrainingReport(std::string title = "Training report") : title_(std::move(title)) {}

  /// One step is done: notes its loss and, every stride() steps, the range of each fake quantizer of
  /// the model (prepare_qat's), over all channels. A loss may be NaN. Throws ArgumentError when the
  /// fake quantizers are not those of the steps before (then nothing is noted).
  void step(const nn::Module& model, double loss);
  /// A figure of merit after the steps so far; a curve for each name.
  void metric(std::string_view name, double value);
  /// Something that happened after the steps so far: "observers off".
  void event(std::string text);

  const std::string& title() const noexcept { return title_; }
  std::int64_t steps() const noexcept { return steps_; }
  /// Steps from one point to the next; a power of two.
  std::int64_t stride() const noexcept { return stride_; }
  /// The mean of each stride() steps; the last one of what there is of them.
  std::vector<double> losses() const;
  const std::vector<Range>& ranges() const noexcept { return ranges_; }
  const std::vector<Metric>& metrics() const noexcept { return metrics_; }
  const std::vector<Event>& events() const noexcept { return events_; }

 private:
  void note_ranges(const nn::Module& model);
  void thin_out();

  std::string title_;
  std::int64_t steps_ = 0;
  std::int64_t stride_ = 1;
  std::vector<double> loss_sums_;  // of stride_ steps each, but the last
  std::vector<Range> ranges_;
  std::vector<Metric> metrics_;
  std::vector<Event> events_;
};

/// A page for browsers, all in one file: nothing is loaded from elsewhere. Names are text in it.
std::string to_html(const TrainingReport& report);
/// All that the report holds; what is not finite is null.
std::string to_json(const TrainingReport& report);
/// One of these by the file's ending, whole or not at all. Throws ArgumentError for another ending
/// than .html and .json, FileError.
void write_report(const TrainingReport& report, const std::filesystem::path& path);

}  // namespace quanta
