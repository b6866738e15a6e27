#include "quanta/fusion/training_report.h"

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <string>

#include "fusion/small_network.h"
#include "quanta/nn/container.h"
#include "quanta/observers/qconfig.h"
#include "quanta/runtime/detail/json.h"
#include "quanta/runtime/error.h"

namespace quanta {
namespace {

using test::small_input;
using test::SmallNetwork;

SmallNetwork prepared_network() {
  SmallNetwork net;
  net.train();
  SmallNetwork prepared = prepare_qat(net, get_default_qat_qconfig());
  return prepared;
}

const TrainingReport::Range& range_of(const TrainingReport& report, const std::string& name) {
  for (const TrainingReport::Range& range : report.ranges()) {
    if (range.name == name) return range;
  }
  FAIL("no range of " << name);
  return report.ranges().front();
}

}  // namespace

TEST_CASE("training report: losses, and the range of each fake quantizer") {
  const SmallNetwork prepared = prepared_network();
  TrainingReport report("a run");
  report.step(prepared, 2.0);  // before any data
  prepared(small_input(3, 2));
  report.step(prepared, 1.5);
  prepared(small_input(3, 2));
  report.step(prepared, 1.0);
  CHECK(report.steps() == 3);
  CHECK(report.losses() == std::vector<double>{2.0, 1.5, 1.0});
  const TrainingReport::Range& weight = range_of(report, "conv1.weight_fake_quant");
  CHECK(weight.is_weight);
  REQUIRE(weight.low.size() == 3);
  CHECK(std::isnan(weight.low[0]));
  // Symmetric codes reach as far as the largest weight.
  const double largest = prepared.conv1->weight.abs().max().item();
  CHECK(weight.high[2] == doctest::Approx(largest).epsilon(0.02));
  CHECK(weight.low[2] < 0.0);
  const TrainingReport::Range& results = range_of(report, "quant.activation_post_process");
  CHECK_FALSE(results.is_weight);
  CHECK(results.high[1] > results.low[1]);
}

TEST_CASE("training report: a long run keeps at most 1024 points, each the mean of its steps") {
  nn::Sequential net{nn::Linear(2, 2)};
  TrainingReport report;
  double sum = 0.0;
  for (int i = 0; i < 5000; ++i) {
    report.step(net, i);
    sum += i;
  }
  CHECK(report.steps() == 5000);
  CHECK(report.stride() == 8);
  const std::vector<double> losses = report.losses();
  REQUIRE(losses.size() == 625);
  CHECK(losses[0] == 3.5);
  CHECK(losses[624] == 4995.5);
  double mean = 0.0;
  for (const double loss : losses) mean += loss / 625.0;
  CHECK(mean == doctest::Approx(sum / 5000.0));
  for (int i = 0; i < 3; ++i) report.step(net, 1.0);
  CHECK(report.losses().back() == 1.0);  // of three steps
}

TEST_CASE("training report: pages and JSON hold the curves, and names are text") {
  const SmallNetwork prepared = prepared_network();
  prepared(small_input(3, 2));
  TrainingReport report("<b>run</b>");
  report.step(prepared, 1.0);
  report.step(prepared, std::numeric_limits<double>::quiet_NaN());
  report.metric("top-1 & more", 12.5);
  report.step(prepared, 0.5);
  report.metric("top-1 & more", 50.0);
  report.event("observers off <script>");
  const std::string html = to_html(report);
  CHECK(html.find("&lt;b&gt;run&lt;/b&gt;") != std::string::npos);
  CHECK(html.find("top-1 &amp; more") != std::string::npos);
  CHECK(html.find("off <script>") == std::string::npos);
  CHECK(html.find("Ranges of weights") != std::string::npos);
  CHECK(html.find("conv2.weight_fake_quant") != std::string::npos);
  CHECK(html.find("src=") == std::string::npos);  // nothing is loaded
  CHECK(html.find("://") == std::string::npos);
  const detail::Json json = detail::parse_json(to_json(report), "report");
  REQUIRE(json.find("loss") != nullptr);
  CHECK(json.find("loss")->as_array()->size() == 3);
  CHECK(json.find("loss")->as_array()->at(1).kind() == "null");
  CHECK(json.find("ranges")->as_array()->size() == report.ranges().size());
  const auto& metric = json.find("metrics")->as_array()->at(0);
  CHECK(metric.find("steps")->as_array()->size() == 2);

  const auto folder = std::filesystem::temp_directory_path() / "quanta_training_report";
  std::filesystem::create_directories(folder);
  write_report(report, folder / "run.html");
  CHECK(std::filesystem::file_size(folder / "run.html") == html.size());
  CHECK_THROWS_AS(write_report(report, folder / "run.svg"), ArgumentError);
  std::filesystem::remove_all(folder);
}

TEST_CASE("training report: another network is refused, and nothing is noted") {
  const SmallNetwork prepared = prepared_network();
  TrainingReport report;
  report.step(prepared, 1.0);
  nn::Sequential other{nn::Linear(2, 2)};
  CHECK_THROWS_AS(report.step(other, 1.0), ArgumentError);
  CHECK(report.steps() == 1);
  CHECK(report.losses().size() == 1);
}

}  // namespace quanta
