#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "quanta/fusion/detail/report/figures.h"
#include "quanta/fusion/detail/report/pair.h"
#include "quanta/fusion/report.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/parallel.h"
#include "quanta/runtime/state_dict.h"

namespace quanta {
namespace reporting {
namespace {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::size_t state_bytes(const nn::Module& model) {
  std::size_t bytes = 0;
  for (const auto& [name, tensor] : model.state_dict()) {
    if (tensor.defined()) bytes += tensor.nbytes();
  }
  return bytes;
}

/// How many rows of `scores` have their largest element at the label's place.
std::int64_t count_right(const Tensor& scores, const std::int64_t* labels) {
  const Tensor floats = plain_floats(scores);
  const float* row = floats.data<float>();
  const std::int64_t classes = floats.size(1);
  std::int64_t right = 0;
  for (std::int64_t i = 0; i < floats.size(0); ++i, row += classes) {
    if (classes > 0 && std::max_element(row, row + classes) - row == labels[i]) ++right;
  }
  return right;
}

/// Labels of all calls, taken one after the other.
class Top1 {
 public:
  explicit Top1(const Tensor& labels) {
    if (!labels.defined()) return;
    QUANTA_CHECK(labels.dtype() == DType::Int64, "make_report: data.labels: expected Int64, got {}",
                 labels.dtype());
    labels_ = labels.contiguous();
  }

  void add(const Outputs& outputs) {
    if (!labels_.defined()) return;
    QUANTA_CHECK(
        !outputs.value.empty() && outputs.reference[0].dim() == 2 &&
            outputs.value[0].sizes() == outputs.reference[0].sizes(),
        "make_report: data.labels: expected networks whose first output is [N, classes], "
        "got {}",
        outputs.reference.empty() ? std::string("none") : to_string(outputs.reference[0].sizes()));
    const std::int64_t rows = outputs.reference[0].size(0);
    QUANTA_CHECK(taken_ + rows <= labels_.numel(),
                 "make_report: data.labels: expected one for each row of the output, got {} for "
                 "more than {} rows",
                 labels_.numel(), taken_);
    const std::int64_t* labels = labels_.data<std::int64_t>() + taken_;
    float_right_ += count_right(outputs.reference[0], labels);
    right_ += count_right(outputs.value[0], labels);
    taken_ += rows;
  }
  void finish(Report& report) const {
    if (!labels_.defined()) return;
    QUANTA_CHECK(taken_ == labels_.numel(),
                 "make_report: data.labels: expected one for each row of the output, got {} for "
                 "{} rows",
                 labels_.numel(), taken_);
    const auto percent = [&](std::int64_t right) {
      return taken_ == 0 ? 0.0 : 100.0 * static_cast<double>(right) / static_cast<double>(taken_);
    };
    report.float_top1 = percent(float_right_);
    report.top1 = percent(right_);
  }

 private:
  Tensor labels_;
  std::int64_t taken_ = 0, float_right_ = 0, right_ = 0;
};

double call_metric(const ReportOptions& options, const nn::Module& model, const char* which) {
  try {
    return options.metric(model);
  } catch (const std::exception& error) {
    throw ArgumentError(fmt::format(
        "make_report: options.metric: expected a function that gives a number, got an exception "
        "for the {} network: {}",
        which, error.what()));
  } catch (...) {
    throw ArgumentError(fmt::format(
        "make_report: options.metric: expected a function that gives a number, got an exception "
        "that is no std::exception for the {} network",
        which));
  }
}

class Reporter {
 public:
  Reporter(Pair& pair, const ReportData& data, const ReportOptions& options)
      : pair_(pair), data_(data), options_(options) {
    report_.title = options.title;
    report_.calls = data.calls;
    report_.threads = get_num_threads();
  }

  Report run() {
    const autograd::NoGradGuard no_grad;
    const std::vector<Tensor> first = inputs(0);
    report_.float_bytes = state_bytes(pair_.in_float());
    report_.bytes = state_bytes(pair_.quantized());
    pair_.find_layers(first);
    QUANTA_CHECK(!pair_.layers.empty(),
                 "make_report: quantized_model: expected layers that match the float network's by "
                 "name and are quantized, got none");
    if (options_.repeats > 0) time(first);
    if (options_.metric) measure();
    compare();
    report_.layers = pair_.layers;
    fill_histograms();
    report_.nodes = std::move(pair_.nodes);
    report_.suggestions = suggestions_for(report_);
    return std::move(report_);
  }

