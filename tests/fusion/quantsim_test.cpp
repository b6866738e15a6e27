// AIMET's QuantizationSimModel.

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "quanta/fusion/quantsim.h"
#include "quanta/nn/aimet/affine_quantizer.h"
#include "quanta/nn/optim/optimizer.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/reduce.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/safetensors.h"
#include "small_network.h"
#include "support/files.h"
#include "support/tensors.h"

namespace quanta::aimet {
namespace {

using test::says;
using test::SmallNetwork;
using test::sqnr_db;

Tensor images(std::uint64_t seed, std::int64_t count = 4) {
  return test::uniform_tensor({count, 3, 12, 12}, seed, 2.0F);
}

// The same weights every time.
SmallNetwork fused() {
  static const SmallNetwork network = [] {
    SmallNetwork made;
    fuse_modules(made, test::small_network_groups());
    return made;
  }();
  return nn::deep_copy(network);
}

void calibrate(const nn::Module& model) {
  for (std::uint64_t seed = 1; seed < 5; ++seed) model(images(seed));
}

QuantizationSimModel<SmallNetwork> calibrated(const QuantSimConfig& config = {}) {
  QuantizationSimModel<SmallNetwork> sim(fused(), config);
  sim.compute_encodings(calibrate);
  return sim;
}

TEST_CASE("QuantizationSimModel: weights and inputs and outputs have quantizers by the config") {
  const auto sim = calibrated({.output_bitwidth = 6, .overrides = {{"fc", {.param_bitwidth = 4}}}});
  std::vector<std::string> names;
  for (const quantsim::NamedQuantizer& named : quantsim::named_quantizers(sim.model())) {
    names.push_back(named.name);
    const Quantizer& quantizer = named.quantizer->quantizer();
    CHECK(quantizer.is_initialized());
    const EncodingPtr encoding = quantizer.get_encodings();
    CHECK(encoding->bitwidth() == (!named.is_param ? 6 : named.name == "fc.weight" ? 4 : 8));
    CHECK(encoding->is_signed() == named.is_param);
    if (named.name == "conv1.weight") CHECK(encoding->scale().sizes() == Dims{8, 1, 1, 1});
    if (named.name == "fc.weight") CHECK(encoding->scale().sizes() == Dims{5, 1});
    if (!named.is_param) CHECK(encoding->granularity() == "pertensor");
  }
  for (const char* name : {"quant.output", "conv1.weight", "conv1.output", "conv2.weight",
                           "fc.weight", "fc.output", "skip.output"}) {
    CAPTURE(name);
    CHECK(std::find(names.begin(), names.end(), name) != names.end());
  }
}

TEST_CASE("QuantizationSimModel: more bits come closer to the float network") {
  const SmallNetwork network = fused();
  const Tensor x = images(9, 16);
  double last = 0.0;
  for (const std::int64_t bits : {4, 8, 12}) {
    const auto sim = calibrated(
        {.scheme = QuantScheme::MinMax, .param_bitwidth = bits, .output_bitwidth = bits});
    const double now = sqnr_db(network(x), sim.model()(x));
    CHECK(now > last + 5.0);
    last = now;
  }
  const auto percentile = calibrated({.scheme = QuantScheme::Percentile, .percentile = 99.0});
  CHECK(sqnr_db(network(x), percentile.model()(x)) > 10.0);
}

TEST_CASE("QuantizationSimModel: what is excluded stays in float") {
  const auto sim = calibrated({.overrides = {{"conv2", {.excluded = true}}}});
  for (const quantsim::NamedQuantizer& named : quantsim::named_quantizers(sim.model())) {
    CHECK_FALSE(named.name.starts_with("conv2"));
  }
}

TEST_CASE("QuantizationSimModel: an export is read again and written with the same bytes") {
  const test::TemporaryFolder folder;
  const auto from = calibrated();
  const Tensor x = images(9, 8);
  for (const EncodingVersion version : {EncodingVersion::V0_6_1, EncodingVersion::V1_0_0,
                                        EncodingVersion::V2_0_0, EncodingVersion::V2_1_0}) {
    CAPTURE(to_string(version));
    from.export_to(folder.path(), "small", version);
    QuantizationSimModel<SmallNetwork> to(fused(), {.param_bitwidth = 4});
    to.load_encodings(folder.path() / "small.encodings");
    CHECK(to.model()(x).equal(from.model()(x)));
    to.export_to(folder.path(), "again", version);
    CHECK(test::read_bytes(folder.path() / "again.encodings") ==
          test::read_bytes(folder.path() / "small.encodings"));
  }
  const StateDict weights = read_safetensors(folder.path() / "small.safetensors");
  CHECK(weights.contains("fc.weight"));
  for (const auto& [name, tensor] : weights) {
    CHECK(name.find("fake_quant") == std::string::npos);
    CHECK(name.find("activation_post_process") == std::string::npos);
  }
}

TEST_CASE("QuantizationSimModel: an int8 network gives what was simulated") {
  const auto sim = calibrated({.scheme = QuantScheme::MinMax});
  const SmallNetwork int8 = sim.convert();
  const Tensor x = images(9, 16);
  CHECK(sqnr_db(sim.model()(x), int8(x)) > 30.0);
  const auto wide = calibrated({.output_bitwidth = 16});
  CHECK_THROWS_WITH_AS(wide.convert(), doctest::Contains("quant.output: QuantizeDequantize("),
                       UnsupportedError);
}

TEST_CASE("QuantizationSimModel: a state of other bits converts as the network it came from") {
  const auto with_bits = [](std::int64_t bits) {
    return QuantSimConfig{.scheme = QuantScheme::MinMax, .param_bitwidth = bits};
  };
  const auto wide = calibrated(with_bits(16));
  auto sim = calibrated(with_bits(8));
  sim.model().load_state_dict(wide.model().state_dict());
  const Tensor x = images(9, 8);
  CHECK(sim.model()(x).equal(wide.model()(x)));
  CHECK_THROWS_WITH_AS(sim.convert(), doctest::Contains("conv1.weight: QuantizeDequantize("),
                       UnsupportedError);
  // What lies beyond the range of the weights shows whether their codes are clamped to 4 bits.
  auto narrow = calibrated(with_bits(4));
  for (const quantsim::NamedQuantizer& named : quantsim::named_quantizers(narrow.model())) {
    if (!named.is_param) continue;
    auto clipped = named.quantizer->quantizer().clone();
    dynamic_cast<QuantizeDequantize&>(*clipped).set_range(-0.05, 0.05);
    named.quantizer->set_quantizer(*clipped);
  }
  sim.model().load_state_dict(narrow.model().state_dict());
  CHECK(sim.convert()(x).equal(narrow.convert()(x)));
}

TEST_CASE("QuantizationSimModel: ranges are trained with the weights") {
  auto sim = calibrated({.param_bitwidth = 3});
  const SmallNetwork network = fused();
  const Tensor x = images(3, 16);
  const Tensor target = network(x).detach();
  const auto loss = [&] {
    const Tensor error = sub(sim.model()(x), target);
    return mean(mul(error, error));
  };
  const double before = loss().item();
  const EncodingFile ranges = sim.encodings();
  sim.model().requires_grad_();
  optim::Adam optimizer(sim.model().parameters(), {.lr = 0.0002});
  for (int i = 0; i < 30; ++i) {
    optimizer.zero_grad();
    loss().backward();
    optimizer.step();
  }
  CHECK(loss().item() < 0.6 * before);
  const EncodingFile trained = sim.encodings();
  for (std::size_t i = 0; i < ranges.params.size(); ++i) {
    CAPTURE(ranges.params[i].name);
    CHECK_FALSE(trained.params[i].encoding->scale().equal(ranges.params[i].encoding->scale()));
  }
}

// Sees data like another analyzer, and has no range once broken.
class BrokenAnalyzer final : public EncodingAnalyzer {
 public:
  explicit BrokenAnalyzer(const bool* broken) : EncodingAnalyzer({}, {}), broken_(broken) {}
  std::string name() const override { return "BrokenAnalyzer"; }
  void update(const Tensor&) override { seen_ = true; }
  bool has_data() const override { return seen_; }
  void reset() override { seen_ = false; }
  void merge(const Collector&) override {}
  void save_state(StateDict&, const std::string&) const override {}
  void load_state(const StateDict&, const std::string&) override {}

