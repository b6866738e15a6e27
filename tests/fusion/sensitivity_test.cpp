#include "quanta/fusion/sensitivity.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "fusion/small_network.h"
#include "quanta/fusion/qconfig_file.h"
#include "quanta/nn/container.h"
#include "quanta/observers/min_max_observer.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/sqnr.h"
#include "quanta/runtime/error.h"
#include "support/compare.h"
#include "support/files.h"

namespace quanta {
namespace {

using test::SmallNetwork;

std::vector<Tensor> batches() {
  Generator generator(7);
  std::vector<Tensor> result;
  for (int i = 0; i < 3; ++i) result.push_back(randn({4, 3, 8, 8}, generator));
  return result;
}

/// How near the results are to those of the float network, in dB, at most 100.
struct Nearness {
  explicit Nearness(const SmallNetwork& net) : reference(nn::deep_copy(net)) {}
  SmallNetwork reference;
  std::vector<Tensor> data = batches();
  double operator()(const SmallNetwork& net) const {
    double sum = 0.0;
    for (const Tensor& x : data) sum += std::min(100.0, test::sqnr_db(reference(x), net(x)));
    return sum / static_cast<double>(data.size());
  }
};

TEST_CASE("One layer with a coarse weight shows, alone and left out") {
  manual_seed(2);
  const SmallNetwork net;
  QConfigMapping qconfigs(get_default_qconfig());
  qconfigs.set_module_name("conv2", with_weight_bits(get_default_qconfig(), 2));
  const Nearness nearness(net);
  const Sensitivity all =
      sensitivity<SmallNetwork>(net, qconfigs, CalibrationData(batches()), nearness);
  CHECK(all.float_metric > 99.0);
  CHECK(all.quantized_metric < 30.0);
  const auto at = [&](const char* path) {
    return *std::find_if(all.layers.begin(), all.layers.end(),
                         [&](const LayerSensitivity& layer) { return layer.path == path; });
  };
  CHECK(at("conv2").alone < at("conv1").alone - 10.0);
  CHECK(at("conv2").alone < at("fc").alone - 10.0);
  CHECK(at("conv2").left_out > all.quantized_metric + 5.0);
  CHECK(at("conv1").type == "ConvReLU2d");
  CHECK(all.layers.front().path == "quant");
  CHECK(to_string(all).find("conv2") < to_string(all).find("conv1"));
}

TEST_CASE("All layers quantized is what the int8 network gives, nearly") {
  // Without a pool, whose means the int8 network rounds as well.
  manual_seed(3);
  nn::Sequential net(nn::make_module<nn::QuantStub>(), nn::make_module<nn::Conv2d>(3, 8, Dims{3}),
                     nn::make_module<nn::ReLU>(), nn::make_module<nn::Conv2d>(8, 4, Dims{3}),
                     nn::make_module<nn::DeQuantStub>());
  net.eval();
  const std::vector<Tensor> data = batches();
  const Metric<nn::Sequential> nearness = [&](const nn::Sequential& m) {
    return std::min(100.0, test::sqnr_db(net(data[0]), m(data[0])));
  };
  const Sensitivity all = sensitivity(net, get_default_qconfig(), CalibrationData(data), nearness);
  const auto int8 = quantize(net, data[0], data, {});
  CHECK(all.float_metric > 99.0);
  CHECK(all.quantized_metric < 60.0);
  CHECK(std::abs(nearness(int8) - all.quantized_metric) < 0.5);
}

TEST_CASE("Mixed precision leaves the layer in float that the budget asks for") {
  manual_seed(2);
  const SmallNetwork net;
  QConfigMapping qconfigs(get_default_qconfig());
  qconfigs.set_module_name("conv2", with_weight_bits(get_default_qconfig(), 2));
  const Nearness nearness(net);
  // Losses of single layers add up in the error's power, not in decibels.
  const Metric<SmallNetwork> accuracy = [&](const SmallNetwork& m) {
    return -std::pow(10.0, -nearness(m) / 10.0);
  };
  const CalibrationData data(batches());
  const double coarse = accuracy(quantize(net, batches()[0], batches(), {.qconfigs = qconfigs}));
  const double wanted = 0.3 * coarse;
  const MixedPrecision chosen =
      auto_mixed_precision(net, qconfigs, data, accuracy, {.metric = wanted});
  CHECK(chosen.choices.at("conv2") == Precision::Float);
  CHECK(chosen.choices.at("conv1") == Precision::Int8);
  CHECK(chosen.metric >= wanted);
  const auto int8 = quantize(net, batches()[0], batches(), {.qconfigs = chosen.qconfigs});
  CHECK(accuracy(int8) == chosen.metric);
  CHECK(chosen.pareto.size() >= 2);
  for (std::size_t i = 1; i < chosen.pareto.size(); ++i) {
    CHECK(chosen.pareto[i].cost.bytes >= chosen.pareto[i - 1].cost.bytes);
  }
  // The mapping goes through a file.
  const QConfigMapping read = qconfig_mapping_from_json(to_json(chosen.qconfigs));
  CHECK(accuracy(quantize(net, batches()[0], batches(), {.qconfigs = read})) == chosen.metric);
}

TEST_CASE("Mixed precision with 4-bit weights stays below the bytes that are asked for") {
  manual_seed(2);
  const SmallNetwork net;
  const Nearness nearness(net);
  const CalibrationData data(batches());
  MixedPrecisionOptions options;
  options.choices = {Precision::Int8, Precision::Int4};
  const double all_float = 4.0 * (3 * 8 * 9 + 8 * 8 * 9 + 8 * 5);
  const MixedPrecision chosen = auto_mixed_precision<SmallNetwork>(
      net, get_default_qconfig(), data, nearness, {.bytes = 0.3 * all_float}, options);
  CHECK(chosen.cost.bytes <= 0.3 * all_float);
  const auto uses = [&](Precision precision) {
    return std::any_of(chosen.choices.begin(), chosen.choices.end(),
                       [&](const auto& each) { return each.second == precision; });
  };
  CHECK(uses(Precision::Int8));
  CHECK(chosen.metric > 15.0);
}

TEST_CASE("Budgets that cannot be met, and missing ones, are refused with what can be had") {
  const SmallNetwork net;
  const Nearness nearness(net);
  const CalibrationData data(batches());
  const auto with = [&](const PrecisionBudget& budget) {
    static_cast<void>(
        auto_mixed_precision<SmallNetwork>(net, get_default_qconfig(), data, nearness, budget));
  };
  test::refuses({"auto_mixed_precision", "budget.metric", "1000"},
                [&] { with({.metric = 1000.0}); });
  test::refuses({"auto_mixed_precision", "budget", "cheapest"}, [&] { with({.bytes = 10.0}); });
  test::refuses({"auto_mixed_precision", "budget"}, [&] { with({}); });
  const Metric<SmallNetwork> none;
  test::refuses({"auto_mixed_precision", "metric"}, [&] {
    static_cast<void>(
        auto_mixed_precision(net, get_default_qconfig(), data, none, {.metric = 1.0}));
  });
}

TEST_CASE("A metric that throws, or is no number, ends the search and leaves the network") {
  const SmallNetwork net;
  const Tensor before = net(batches()[0]);
  const CalibrationData data(batches());
  int calls = 0;
  const Metric<SmallNetwork> throws = [&](const SmallNetwork&) -> double {
    if (++calls == 3) throw Error("disk full");
    return 1.0;
  };
  CHECK_THROWS_WITH_AS(sensitivity(net, get_default_qconfig(), data, throws),
                       doctest::Contains("disk full"), Error);
  const Metric<SmallNetwork> nan = [](const SmallNetwork&) { return std::nan(""); };
  CHECK_THROWS_AS(sensitivity(net, get_default_qconfig(), data, nan), ArgumentError);
  CHECK(test::same_bits(net(batches()[0]), before));
}

TEST_CASE("A search that was cut off goes on from its file, and from no other network's") {
  const SmallNetwork net;
  const CalibrationData data(batches());
  const Nearness nearness(net);
  const test::TemporaryFile file;
  std::filesystem::remove(file.path);
  int calls = 0;
  const Metric<SmallNetwork> cut_off = [&](const SmallNetwork& m) {
    if (++calls == 5) throw Error("killed");
    return nearness(m);
  };
  CHECK_THROWS(sensitivity(net, get_default_qconfig(), data, cut_off, {.resume = file.path}));
  calls = 100;
  const Sensitivity resumed =
      sensitivity(net, get_default_qconfig(), data, cut_off, {.resume = file.path});
  const Sensitivity whole = sensitivity<SmallNetwork>(net, get_default_qconfig(), data, nearness);
  CHECK(calls == 100 + static_cast<int>(2 + 2 * whole.layers.size()) - 4);
  CHECK(to_string(resumed) == to_string(whole));
  SmallNetwork other;
  other.fc->weight.fill_(0.5);
  CHECK_THROWS_WITH_AS(
      sensitivity(other, get_default_qconfig(), data, cut_off, {.resume = file.path}),
      doctest::Contains("another"), FileError);
}

TEST_CASE("with_weight_bits keeps the scheme and refuses what has no codes to narrow") {
  const QConfig four = with_weight_bits(get_default_qconfig(), 4);
  CHECK(four.weight()->quant_max() == 7);
  CHECK(four.weight()->qscheme() == QScheme::PerChannelSymmetric);
  CHECK(with_weight_bits(default_qconfig(), 3).weight()->qscheme() == QScheme::PerTensorSymmetric);
  CHECK_THROWS_AS(with_weight_bits(get_default_qconfig(), 9), ArgumentError);
  CHECK_THROWS_AS(with_weight_bits(float16_static_qconfig(), 4), UnsupportedError);
  CHECK_THROWS_AS(with_weight_bits(get_default_qat_qconfig(), 4), UnsupportedError);
}

}  // namespace
}  // namespace quanta
