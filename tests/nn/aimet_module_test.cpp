// AIMET's quantizers as children of a network.

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "quanta/nn/aimet/affine_quantizer.h"
#include "quanta/nn/aimet/fake_quantize.h"
#include "quanta/nn/aimet/float_quantizer.h"
#include "quanta/nn/container.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/optim/optimizer.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/linear.h"
#include "quanta/ops/reduce.h"
#include "quanta/runtime/error.h"
#include "support/capture_binding.h"
#include "support/compare.h"
#include "support/tensors.h"

namespace quanta::aimet {
namespace {

using test::says;
using test::uniform_tensor;

struct Layer : nn::Module {
  nn::Child<nn::Linear> fc;
  nn::Child<QuantizeDequantize> weight, output;
  nn::Child<Quantize> codes;
  nn::Child<FloatQuantizeDequantize> input;

  Layer() {
    register_module("fc", fc, {.in_features = 6, .out_features = 4});
    register_module("weight", weight, {.shape = {4, 1}, .bitwidth = 4, .symmetric = true});
    register_module("output", output, {.bitwidth = 8, .symmetric = false});
    register_module("codes", codes, {.bitwidth = 8, .symmetric = false});
    register_module("input", input, {.dtype = "float8_e4m3fn"});
  }
  Tensor forward(const Tensor& x) const override {
    const Tensor y = output(linear(input(x), weight(fc->weight), fc->bias));
    codes(y);
    return y;
  }
};

Layer calibrated_layer(std::uint64_t seed = 1) {
  Layer layer;
  for (const Tensor& parameter : layer.fc->parameters()) {
    parameter.copy_(uniform_tensor(parameter.sizes(), seed++));
  }
  compute_encodings(layer, [&] { layer(uniform_tensor({20, 6}, seed)); });
  return layer;
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

TEST_CASE("quantizers: their parameters and state stand below their names in the network") {
  const Layer layer = calibrated_layer();
  std::vector<std::string> names;
  for (const auto& [path, tensor] : layer.named_parameters()) names.push_back(path);
  CHECK(names == std::vector<std::string>{"fc.weight", "fc.bias", "weight.min", "weight.max",
                                          "output.min", "output.max", "codes.min", "codes.max"});
  CHECK(layer.named_buffers().size() == 1);
  CHECK(layer.named_buffers()[0].path == "input.maxval");
  const StateDict state = layer.state_dict();
  CHECK(state.at("weight.min").sizes() == Dims{4, 1});
  CHECK(state.contains("codes._extra_state.qmin"));
  CHECK(state.contains("input.maxval"));
  CHECK(nn::to_string(layer).find("(weight): QuantizeDequantize(shape=(4, 1), qmin=-8, qmax=7, "
                                  "symmetric=True)") != std::string::npos);
}

TEST_CASE("quantizers: a strict load wants all names and a lenient one tells them") {
  const Layer from = calibrated_layer();
  const Tensor x = uniform_tensor({3, 6}, 9);
  StateDict state = from.state_dict();
  Layer to;
  to.load_state_dict(state);
  CHECK(to(x).equal(from(x)));

  Layer other = calibrated_layer(40);
  const Tensor before = other(x);
  state.erase("output.max");
  state.erase("weight._extra_state.qmax");
  state.set("output.median", Tensor::scalar(0.0));
  says([&] { other.load_state_dict(state); },
       "missing names: 'weight._extra_state.qmax', "
       "'output.max'");
  says([&] { other.load_state_dict(state); }, "unexpected names: 'output.median'");
  CHECK(other(x).equal(before));
  const Tensor max_before = other.output->named_parameters()[1].tensor.clone();
  const nn::LoadResult result = other.load_state_dict(state, nn::Strict::No);
  CHECK(result.missing_keys.size() == 2);
  CHECK(contains(result.missing_keys, "output.max"));
  CHECK(result.unexpected_keys == std::vector<std::string>{"output.median"});
  CHECK(other.output->named_parameters()[0].tensor.equal(state.at("output.min")));
  CHECK(other.output->named_parameters()[1].tensor.equal(max_before));
  CHECK(other.weight->grid() == Grid(-8, 7));
}

TEST_CASE("quantizers: a state that cannot be leaves the whole network as it was") {
  Layer layer = calibrated_layer();
  const Tensor x = uniform_tensor({3, 6}, 9);
  const Tensor before = layer(x);
  const std::vector<std::pair<const char*, Tensor>> wrong{
      {"weight.min", Tensor::ones({3, 1})},
      {"weight._extra_state.qmin", Tensor::scalar(7.0)},
      {"weight._extra_state.qmin", Tensor::scalar(0.5)},
      {"weight._extra_state.zero_point_shift", Tensor::scalar(0.25)},
      {"weight._extra_state.block_size", Tensor::from_int64(std::vector<std::int64_t>{1})},
      {"input._extra_state.exponent_bits", Tensor::scalar(12.0)},
      {"input._extra_state.block_size", Tensor::ones({2})}};
  for (const auto& [name, value] : wrong) {
    CAPTURE_BINDING(name);
    StateDict state = calibrated_layer(20).state_dict();
    state.set(name, value);
    says([&] { layer.load_state_dict(state); }, std::string(name).substr(0, 6).c_str());
    says([&] { layer.load_state_dict(state, nn::Strict::No); }, "load_state_dict: state");
    CHECK(layer(x).equal(before));
  }
}

TEST_CASE("quantizers: load_state_and_shape takes over sizes, and the analyzer keeps its kind") {
  QuantizeDequantize from(
      {.shape = {4, 2}, .bitwidth = 4, .symmetric = true, .block_size = {1, 3}});
  from.compute_encodings([&] { from(uniform_tensor({4, 6}, 1)); });
  QuantizeDequantize to({.bitwidth = 8,
                         .symmetric = true,
                         .analyzer = std::make_shared<PercentileAnalyzer>(
                             PercentileAnalyzerOptions{.percentile = 90.0})});
  to.load_state_and_shape(from.state_dict(), "");
  const auto* analyzer = dynamic_cast<const PercentileAnalyzer*>(to.analyzer().get());
  REQUIRE(analyzer != nullptr);
  CHECK(analyzer->percentile() == 90.0);
  CHECK(analyzer->shape() == Dims{4, 2});
  CHECK(analyzer->block_size() == Dims{1, 3});
  to.compute_encodings([&] { to(uniform_tensor({4, 6}, 2)); });
  CHECK(to.get_scale()->sizes() == Dims{4, 2});

  FloatQuantizeDequantize floats(
      {.dtype = "float8_e5m2",
       .shape = {2, 1},
       .analyzer = std::make_shared<SqnrAnalyzer>(SqnrAnalyzerOptions::tf_enhanced({2, 1}))});
  floats.load_state_and_shape(FloatQuantizeDequantize({.dtype = "float8_e4m3fn"}).state_dict(), "");
  CHECK(dynamic_cast<const SqnrAnalyzer*>(floats.analyzer().get()) != nullptr);
  CHECK(floats.analyzer()->shape().empty());
}

// An analyzer whose class says nothing of other shapes, with a range that cannot be.
class OddAnalyzer final : public EncodingAnalyzer {
 public:
  explicit OddAnalyzer(const Dims& shape) : EncodingAnalyzer(shape, {}) {}
  std::string name() const override { return "OddAnalyzer"; }
  void update(const Tensor&) override { seen_ = true; }
  bool has_data() const override { return seen_; }
  void reset() override { seen_ = false; }
  void merge(const Collector&) override {}
  void save_state(StateDict&, const std::string&) const override {}
  void load_state(const StateDict&, const std::string&) override {}
  Dims result{};
  DType dtype = DType::Float32;

 protected:
  std::shared_ptr<Collector> copy() const override { return copy_of(*this); }
  Range range_of_data(std::int64_t, bool) const override {
    if (broken) throw UnsupportedError("OddAnalyzer: no range");
    return {Tensor::scalar(-1.0).to(dtype), Tensor::full(result, 1.0).to(dtype)};
  }

 public:
  bool broken = false;

 private:
  bool seen_ = false;
};

TEST_CASE("quantizers: an analyzer that cannot have the shape of a state is named") {
  QuantizeDequantize to(
      {.bitwidth = 8, .symmetric = true, .analyzer = std::make_shared<OddAnalyzer>(Dims{})});
  to.set_range(-1.0, 1.0);
  QuantizeDequantize from({.shape = {3}, .bitwidth = 8, .symmetric = true});
  CHECK_THROWS_WITH_AS(to.load_state_and_shape(from.state_dict(), ""),
                       doctest::Contains("OddAnalyzer: with_shape: expected shape []"),
                       UnsupportedError);
  CHECK(to.is_initialized());
  CHECK(to.shape().empty());
}

TEST_CASE("compute_encodings: a scope that ends in an error reports it and leaves the range") {
  const auto analyzer = std::make_shared<OddAnalyzer>(Dims{});
  QuantizeDequantize quantizer({.bitwidth = 8, .symmetric = true, .analyzer = analyzer});
  quantizer.set_range(-2.0, 2.0);
  const double before = quantizer.get_scale()->item();
  const Tensor x = Tensor::ones({2});
  const auto scope = [&] {
    const CalibrationScope open = quantizer.compute_encodings();
    analyzer->update(x);
    analyzer->broken = true;
  };
  CHECK_THROWS_AS(scope(), UnsupportedError);
  CHECK_FALSE(quantizer.is_calibrating());
  analyzer->broken = false;
  analyzer->result = Dims{5};
  says(
      [&] {
        const CalibrationScope open = quantizer.compute_encodings();
        analyzer->update(x);
      },
      "compute_encodings: expected a range that can be expanded to [], got [5]");
  analyzer->result = {};
  analyzer->dtype = DType::Int64;
  says([&] { quantizer.compute_encodings([&] { analyzer->update(x); }); },
       "compute_encodings: expected a floating range, got Int64");
  CHECK(quantizer.get_scale()->item() == before);
  {
    CalibrationScope open = quantizer.compute_encodings();
    analyzer->update(x);
    open.cancel();
  }
  CHECK(quantizer.get_scale()->item() == before);
}

TEST_CASE("compute_encodings takes ranges of an analyzer's own sizes and dtype") {
  const auto analyzer = std::make_shared<OddAnalyzer>(Dims{});
  analyzer->result = {3, 1};
  analyzer->dtype = DType::Float64;
  const Tensor x = Tensor::ones({3, 2});
  FloatQuantizeDequantize floating(
      {.dtype = "float8_e4m3fn", .shape = {3, 1}, .analyzer = analyzer});
  floating.compute_encodings([&] { floating(x); });
  CHECK(floating.maxval().equal(Tensor::ones({3, 1})));
  QuantizeDequantize affine(
      {.shape = {3, 1}, .bitwidth = 8, .symmetric = false, .analyzer = analyzer});
  affine.use_scale_offset();
  affine.compute_encodings([&] { affine(x); });
  CHECK(affine.get_scale()->equal(Tensor::full({3, 1}, 2.0 / 255.0)));
}

TEST_CASE("compute_encodings of a network gives all quantizers their range or none") {
  const Layer calibrated = calibrated_layer();
  CHECK(calibrated.weight->is_initialized());
  CHECK(calibrated.codes->is_initialized());
  Layer layer = calibrated_layer();
  const Tensor x = uniform_tensor({3, 6}, 9);
  const Tensor before = layer(x);
  CHECK_THROWS_AS(compute_encodings(layer,
                                    [&] {
                                      layer(mul_scalar(x, 50.0));
                                      throw std::runtime_error("stop");
                                    }),
                  std::runtime_error);
  CHECK(layer(x).equal(before));
  const CalibrationScope open = layer.codes->compute_encodings();
  says([&] { compute_encodings(layer, [] {}); },
       "expected no scope that lives, got one at 'codes'");
}

TEST_CASE("quantizers: a clone is trained apart and a copy shares the parameters") {
  const Layer layer = calibrated_layer();
  const Tensor x = uniform_tensor({3, 6}, 9);
  const Tensor before = layer(x);
  const Layer deep = nn::deep_copy(layer);
  const Layer shared = layer;
  CHECK(deep(x).equal(before));
  deep.output->set_range(-0.1, 0.1);
  CHECK(layer(x).equal(before));
  shared.output->set_range(-0.1, 0.1);
  CHECK(layer(x).equal(deep(x)));

  const Layer fresh = nn::deep_copy(Layer());
  CHECK_FALSE(fresh.output->is_initialized());
  for (const Tensor& end : fresh.output->parameters()) end.fill_(3.0);
  CHECK(fresh.output->is_initialized());
}

TEST_CASE("quantizers: ranges move to a device with the network and keep their gradients") {
  const Device device = Device::cuda_emulated();
  Layer layer = calibrated_layer();
  const Tensor x = uniform_tensor({5, 6}, 9);
  const auto range_gradients = [&](Device where) {
    layer.zero_grad();
    layer.weight(layer.fc->weight).backward(Tensor::ones({4, 6}).to(where));
    std::vector<Tensor> gradients;
    for (const Tensor& end : layer.weight->parameters()) {
      CHECK(end.grad().device() == where);
      gradients.push_back(end.grad().cpu().clone());
    }
    return gradients;
  };
  layer.requires_grad_();
  const std::vector<Tensor> expected = range_gradients(Device::cpu());
  const Tensor y = layer.output(x).detach();
  layer.to(device);
  for (const Tensor& parameter : layer.parameters()) CHECK(parameter.device() == device);
  CHECK(layer.input->maxval().device() == device);
  CHECK(layer.output->is_initialized());
  CHECK(layer.output(x.to(device)).detach().cpu().equal(y));
  const std::vector<Tensor> got = range_gradients(device);
  for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i].equal(expected[i]));
  layer.output->set_range(-1.0, 1.0);
  CHECK(layer.output->parameters()[0].device() == device);
  layer.to(Device::cpu());
  CHECK(layer.output->parameters()[0].device() == Device::cpu());
}

TEST_CASE("quantizers: ranges and weights are trained together") {
  Layer layer = calibrated_layer();
  const Tensor x = uniform_tensor({64, 6}, 3);
  const Tensor target = linear(x, layer.fc->weight.clone(), layer.fc->bias.clone());
  layer.requires_grad_();
  optim::Adam optimizer(layer.parameters(), {.lr = 0.02});
  const auto step = [&] {
    optimizer.zero_grad();
    const Tensor error = sub(layer(x), target);
    const Tensor loss = mean(mul(error, error));
    loss.backward();
    optimizer.step();
    return loss.item();
  };
  const Tensor range_before = layer.weight->parameters()[1].detach().clone();
  const double first = step();
  double last = first;
  for (int i = 0; i < 100; ++i) last = step();
  CHECK(last < 0.6 * first);
  CHECK_FALSE(layer.weight->parameters()[1].detach().equal(range_before));
}

TEST_CASE("quantizers: a call gives the typed tensor and runs the hooks") {
  Quantize codes({.bitwidth = 8, .symmetric = false});
  codes.set_range(0.0, 255.0);
  const Tensor x = Tensor::from_values({1.0F, 2.6F});
  const QuantizedTensor q = codes(x);
  CHECK(q.encoding()->scale().item() == 1.0);
  int calls = 0;
  codes.register_forward_hook([&](const nn::Module&, const Tensor&, const Tensor& y) {
    ++calls;
    return y;
  });
  CHECK(codes(x).tensor().equal(q.tensor()));
  CHECK(calls == 1);
  CHECK(codes(Tensor::zeros({0})).encoding() == nullptr);
  FloatQuantizeDequantize floats({.dtype = "float8_e4m3fn"});
  CHECK(floats(x).encoding()->mapping() == "float");
  says([&] { floats(Tensor::zeros({2}, DType::Int32)); },
       "DequantizedTensor: tensor: expected a floating tensor, got Int32");
}

TEST_CASE("AimetFakeQuantize: the parameters of its quantizer are the network's") {
  const QuantizeDequantize model({.bitwidth = 4, .symmetric = true});
  nn::Sequential net(nn::Linear({.in_features = 2, .out_features = 2}));
  net.set_activation_post_process(std::make_shared<AimetFakeQuantize>(model));
  std::vector<std::string> names;
  for (const auto& [path, tensor] : net.named_parameters()) names.push_back(path);
  CHECK(contains(names, "activation_post_process.quantizer.min"));
  CHECK(contains(names, "activation_post_process.quantizer.max"));
  net.to(Device::cuda_emulated());
  for (const Tensor& parameter : net.parameters()) CHECK_FALSE(parameter.device().is_cpu());
}

TEST_CASE(
    "AimetFakeQuantize: gather works the range out, has_data writes it, cancel_scope drops it") {
  AimetFakeQuantize fake(QuantizeDequantize({.bitwidth = 8, .symmetric = false}));
  const Tensor x = Tensor::from_values({-1.0F, 1.0F});
  const Tensor wide = mul_scalar(x, 50.0);
  CHECK_FALSE(fake.gather());
  fake.update(x);
  CHECK(fake.gather());
  CHECK_FALSE(fake.quantizer().is_initialized());
  fake.update(wide);  // too late
  CHECK(fake.has_data());
  const double before = fake.quantizer().encoding()->scale().item();
  CHECK(before == doctest::Approx(2.0 / 255.0));
  CHECK_FALSE(fake.gather());
  fake.update(wide);
  fake.cancel_scope();
  CHECK_FALSE(fake.quantizer().is_calibrating());
  CHECK(fake.has_data());
  CHECK(fake.quantizer().encoding()->scale().item() == before);
}

TEST_CASE("AimetFakeQuantize: a state brings its grid, which a reset keeps") {
  AimetFakeQuantize from(QuantizeDequantize({.shape = {3, 1}, .bitwidth = 4, .symmetric = true}));
  from.update(uniform_tensor({3, 6}, 1));
  StateDict state;
  from.save_state(state, "");
  AimetFakeQuantize to(QuantizeDequantize({.bitwidth = 16, .symmetric = false}));
  CHECK(to.dtype() == DType::Float32);
  to.load_state(state, "");
  const auto is_as_loaded = [&] {
    CHECK(to.dtype() == DType::QInt8);
    CHECK(to.qscheme() == QScheme::PerChannelSymmetric);
    CHECK(to.quant_min() == -8);
    CHECK(to.quant_max() == 7);
    CHECK(to.quantizer().shape() == Dims{3, 1});
  };
  is_as_loaded();
  CHECK(to.has_data());
  to.reset();
  is_as_loaded();
  CHECK_FALSE(to.has_data());
  to.update(uniform_tensor({3, 6}, 1));
  CHECK(to.calculate_qparams().scale.equal(from.calculate_qparams().scale));

  // A state that cannot be leaves what was gathered.
  to.update(mul_scalar(uniform_tensor({3, 6}, 1), 3.0));
  state.erase("quantizer.max");
  CHECK_THROWS_AS(to.load_state(state, ""), ArgumentError);
  CHECK_FALSE(to.calculate_qparams().scale.equal(from.calculate_qparams().scale));
}

}  // namespace
}  // namespace quanta::aimet
