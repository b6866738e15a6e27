#include <memory>
#include <string>
#include <vector>

#include "expected_error.h"
#include "quanta/observers/aimet/analyzer.h"
#include "registry.h"

namespace quanta::conform {
namespace {

aimet::HistogramAnalyzerOptions histogram_options(const Case& test) {
  aimet::HistogramAnalyzerOptions options;
  options.shape = test.dims("shape", {});
  options.block_size = test.dims("block_size", {});
  if (test.has_attr("num_bins")) options.num_bins = test.integer("num_bins");
  if (test.has_attr("histogram_growth_limit")) {
    options.growth_limit = test.number("histogram_growth_limit");
  }
  return options;
}

aimet::SqnrAnalyzerOptions sqnr_options(const Case& test, aimet::SqnrAnalyzerOptions options) {
  if (test.has_attr("asymmetric_delta_candidates")) {
    options.asymmetric_delta_candidates = test.integer("asymmetric_delta_candidates");
  }
  if (test.has_attr("symmetric_delta_candidates")) {
    options.symmetric_delta_candidates = test.integer("symmetric_delta_candidates");
  }
  if (test.has_attr("offset_candidates")) {
    options.offset_candidates = test.integer("offset_candidates");
  }
  if (test.has_attr("gamma")) options.gamma = test.number("gamma");
  return options;
}

std::unique_ptr<aimet::EncodingAnalyzer> make_analyzer(const Case& test) {
  const std::string kind = test.text("kind");
  const Dims shape = test.dims("shape", {});
  const Dims block_size = test.dims("block_size", {});
  if (kind == "minmax") return std::make_unique<aimet::MinMaxAnalyzer>(shape, block_size);
  if (kind == "percentile") {
    aimet::PercentileAnalyzerOptions options{histogram_options(test)};
    if (test.has_attr("percentile")) options.percentile = test.number("percentile");
    return std::make_unique<aimet::PercentileAnalyzer>(options);
  }
  if (kind == "tf_enhanced") {
    return std::make_unique<aimet::SqnrAnalyzer>(
        sqnr_options(test, aimet::SqnrAnalyzerOptions::tf_enhanced(shape, block_size)));
  }
  if (kind != "sqnr") throw FormatError("kind: unknown analyzer " + kind);
  aimet::SqnrAnalyzerOptions options;
  options.histogram = histogram_options(test);
  return std::make_unique<aimet::SqnrAnalyzer>(sqnr_options(test, options));
}

Tensor as_rows(const std::vector<std::vector<float>>& all) {
  std::vector<float> values;
  for (const std::vector<float>& one : all) values.insert(values.end(), one.begin(), one.end());
  const auto rows = static_cast<std::int64_t>(all.size());
  return Tensor::from_values(values, {rows, static_cast<std::int64_t>(all.at(0).size())});
}

Outputs run_analyzer(const Case& test) {
  const std::unique_ptr<aimet::EncodingAnalyzer> analyzer = make_analyzer(test);
  for (const Tensor& batch : test.tensors("batches")) analyzer->update(batch);
  const aimet::Range range =
      analyzer->compute_range(test.integer("num_steps"), test.flag("symmetric", false));
  Outputs outputs;
  outputs.set("min", range.min);
  outputs.set("max", range.max);
  const auto* with_histogram = dynamic_cast<const aimet::HistogramAnalyzer*>(analyzer.get());
  if (with_histogram == nullptr) return outputs;
  std::vector<std::vector<float>> counts;
  std::vector<std::vector<float>> edges;
  for (aimet::AnalyzerHistogram& histogram : with_histogram->histograms()) {
    counts.push_back(std::move(histogram.counts));
    edges.push_back(std::move(histogram.edges));
  }
  outputs.set("histogram", as_rows(counts));
  outputs.set("bin_edges", as_rows(edges));
  return outputs;
}

const Registration kOps{{"aimet.analyzer", expecting_errors(run_analyzer)}};

}  // namespace
}  // namespace quanta::conform