 protected:
  std::shared_ptr<Collector> copy() const override { return copy_of(*this); }
  Range range_of_data(std::int64_t, bool) const override {
    if (*broken_) throw UnsupportedError("BrokenAnalyzer: no range");
    return {Tensor::scalar(-1.0), Tensor::scalar(1.0)};
  }

 private:
  const bool* broken_;
  bool seen_ = false;
};

std::shared_ptr<AimetFakeQuantize> quantizer_at(const nn::Module& model, const std::string& name) {
  for (const quantsim::NamedQuantizer& named : quantsim::named_quantizers(model)) {
    if (named.name == name) return named.quantizer;
  }
  return nullptr;
}

TEST_CASE("QuantizationSimModel: a calibration that fails leaves all ranges") {
  auto sim = calibrated({.scheme = QuantScheme::MinMax});
  const auto last = quantizer_at(sim.model(), "fc.output");
  bool broken = false;
  QuantizeDequantize odd(
      {.bitwidth = 8, .symmetric = false, .analyzer = std::make_shared<BrokenAnalyzer>(&broken)});
  odd.set_range(-3.0, 3.0);
  last->set_quantizer(odd);
  const auto skip = quantizer_at(sim.model(), "skip.output");
  skip->disable_fake_quant();
  const Tensor x = images(9);
  const Tensor before = sim.model()(x);
  const std::string text = to_json(sim.encodings());
  const auto wide = [&](const nn::Module& model) { model(mul_scalar(x, 40.0)); };
  const auto is_as_before = [&] {
    CHECK(sim.model()(x).equal(before));
    CHECK(to_json(sim.encodings()) == text);
    for (const quantsim::NamedQuantizer& named : quantsim::named_quantizers(sim.model())) {
      CHECK_FALSE(named.quantizer->quantizer().is_calibrating());
      CHECK_FALSE(named.quantizer->is_observer_enabled());
      CHECK(named.quantizer->is_fake_quant_enabled() == (named.quantizer != skip));
    }
  };
  CHECK_THROWS_AS(sim.compute_encodings([&](const nn::Module& model) {
    wide(model);
    throw FileError("no more images");
  }),
                  FileError);
  is_as_before();
  CHECK_THROWS_AS(sim.compute_encodings([&](const nn::Module& model) {
    wide(model);
    broken = true;
  }),
                  UnsupportedError);
  is_as_before();
  broken = false;
  says([&] { sim.compute_encodings([](const nn::Module&) {}); },
       "expected data for every quantizer (a module that is not used is excluded by an override), "
       "got none at quant.output, conv1.weight");
  is_as_before();
  // What was watched before a calibration is no part of it.
  const auto first = quantizer_at(sim.model(), "quant.output");
  first->update(mul_scalar(x, 1000.0));
  sim.compute_encodings(calibrate);
  CHECK(first->quantizer().encoding()->scale().item() < 1.0);
}

TEST_CASE("QuantizationSimModel: loaded encodings keep the scheme and the gradients") {
  const auto from = calibrated({.scheme = QuantScheme::MinMax, .per_channel = false});
  QuantizationSimModel<SmallNetwork> sim(
      fused(), {.scheme = QuantScheme::Percentile, .percentile = 97.0, .param_bitwidth = 4});
  sim.model().requires_grad_();
  quantsim::load_encodings(sim.model(), from.encodings());
  for (const quantsim::NamedQuantizer& named : quantsim::named_quantizers(sim.model())) {
    CAPTURE(named.name);
    const Quantizer& quantizer = named.quantizer->quantizer();
    CHECK(quantizer.shape().empty());
    const auto* analyzer = dynamic_cast<const PercentileAnalyzer*>(quantizer.analyzer().get());
    REQUIRE(analyzer != nullptr);
    CHECK(analyzer->percentile() == 97.0);
    CHECK(analyzer->shape().empty());
    for (const Tensor& parameter : quantizer.parameters()) CHECK(parameter.requires_grad());
  }
  sim.compute_encodings(calibrate);

  const Tensor x = images(9);
  const Tensor before = sim.model()(x);
  EncodingFile file = from.encodings();
  file.activations.back().encoding = std::make_shared<AffineEncoding>(
      Tensor::full({5}, 0.1), Tensor::zeros({5}), Grid(0, 255), AffineEncodingOptions{});
  says([&] { quantsim::load_encodings(sim.model(), file); },
       "expected one scale for a result, got [5]");
  file.activations.back().encoding =
      std::make_shared<AffineEncoding>(Tensor::full({1}, 0.1), Tensor::zeros({1}), Grid(0, 255),
                                       AffineEncodingOptions{.block_size = {4}});
  says([&] { quantsim::load_encodings(sim.model(), file); },
       "expected one scale for a result, got [1] for blocks [4]");
  CHECK(sim.model()(x).equal(before));
}

TEST_CASE("QuantizationSimModel: int8 modules cannot have results of fewer bits") {
  const auto sim = calibrated({.overrides = {{"conv1", {.output_bitwidth = 4}}}});
  CHECK_THROWS_WITH_AS(sim.convert(),
                       doctest::Contains("results of 8 unsigned bits, got:\n  conv1.output: "
                                         "QuantizeDequantize(shape=(), qmin=0, qmax=15"),
                       UnsupportedError);
}

TEST_CASE("QuantizationSimModel: what cannot be is refused by name") {
  says([] { QuantizationSimModel<SmallNetwork>(fused(), {.param_bitwidth = 1}); },
       "param_bitwidth: expected 2..32, got 1");
  says([] { QuantizationSimModel<SmallNetwork>(fused(), {.overrides = {{"head", {}}}}); }, "head");
  says(
      [] {
        QuantizationSimModel<SmallNetwork>(fused(), {.overrides = {{"", {}}}});
      },
      "overrides: expected the path of a module");
  QuantizationSimModel<SmallNetwork> sim(fused());
  says([&] { sim.compute_encodings([](const nn::Module&) {}); }, "got none at quant.output");
  auto ready = calibrated();
  const Tensor x = images(9);
  const Tensor before = ready.model()(x);
  EncodingFile file = ready.encodings();
  file.params[0].name = "head.weight";
  says([&] { quantsim::load_encodings(ready.model(), file); },
       "expected names of quantizers, got head.weight");
  file = ready.encodings();
  std::swap(file.params.front().encoding, file.params.back().encoding);
  says([&] { quantsim::load_encodings(ready.model(), file); },
       "conv1.weight: expected scales for [8, 3, 3, 3], got [5, 1]");
  CHECK(ready.model()(x).equal(before));
  CHECK_THROWS_AS(ready.load_encodings("/nowhere/small.encodings"), FileError);
}

}  // namespace
}  // namespace quanta::aimet
