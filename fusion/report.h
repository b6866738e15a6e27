#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/model.h"
#include "quanta/nn/module.h"

/// What quantization did to a network: figures for each layer and for the whole, as a struct, as a
/// table, as JSON and as one HTML page. Many threads may report on the same models at once: copies of
/// them are run. docs/report.md shows how to read it.
namespace quanta {

/// What the networks are fed with: calls of one or several inputs each.
struct ReportData {
  std::size_t calls = 0;
  /// The inputs of call i. It has to give the same each time.
  std::function<std::vector<Tensor>(std::size_t call)> inputs{};
  /// Int64, the right class of each row of the first output over all calls; undefined: no top-1.
  Tensor labels{};

  ReportData() = default;
  ReportData(std::size_t count, std::function<std::vector<Tensor>(std::size_t call)> make)
      : calls(count), inputs(std::move(make)) {}
  /// For a network of one input: a call for each batch.
  explicit ReportData(std::vector<Tensor> batches, Tensor classes = {});
};

struct ReportOptions {
  std::string title = "Quantization report";
  /// Runs of each network that are timed, of which the median is told; 0: none.
  int repeats = 5;
  std::size_t histograms = 6;  ///< for so many of the worst layers
  std::size_t bins = 128;      ///< of a histogram, 2 at least
  /// A figure of merit of one network, told for both. It is given a copy, in eval mode, of the type
  /// that make_report was given.
  std::function<double(const nn::Module& model)> metric{};
  std::string metric_name = "metric";
  /// Of graphs: values of the quantized graph that stand for values of the float one under another
  /// name. value_aliases finds them in a file.
  std::vector<std::pair<std::string, std::string>> aliases{};
  /// Called after each step, for a progress bar: "comparing", 3 of 12.
  std::function<void(std::string_view what, std::size_t done, std::size_t total)> progress{};
};

/// The codes of a layer's results on the axis of real numbers: x = (code - zero_point) * scale.
struct ReportGrid {
  double scale = 1.0;
  std::int64_t zero_point = 0;
  std::int64_t quant_min = 0, quant_max = 255;

