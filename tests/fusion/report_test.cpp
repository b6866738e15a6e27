#include "quanta/fusion/report.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "fusion/small_network.h"
#include "quanta/fusion/compare_layers.h"
#include "quanta/fusion/detail/report/figures.h"
#include "quanta/fusion/graph/model.h"
#include "quanta/fusion/graph/quantize_jit.h"
#include "quanta/fusion/quantize_dynamic.h"
#include "quanta/fusion/simulate.h"
#include "quanta/observers/format_qconfig.h"
#include "quanta/ops/quantize.h"
#include "quanta/ops/sqnr.h"
#include "quanta/runtime/error.h"

namespace quanta {
namespace {

using test::fused_network;
using test::int8_of;
using test::small_input;
using test::SmallNetwork;

const LayerReport& layer_named(const Report& report, const std::string& name) {
  const auto found = std::find_if(report.layers.begin(), report.layers.end(),
                                  [&](const LayerReport& layer) { return layer.name == name; });
  REQUIRE(found != report.layers.end());
  return *found;
}

struct TwoInputs : nn::Module {
  nn::Child<nn::QuantStub> quant_a, quant_b;
  nn::Child<nn::FloatFunctional> sum;
  nn::Child<nn::DeQuantStub> dequant;
  TwoInputs() {
    register_module("quant_a", quant_a);
    register_module("quant_b", quant_b);
    register_module("sum", sum);
    register_module("dequant", dequant);
    eval();
  }
  using Module::forward;
  Tensor forward(const Tensor& a, const Tensor& b) const {
    return dequant(sum->add(quant_a(a), quant_b(b)));
  }
  std::vector<Tensor> forward_all(std::span<const Tensor> inputs) const override {
    require_inputs(inputs, 2);
    return {forward(inputs[0], inputs[1])};
  }
};

/// A graph of two convolutions with a ReLU between them.
graph::Model conv_graph() {
  Generator generator(3);
  OnnxModel file;
  file.opsets[""] = 17;
  file.ir_version = 8;
  OnnxGraph& graph = file.graph;
  const auto sizes = [](std::initializer_list<std::int64_t> values) {
    std::vector<OnnxDim> dims;
    for (const std::int64_t value : values) dims.push_back({.size = value, .name = {}});
    return dims;
  };
  graph.inputs = {{.name = "x", .type = OnnxType::Float, .sizes = sizes({2, 3, 8, 8})}};
  graph.outputs = {{.name = "y", .type = OnnxType::Float, .sizes = sizes({2, 4, 8, 8})}};
  graph.initializers = {
      {.name = "w1", .type = OnnxType::Float, .value = randn({8, 3, 1, 1}, generator)},
      {.name = "w2", .type = OnnxType::Float, .value = randn({4, 8, 1, 1}, generator)}};
  const auto node = [](std::string name, std::string op, std::vector<std::string> inputs,
                       std::string output) {
    OnnxNode made;
    made.name = std::move(name);
    made.op_type = std::move(op);
    made.inputs = std::move(inputs);
    made.outputs = {std::move(output)};
    return made;
  };
  graph.nodes = {node("first", "Conv", {"x", "w1"}, "a"), node("act", "Relu", {"a"}, "b"),
                 node("second", "Conv", {"b", "w2"}, "y")};
  return graph::from_onnx(file);
}

}  // namespace

TEST_CASE("reporting::Figures: two elements worked out by hand") {
  reporting::Figures figures;
  const Tensor want = Tensor::from_values({3.0F, -4.0F}, {1, 2});
  const Tensor got = Tensor::from_values({3.0F, -3.0F}, {1, 2});
  // Codes 0..7 of scale 0.5 around 4: -2..1.5.
  figures.add(want, got, ReportGrid{.scale = 0.5, .zero_point = 4, .quant_min = 0, .quant_max = 7});
  CHECK(figures.sqnr() == doctest::Approx(10.0 * std::log10(25.0)));
  CHECK(figures.cosine() == doctest::Approx(21.0 / (5.0 * std::sqrt(18.0))));
  CHECK(figures.largest_error() == 1.0);
  CHECK(figures.low() == -4.0);
  CHECK(figures.high() == 3.0);
  CHECK(figures.rms() == doctest::Approx(std::sqrt(12.5)));
  CHECK(figures.saturated() == 1.0);
  figures.add(Tensor::from_values({1.75F, 1.0F}, {1, 2}), Tensor::from_values({1.5F, 1.0F}, {1, 2}),
              ReportGrid{.scale = 0.5, .zero_point = 4, .quant_min = 0, .quant_max = 7});
  CHECK(figures.saturated() == 0.5);  // 1.75 is half a step from the last code: in reach
}

TEST_CASE("reporting::Figures: the share of an error that is a shift of channels") {
  const Tensor want = Tensor::zeros({1, 2, 64});
  Tensor shifted = Tensor::zeros({1, 2, 64});
  Tensor even = Tensor::zeros({1, 2, 64});
  float* shift = shifted.mutable_data<float>();
  float* noise = even.mutable_data<float>();
  for (int i = 0; i < 128; ++i) {
    shift[i] = i < 64 ? 0.5F : -0.25F;
    noise[i] = i % 2 == 0 ? 0.5F : -0.5F;
  }
  reporting::Figures of_shift, of_noise;
  of_shift.add(want, shifted, {});
  of_noise.add(want, even, {});
  CHECK(of_shift.bias_share() == doctest::Approx(1.0));
  CHECK(of_noise.bias_share() == doctest::Approx(0.0));
  CHECK_FALSE(of_shift.saturated().has_value());
}

TEST_CASE("reporting::count_values: outer bins have what lies beyond and NaN is in none") {
  std::vector<std::int64_t> bins(4, 0);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  reporting::count_values(Tensor::from_values({-9.0F, 0.0F, 0.24F, 0.25F, 0.99F, 1.0F, 7.0F, nan}),
                          0.0, 1.0, bins);
  CHECK(bins == std::vector<std::int64_t>{3, 1, 0, 3});
}

TEST_CASE("reporting::compare_weights: each channel by itself") {
  const Tensor want = Tensor::from_values({1.0F, -1.0F, 100.0F, 50.0F}, {2, 2});
  const Tensor got = Tensor::from_values({1.0F, 0.0F, 100.0F, 50.0F}, {2, 2});
  const auto report = reporting::compare_weights(want, got, 0);
  REQUIRE(report.has_value());
  REQUIRE(report->channels.size() == 2);
  CHECK(report->channels[0].sqnr == doctest::Approx(10.0 * std::log10(2.0)));
  CHECK(report->channels[0].low == -1.0);
  CHECK(report->channels[0].high == 1.0);
  CHECK(std::isinf(report->channels[1].sqnr));
  CHECK_FALSE(report->per_channel.has_value());
  CHECK_FALSE(reporting::compare_weights(want, Tensor::zeros({4}), 0).has_value());
}

TEST_CASE("make_report: accumulated figures are those of compare_layers") {
  const SmallNetwork net = fused_network();
  const SmallNetwork int8 = int8_of(net);
  const std::vector<Tensor> batches{small_input(7), small_input(8)};
  const Report report = make_report(net, int8, ReportData(batches), {.repeats = 1});
  const std::vector<LayerComparison> expected = compare_layers(net, int8, batches);
  REQUIRE(report.layers.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(report.layers[i].name == expected[i].path);
    CHECK(report.layers[i].type == expected[i].type);
    CHECK(report.layers[i].sqnr == doctest::Approx(expected[i].sqnr));
    CHECK(report.layers[i].grid.has_value() == expected[i].scale.has_value());
    CHECK(report.layers[i].kind == LayerKind::Codes);
    CHECK(report.layers[i].ms.has_value());
  }
  CHECK(report.outputs.at(0).sqnr == doctest::Approx(expected.back().sqnr));
  CHECK(report.calls == 2);
  CHECK(report.bytes < report.float_bytes);
  // 4 images, 8 filters of 3 x 3 x 3, 81 places.
  CHECK(layer_named(report, "conv1").multiply_adds == 4 * 8 * 27 * 81);
}

TEST_CASE("make_report: a layer alone is given what the float layer is given") {
  const SmallNetwork net = fused_network();
  const SmallNetwork int8 = int8_of(net);
  const Tensor x = small_input(9);
  const Report report = make_report(net, int8, ReportData({x}), {.repeats = 0});
  // By hand: conv2 takes the codes of the float conv1's result.
  const Tensor a = net.conv1(net.quant(x));
  const Tensor codes = int8.conv1(int8.quant(x));
  const Quantizer& grid = codes.impl()->quantizer;
  const Tensor given = quantize_per_tensor(a, grid.scale, grid.zero_point, codes.dtype());
  const LayerReport& conv2 = layer_named(report, "conv2");
  REQUIRE(conv2.sqnr_alone.has_value());
  CHECK(*conv2.sqnr_alone == doctest::Approx(sqnr(net.conv2(a), int8.conv2(given))));
  CHECK(*conv2.sqnr_alone > conv2.sqnr);
  // The sum is called by a function of its own, and has a figure too.
  const LayerReport& skip = layer_named(report, "skip");
  REQUIRE(skip.sqnr_alone.has_value());
  CHECK(*skip.sqnr_alone > skip.sqnr);
  // Nothing stands before the first layer.
  CHECK(*layer_named(report, "quant").sqnr_alone == layer_named(report, "quant").sqnr);
  CHECK_FALSE(report.ms.has_value());
  const LayerReport& conv1 = layer_named(report, "conv1");
  REQUIRE(conv1.weight.has_value());
  CHECK(conv1.weight->channels.size() == 8);
  CHECK(conv1.weight->per_channel == true);
  CHECK(conv1.weight->sqnr > 30.0);
}

TEST_CASE("make_report: histograms of the worst layers have all elements") {
  const SmallNetwork net = fused_network();
  const Tensor x = small_input(3);
  const Report report =
      make_report(net, int8_of(net), ReportData({x}), {.repeats = 0, .histograms = 2, .bins = 16});
  int count = 0;
  for (const LayerReport& layer : report.layers) {
    if (!layer.histogram) continue;
    ++count;
    std::int64_t in_float = 0, quantized = 0;
    for (const std::int64_t bin : layer.histogram->in_float) in_float += bin;
    for (const std::int64_t bin : layer.histogram->quantized) quantized += bin;
    CHECK(in_float == quantized);
    CHECK(in_float > 0);
  }
  CHECK(count == 2);
}

TEST_CASE("make_report: labels and a metric of both networks") {
  const SmallNetwork net = fused_network();
  const Tensor x = small_input(4);
  const Tensor scores = net(x);
  std::vector<std::int64_t> right;
  for (std::int64_t i = 0; i < scores.size(0); ++i) {
    const float* row = scores.contiguous().data<float>() + i * scores.size(1);
    right.push_back(std::max_element(row, row + scores.size(1)) - row);
  }
  const Report report =
      make_report(net, int8_of(net), ReportData({x}, Tensor::from_int64(right)),
                  {.repeats = 0,
                   .metric = [&](const nn::Module& model) { return sqnr(scores, model(x)); },
                   .metric_name = "decibels"});
  CHECK(report.float_top1 == 100.0);
  REQUIRE(report.metric.has_value());
  CHECK(std::isinf(*report.float_metric));
  CHECK(*report.metric == doctest::Approx(report.outputs[0].sqnr));
  CHECK(to_string(report).find("decibels: inf -> ") != std::string::npos);
}

TEST_CASE("make_report: what does not fit is refused and nothing changes") {
  const SmallNetwork net = fused_network();
  const SmallNetwork int8 = int8_of(net);
  const Tensor x = small_input(5);
  const Tensor before = int8(x);
  const ReportData data({x});
  CHECK_THROWS_WITH_AS(make_report(net, int8, ReportData(std::vector<Tensor>{})),
                       doctest::Contains("data: expected inputs of at least one call"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(make_report(SmallNetwork(), int8, data),
                       doctest::Contains("make_report: float_model: expected it fused"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(make_report(net, net, data), doctest::Contains("got none"), ArgumentError);
  CHECK_THROWS_WITH_AS(make_report(net, int8, data, {.metric = [](const nn::Module&) -> double {
                                     throw std::runtime_error("no disk");
                                   }}),
                       doctest::Contains("an exception for the float network: no disk"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(make_report(net, int8, ReportData({x}, Tensor::zeros({3}, DType::Int64))),
                       doctest::Contains("data.labels: expected one for each row"), ArgumentError);
  CHECK_THROWS_WITH_AS(make_report(net, int8, ReportData({x}, Tensor::zeros({4}))),
                       doctest::Contains("data.labels: expected Int64"), ArgumentError);
  CHECK_THROWS_WITH_AS(make_report(net, int8, data, {.bins = 1}), doctest::Contains("options.bins"),
                       ArgumentError);
  CHECK(int8(x).equal(before));
  CHECK(net.get_submodule("conv1")->is_plain_call());
}

TEST_CASE("make_report: several inputs") {
  const TwoInputs net;
  const TwoInputs prepared = prepare(net, get_default_qconfig());
  const Tensor a = small_input(1), b = small_input(2);
  static_cast<void>(prepared({a, b}));
  const TwoInputs int8 = convert(prepared);
  const ReportData data(1, [&](std::size_t) { return std::vector<Tensor>{a, b}; });
  const Report report = make_report(net, int8, data, {.repeats = 1});
  CHECK(report.layers.size() == 4);
  CHECK(layer_named(report, "sum").sqnr > 20.0);
  CHECK(layer_named(report, "sum").sqnr_alone.has_value());
}

TEST_CASE("make_report: dynamic layers and simulated formats") {
  const SmallNetwork net = fused_network();
  const Tensor x = small_input(6);
  const Report dynamic = make_report(net, quantize_dynamic(net), ReportData({x}), {.repeats = 0});
  REQUIRE(dynamic.layers.size() == 1);
  CHECK(dynamic.layers[0].kind == LayerKind::CodedWeight);
  CHECK(dynamic.layers[0].weight.has_value());
  CHECK_FALSE(dynamic.layers[0].saturated.has_value());
  const SmallNetwork simulated = simulate_quantization(net, qconfig_for_format("fp8"),
                                                       [&](const nn::Module& model) { model(x); });
  const Report format = make_report(net, simulated, ReportData({x}), {.repeats = 0});
  CHECK(layer_named(format, "conv1").kind == LayerKind::Simulated);
  REQUIRE(layer_named(format, "conv1").weight.has_value());
  CHECK(std::isfinite(layer_named(format, "conv1").weight->sqnr));
}

TEST_CASE("make_report: graphs are matched by the names of values") {
  const graph::Model net = conv_graph();
  const Tensor x = randn({2, 3, 8, 8});
  const graph::Model int8 =
      graph::quantize_jit(net, get_default_qconfig(), [&](const graph::Model& model) { model(x); });
  const Report report = make_report(net, int8, ReportData({x}), {.repeats = 1});
  REQUIRE(report.layers.size() == 3);
  CHECK(report.layers[0].name == "x_quant");
  CHECK(report.layers[1].name == "first");
  CHECK(report.layers[1].float_type == "Conv2d + ReLU");
  CHECK(report.layers[1].type == "QuantizedConvReLU2d");
  CHECK(report.layers[1].multiply_adds == 2 * 64 * 3 * 8);
  const LayerReport& second = report.layers[2];
  REQUIRE(second.sqnr_alone.has_value());
  CHECK(*second.sqnr_alone > second.sqnr);
  CHECK(second.sqnr > 20.0);
  REQUIRE(second.weight.has_value());
  CHECK(report.outputs.at(0).name == "y");
  CHECK(report.outputs[0].sqnr == doctest::Approx(sqnr(net(x), int8(x))));
  CHECK(report.outputs[0].sqnr == doctest::Approx(second.sqnr));
  CHECK(report.nodes.size() == 4);  // with the dequantize at the end
}

TEST_CASE("make_report: graphs that take other inputs are refused") {
  const graph::Model net = conv_graph();
  graph::Graph renamed = net.graph();
  renamed.values[graph::index_of(renamed.inputs[0])].name = "z";
  const graph::Model other(renamed, net.named_children());
  CHECK_THROWS_WITH_AS(make_report(net, other, ReportData({randn({2, 3, 8, 8})})),
                       doctest::Contains("expected the float network's inputs x, got 'z'"),
                       ArgumentError);
}

TEST_CASE("to_html: names are text whatever stands in them") {
  const std::string hostile = "</title><script>alert('&')</script>\"\x01\xFF";
  Report report;
  report.title = hostile;
  report.metric_name = hostile;
  report.metric = report.float_metric = 1.0;
  report.outputs = {{.name = hostile}};
  LayerReport layer;
  layer.name = layer.type = layer.float_type = hostile;
  layer.sqnr = -std::numeric_limits<double>::infinity();
  layer.weight = WeightReport{.sqnr = 3.0, .channels = {{-1.0, 1.0, 3.0}}, .per_channel = false};
  layer.histogram = ReportHistogram{0.0, 1.0, {1, 2}, {3, 0}};
  layer.grid = ReportGrid{};
  report.layers = {layer};
  report.nodes = {{.name = hostile, .type = hostile, .inputs = {}, .layer = 0}};
  report.suggestions = {{.layer = hostile, .method = "cle", .text = hostile}};
  for (const std::string& text : {to_html(report), to_svg(report)}) {
    CHECK(text.find("<script>alert") == std::string::npos);
    CHECK(text.find('\x01') == std::string::npos);
    CHECK(text.find('\xFF') == std::string::npos);
    CHECK(text.find("&lt;script&gt;alert(&#39;&amp;&#39;)") != std::string::npos);
  }
  const std::string html = to_html(report);
  // Nothing is loaded from elsewhere.
  CHECK(html.find("http:") == std::string::npos);
  CHECK(html.find("https:") == std::string::npos);
  CHECK(html.find("src=") == std::string::npos);
  const std::string json = to_json(report);
  CHECK(json.find("\"sqnr\":\"-inf\"") != std::string::npos);
  CHECK(json.find('\xFF') == std::string::npos);
  CHECK(to_string(report).find('\x01') == std::string::npos);
}

TEST_CASE("to_html: a report without layers is a page too") {
  CHECK(to_html(Report{}).find("</html>") != std::string::npos);
  CHECK(to_svg(Report{}).find("</svg>") != std::string::npos);
  CHECK(to_json(Report{}).find("\"layers\":[]") != std::string::npos);
}

TEST_CASE("write_report: the ending says what is written") {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / "quanta_report_test.json";
  write_report(Report{}, path);
  CHECK(std::filesystem::file_size(path) == to_json(Report{}).size());
  std::filesystem::remove(path);
  CHECK_THROWS_WITH_AS(write_report(Report{}, "report.pdf"),
                       doctest::Contains("expected a file .html, .json, .svg or .txt"),
                       ArgumentError);
  CHECK_THROWS_AS(write_report(Report{}, "/nowhere/at/all/report.html"), FileError);
}

TEST_CASE("make_report: suggestions follow from what is wrong") {
  // One scale for a weight whose channels differ by 1000.
  SmallNetwork net = fused_network();
  Tensor weight = dynamic_cast<nn::Conv2d&>(*net.get_submodule("conv1.0")).weight;
  float* values = weight.mutable_data<float>();
  for (std::int64_t i = 0; i < weight.numel() / 8; ++i) values[i] *= 1000.0F;
  QConfig qconfig = get_default_qconfig();
  qconfig.weight = default_weight_observer();
  const SmallNetwork prepared = prepare(net, qconfig);
  prepared(small_input(1));
  const Report report =
      make_report(net, convert(prepared), ReportData({small_input(1)}), {.repeats = 0});
  const LayerReport& conv1 = layer_named(report, "conv1");
  REQUIRE(conv1.weight.has_value());
  CHECK(conv1.weight->per_channel == false);
  // The wide channel rules the weight's figure, but not those of the others.
  CHECK(conv1.weight->sqnr > 30.0);
  CHECK(conv1.weight->channels[1].sqnr < 10.0);
  const auto suggestion =
      std::find_if(report.suggestions.begin(), report.suggestions.end(),
                   [](const Suggestion& found) { return found.layer == "conv1"; });
  REQUIRE(suggestion != report.suggestions.end());
  CHECK(suggestion->method == "cle");
  const Report healthy = make_report(fused_network(), int8_of(fused_network()),
                                     ReportData({small_input(1)}), {.repeats = 0});
  for (const Suggestion& found : healthy.suggestions) CHECK(found.method != "cle");
}

}  // namespace quanta
