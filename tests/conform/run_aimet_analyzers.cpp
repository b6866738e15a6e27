#include <memory>
#include <string>
#include <vector>

#include "collector_settings.h"
#include "expected_error.h"
#include "quanta/observers/aimet/analyzer.h"
#include "registry.h"

namespace quanta::conform {
namespace {

/// The class that a case calls by AIMET's short name.
std::string class_of(const std::string& kind) {
  if (kind == "minmax") return "MinMaxAnalyzer";
  if (kind == "percentile") return "PercentileAnalyzer";
  if (kind == "sqnr" || kind == "tf_enhanced") return "SqnrAnalyzer";
  throw FormatError("kind: unknown analyzer " + kind);
}

std::shared_ptr<aimet::EncodingAnalyzer> make_analyzer(const Case& test) {
  const std::string kind = test.text("kind");
  Settings settings =
      kind == "tf_enhanced" ? settings_of(aimet::SqnrAnalyzerOptions::tf_enhanced()) : Settings{};
  take_settings(test, class_of(kind), settings, {{"growth_limit", "histogram_growth_limit"}});
  return std::dynamic_pointer_cast<aimet::EncodingAnalyzer>(
      make_collector(class_of(kind), settings));
}

Tensor as_rows(const std::vector<std::vector<float>>& all) {
  std::vector<float> values;
  for (const std::vector<float>& one : all) values.insert(values.end(), one.begin(), one.end());
  const auto rows = static_cast<std::int64_t>(all.size());
  return Tensor::from_values(values, {rows, static_cast<std::int64_t>(all.at(0).size())});
}

Outputs run_analyzer(const Case& test) {
  const std::shared_ptr<aimet::EncodingAnalyzer> analyzer = make_analyzer(test);
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
  for (Histogram<float>& histogram : with_histogram->histograms()) {
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