  double low() const { return scale * static_cast<double>(quant_min - zero_point); }
  double high() const { return scale * static_cast<double>(quant_max - zero_point); }
};

/// How often values of a layer's results lie in each of the bins that divide low..high evenly.
struct ReportHistogram {
  double low = 0.0, high = 0.0;
  std::vector<std::int64_t> in_float, quantized;
};

/// The weight of a layer, quantized beside float.
struct WeightReport {
  struct Channel {
    double low = 0.0, high = 0.0;  ///< of the float weight
    double sqnr = 0.0;             ///< in dB
  };
  double sqnr = 0.0;                ///< in dB, over all of it
  std::vector<Channel> channels;    ///< by output channel
  std::optional<bool> per_channel;  ///< whether each has a scale; none: the weight has no codes
};

enum class LayerKind : std::uint8_t {
  Float,        ///< the same arithmetic in both networks
  Codes,        ///< takes or gives integer codes
  CodedWeight,  ///< its weight has codes, its results are float: dynamic, weight-only
  Simulated,    ///< its results are fake-quantized
};
/// "float", "int8", "int8 weight", "simulated".
std::string_view to_string(LayerKind kind);

/// One layer, in both networks. Figures are over all elements of all calls; NaN where they are not
/// defined.
struct LayerReport {
  std::string name;
  std::string float_type;  ///< "Conv2d + Relu"
  std::string type;        ///< "QuantizedConvReLU2d"
  LayerKind kind = LayerKind::Codes;
  /// In dB (ops/sqnr.h), with the errors of the layers before it.
  double sqnr = 0.0;
  /// In dB, of the quantized layer alone: it is given what the float layer was given, quantized where
  /// it takes codes. None where that cannot be done.
  std::optional<double> sqnr_alone;
  double cosine = 0.0;         ///< of the angle between both results
  double largest_error = 0.0;  ///< of an element
  /// Of the squared error, the share that a constant for each channel (dimension 1) would take away:
  /// what bias correction mends. 0..1.
  double bias_share = 0.0;
  /// Share of the results, 0..1, that the codes cannot reach: more than half a step beyond an end.
  std::optional<double> saturated;
  double low = 0.0, high = 0.0;  ///< of the float results
  double rms = 0.0;              ///< of the float results: sqrt(mean(x^2))
  std::optional<ReportGrid> grid;
  std::optional<WeightReport> weight;
  /// Of one call, the first one: the median.
  std::optional<double> float_ms, ms;
  std::int64_t multiply_adds = 0;  ///< of that call, in float; 0: unknown
  std::optional<ReportHistogram> histogram;
};

struct OutputReport {
  std::string name;
  double sqnr = 0.0, cosine = 0.0, largest_error = 0.0;
};

/// A node of the quantized network, as it is drawn.
struct ReportNode {
  std::string name, type;
  LayerKind kind = LayerKind::Float;
  std::vector<std::size_t> inputs;   ///< positions of nodes before it
  std::optional<std::size_t> layer;  ///< its position among the layers
};

/// What to do about a layer, by rules of thumb: docs/report.md lists them.
struct Suggestion {
  std::string layer;   ///< "": all of the network
  std::string method;  ///< "cle", "per-channel", "float" ...
  std::string text;
};

struct Report {
  std::string title;
  std::size_t calls = 0;
  int threads = 1;
  std::vector<LayerReport> layers;  ///< in the order in which the quantized network calls them
  std::vector<OutputReport> outputs;
  std::optional<double> float_top1, top1;  ///< percent
  std::string metric_name;
  std::optional<double> float_metric, metric;
  std::optional<double> float_ms,
      ms;  ///< of the whole first call, module by module: no frozen plan
  std::size_t float_bytes = 0, bytes = 0;  ///< of all that the networks' states hold
  std::vector<ReportNode> nodes;
  std::vector<Suggestion> suggestions;
};

namespace detail {
/// Both are copies, which are spoiled.
Report report_of(const std::shared_ptr<nn::Module>& float_model,
                 const std::shared_ptr<nn::Module>& quantized_model, const ReportData& data,
                 const ReportOptions& options);
}  // namespace detail

/// Runs both networks on the data, in eval mode, and compares them layer by layer. Layers are matched
/// by their paths; a layer is what has another class in the quantized network, or whose results are
/// fake-quantized there. The float network is fused as the quantized one was. The quantized one may
/// come from convert, quantize_dynamic, quantize_weight_only or simulate_quantization, or be a
/// prepared model that fake-quantizes.
///
///   const Report report = make_report(net, int8, ReportData(batches));
///   write_report(report, "report.html");
///
/// Throws ArgumentError: no data, labels that are not Int64 or not as many as rows of the result, a
/// float network with a layer where the quantized one has none any more (it was not fused), layers
/// that the networks call unequally often or whose results have different sizes, networks without a
/// layer in common, a metric that threw (with its text); and what running the networks throws.
template <typename Float, typename Quantized>
requires std::is_base_of_v<nn::Module, Float> && std::is_base_of_v<nn::Module, Quantized> Report
make_report(const Float& float_model, const Quantized& quantized_model, const ReportData& data,
            const ReportOptions& options = {}) {
  return detail::report_of(std::make_shared<Float>(nn::deep_copy(float_model)),
                           std::make_shared<Quantized>(nn::deep_copy(quantized_model)), data,
                           options);
}
/// The same of networks whose class is not known; throws ArgumentError for null too.
Report make_report(const std::shared_ptr<nn::Module>& float_model,
                   const std::shared_ptr<nn::Module>& quantized_model, const ReportData& data,
                   const ReportOptions& options = {});
/// The same of networks that came as files. Nodes are matched by the names of their results; behind
/// quantize and dequantize stands the same value. A layer is a node that takes or gives codes, or
/// whose module has another class than in float. Throws ArgumentError as above, and for graphs that
/// take different inputs.
Report make_report(const graph::Model& float_model, const graph::Model& quantized_model,
                   const ReportData& data, const ReportOptions& options = {});

/// The names under which a quantized file has values of the float network: behind each
/// QuantizeLinear and DequantizeLinear stands the value that went in. For ReportOptions::aliases.
/// Throws what graph::import_graph throws.
std::vector<std::pair<std::string, std::string>> value_aliases(const OnnxModel& quantized);

// Safe from many threads at once; nothing throws but write_report, which throws FileError, and
// ArgumentError for another ending than .html, .json, .svg and .txt.

/// The whole network's figures, a table with a line for each layer, and the suggestions.
std::string to_string(const Report& report);
/// An object with all that the report holds. What is not finite is null or, for SQNR,
/// "inf" and "-inf".
std::string to_json(const Report& report);
/// A page for browsers, all in one file: nothing is loaded from elsewhere. Names are text in it,
/// whatever stands in them.
std::string to_html(const Report& report);
/// The bars by layer as a picture, at most 40 of the layers: for a README.
std::string to_svg(const Report& report);
/// One of these by the file's ending, whole or not at all.
void write_report(const Report& report, const std::filesystem::path& path);

}  // namespace quanta