 private:
  std::vector<Tensor> inputs(std::size_t call) const {
    std::vector<Tensor> tensors = data_.inputs(call);
    QUANTA_CHECK(!tensors.empty() && std::all_of(tensors.begin(), tensors.end(),
                                                 [](const Tensor& x) { return x.defined(); }),
                 "make_report: data.inputs: expected tensors for call {}, got none", call);
    return tensors;
  }
  void tell(std::string_view what, std::size_t done, std::size_t total) const {
    if (options_.progress) options_.progress(what, done, total);
  }

  void time(const std::vector<Tensor>& first);
  void measure();
  void compare();
  void fill_histograms();

  Pair& pair_;
  const ReportData& data_;
  const ReportOptions& options_;
  Report report_;
};

void Reporter::time(const std::vector<Tensor>& first) {
  Times in_float, quantized;
  const auto repeats = static_cast<std::size_t>(options_.repeats);
  for (std::size_t i = 0; i < repeats; ++i) {
    pair_.time(first, 1, in_float, quantized);
    tell("timing", i + 1, repeats);
  }
  report_.float_ms = median(in_float.whole_ms);
  report_.ms = median(quantized.whole_ms);
  for (std::size_t i = 0; i < pair_.layers.size(); ++i) {
    LayerReport& layer = pair_.layers[i];
    layer.float_ms = median(in_float.layers[i].ms);
    layer.ms = median(quantized.layers[i].ms);
    layer.multiply_adds =
        std::max(in_float.layers[i].multiply_adds, quantized.layers[i].multiply_adds);
  }
}

void Reporter::measure() {
  report_.metric_name = options_.metric_name;
  report_.float_metric = call_metric(options_, pair_.in_float(), "float");
  tell(options_.metric_name, 1, 2);
  report_.metric = call_metric(options_, pair_.quantized(), "quantized");
  tell(options_.metric_name, 2, 2);
}

void Reporter::compare() {
  std::vector<Figures> figures(pair_.layers.size()), outputs;
  std::vector<SqnrSum> alone(pair_.layers.size());
  std::vector<bool> has_alone(pair_.layers.size(), false);
  std::vector<bool> has_result(pair_.layers.size(), false);
  std::vector<std::string> names;
  Top1 top1(data_.labels);
  for (std::size_t call = 0; call < data_.calls; ++call) {
    const Outputs given = pair_.run(inputs(call), true, {}, [&](const LayerResult& result) {
      figures[result.layer].add(result.reference, result.value, result.grid);
      has_result[result.layer] = true;
      if (result.grid) pair_.layers[result.layer].grid = result.grid;
      if (!result.alone.defined()) return;
      alone[result.layer].add(result.reference, result.alone);
      has_alone[result.layer] = true;
    });
    outputs.resize(std::max(outputs.size(), given.names.size()));
    names = given.names;
    for (std::size_t i = 0; i < given.names.size(); ++i) {
      const Tensor& want = given.reference[i];
      const Tensor& got = given.value[i];
      if (want.defined() && got.defined() && want.is_floating_point() &&
          want.sizes() == got.sizes()) {
        outputs[i].add(want, got, {});
      }
    }
    top1.add(given);
    tell("comparing", call + 1, data_.calls);
  }
  top1.finish(report_);
  for (std::size_t i = 0; i < names.size(); ++i) {
    report_.outputs.push_back({.name = names[i],
                               .sqnr = outputs[i].sqnr(),
                               .cosine = outputs[i].cosine(),
                               .largest_error = outputs[i].largest_error()});
  }
  for (std::size_t i = 0; i < figures.size(); ++i) {
    LayerReport& layer = pair_.layers[i];
    layer.sqnr = has_result[i] ? figures[i].sqnr() : std::numeric_limits<double>::quiet_NaN();
    if (has_alone[i]) layer.sqnr_alone = alone[i].decibels();
    layer.cosine = figures[i].cosine();
    layer.largest_error = figures[i].largest_error();
    layer.bias_share = figures[i].bias_share();
    layer.saturated = figures[i].saturated();
    layer.low = figures[i].low();
    layer.high = figures[i].high();
    layer.rms = figures[i].rms();
  }
}

void Reporter::fill_histograms() {
  std::vector<std::size_t> worst(report_.layers.size());
  std::iota(worst.begin(), worst.end(), std::size_t{0});
  const auto badness = [&](std::size_t i) {
    const LayerReport& layer = report_.layers[i];
    const double figure = layer.sqnr_alone ? *layer.sqnr_alone : layer.sqnr;
    return std::isnan(figure) ? std::numeric_limits<double>::infinity() : figure;
  };
  std::stable_sort(worst.begin(), worst.end(),
                   [&](std::size_t a, std::size_t b) { return badness(a) < badness(b); });
  worst.resize(std::min(worst.size(), options_.histograms));
  if (worst.empty()) return;
  std::vector<bool> wanted(report_.layers.size(), false);
  for (const std::size_t i : worst) {
    const LayerReport& layer = report_.layers[i];
    // The grid is in the picture, unless it is so wide that nothing else would be.
    const double width = std::max(layer.high - layer.low, 1e-30);
    const double low = layer.grid ? std::min(layer.low, layer.grid->low()) : layer.low;
    const double high = layer.grid ? std::max(layer.high, layer.grid->high()) : layer.high;
    if (!std::isfinite(low) || !std::isfinite(high)) continue;
    wanted[i] = true;
    report_.layers[i].histogram =
        ReportHistogram{.low = std::max(low, layer.low - width),
                        .high = std::min(high, layer.high + width),
                        .in_float = std::vector<std::int64_t>(options_.bins, 0),
                        .quantized = std::vector<std::int64_t>(options_.bins, 0)};
  }
  for (std::size_t call = 0; call < data_.calls; ++call) {
    static_cast<void>(pair_.run(inputs(call), false, wanted, [&](const LayerResult& result) {
      ReportHistogram& histogram = *report_.layers[result.layer].histogram;
      count_values(result.reference, histogram.low, histogram.high, histogram.in_float);
      count_values(result.value, histogram.low, histogram.high, histogram.quantized);
    }));
    tell("histograms", call + 1, data_.calls);
  }
}

}  // namespace

Report report_of(Pair& pair, const ReportData& data, const ReportOptions& options) {
  return Reporter(pair, data, options).run();
}

}  // namespace reporting

namespace {

void check_arguments(const ReportData& data, const ReportOptions& options) {
  QUANTA_CHECK(data.calls > 0 && data.inputs,
               "make_report: data: expected inputs of at least one call, got none");
  QUANTA_CHECK(options.repeats >= 0, "make_report: options.repeats: expected 0 or more, got {}",
               options.repeats);
  QUANTA_CHECK(options.bins >= 2, "make_report: options.bins: expected 2 or more, got {}",
               options.bins);
}

}  // namespace

ReportData::ReportData(std::vector<Tensor> batches, Tensor classes)
    : calls(batches.size()),
      inputs(
          [all = std::move(batches)](std::size_t call) { return std::vector<Tensor>{all[call]}; }),
      labels(std::move(classes)) {}

std::string_view to_string(LayerKind kind) {
  switch (kind) {
    case LayerKind::Float:
      return "float";
    case LayerKind::Codes:
      return "int8";
    case LayerKind::CodedWeight:
      return "int8 weight";
    case LayerKind::Simulated:
      return "simulated";
  }
  return "";
}

namespace detail {

Report report_of(const std::shared_ptr<nn::Module>& float_model,
                 const std::shared_ptr<nn::Module>& quantized_model, const ReportData& data,
                 const ReportOptions& options) {
  check_arguments(data, options);
  const auto pair = reporting::eager_pair(float_model, quantized_model);
  return reporting::report_of(*pair, data, options);
}

}  // namespace detail

Report make_report(const std::shared_ptr<nn::Module>& float_model,
                   const std::shared_ptr<nn::Module>& quantized_model, const ReportData& data,
                   const ReportOptions& options) {
  QUANTA_CHECK(float_model != nullptr, "make_report: float_model: expected a module, got null");
  QUANTA_CHECK(quantized_model != nullptr,
               "make_report: quantized_model: expected a module, got null");
  return detail::report_of(float_model->clone(), quantized_model->clone(), data, options);
}

Report make_report(const graph::Model& float_model, const graph::Model& quantized_model,
                   const ReportData& data, const ReportOptions& options) {
  check_arguments(data, options);
  const auto pair = reporting::graph_pair(float_model, quantized_model, options.aliases);
  return reporting::report_of(*pair, data, options);
}

}  // namespace quanta
