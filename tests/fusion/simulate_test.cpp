#include "quanta/fusion/simulate.h"

#include <doctest/doctest.h>

#include <string>

#include "quanta/nn/aimet/affine_quantizer.h"
#include "quanta/nn/aimet/fake_quantize.h"
#include "quanta/observers/format_fake_quantize.h"
#include "quanta/observers/format_qconfig.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"
#include "small_network.h"
#include "support/compare.h"
#include "support/tensors.h"

namespace quanta {
namespace {

using test::small_input;
using test::SmallNetwork;
using test::sqnr_db;

SmallNetwork fused_network() {
  SmallNetwork network;
  fuse_modules(network, test::small_network_groups());
  return network;
}

void calibrate(const nn::Module& model) {
  for (std::uint64_t seed = 20; seed < 24; ++seed) model(small_input(seed));
}

TEST_CASE("simulate_quantization: every format changes a network a little and not its original") {
  const SmallNetwork network = fused_network();
  const Tensor x = small_input(11, 32);
  const Tensor reference = network(x);
  for (const NumberFormat& format : number_formats()) {
    CAPTURE(std::string(format.name));
    const SmallNetwork simulated =
        simulate_quantization(network, qconfig_for_format(format.name), calibrate);
    const double sqnr = sqnr_db(reference, simulated(x));
    CHECK(sqnr > (format.weight_bits < 8.0 ? 8.0 : 18.0));
    CHECK(sqnr < 60.0);
    CHECK_FALSE(simulated.is_training());
    CHECK(simulated(x).equal(simulated(x)));
    CHECK(network(x).equal(reference));
  }
}

TEST_CASE("simulate_quantization: a layer computes with rounded weights and rounds its result") {
  struct OneLayer : nn::Module {
    nn::Child<nn::Linear> fc;
    OneLayer() {
      register_module("fc", fc, nn::LinearOptions{.in_features = 40, .out_features = 6});
    }
    Tensor forward(const Tensor& x) const override { return fc(x); }
  };
  const OneLayer layer;
  const OneLayer simulated =
      simulate_quantization(layer, qconfig_for_format("mxfp8"), [](const nn::Module&) {});
  const Tensor x = test::random_tensor({3, 40}, 2);
  const QConfig qconfig = qconfig_for_format("mxfp8");
  const Tensor weight = qconfig.weight()->forward(layer.fc->weight);
  const Tensor expected = qconfig.activation()->forward(linear(x, weight, layer.fc->bias));
  CHECK(simulated(x).equal(expected));
}

TEST_CASE("simulate_quantization: what is simulated as int8 converts to an int8 network") {
  const SmallNetwork network = fused_network();
  const SmallNetwork simulated =
      simulate_quantization(network, qconfig_for_format("int8"), calibrate);
  const SmallNetwork int8 = convert(simulated);
  const Tensor x = small_input(12, 16);
  CHECK(int8.conv1.module()->type_name() == "QuantizedConvReLU2d");
  CHECK(sqnr_db(simulated(x), int8(x)) > 30.0);
}

TEST_CASE("simulate_quantization: formats without integer codes cannot be converted") {
  const SmallNetwork simulated =
      simulate_quantization(fused_network(), qconfig_for_format("fp8"), calibrate);
  CHECK_THROWS_AS(convert(simulated), Error);
}

TEST_CASE("simulate_quantization: modules of a mapping keep formats of their own") {
  const SmallNetwork network = fused_network();
  QConfigMapping mapping(qconfig_for_format("mxfp4"));
  mapping.set_module_name("fc", std::nullopt);
  mapping.set_object_type<nn::QuantStub>(qconfig_for_format("int8"));
  const SmallNetwork simulated = simulate_quantization(network, mapping, calibrate);
  CHECK(simulated.fc.module()->activation_post_process() == nullptr);
  CHECK(simulated.quant.module()->activation_post_process()->name() == "FakeQuantize");
  CHECK(simulated.conv1.module()->activation_post_process()->name() == "FormatFakeQuantize");
}

TEST_CASE("simulate_quantization: plain observers and missing data are refused by name") {
  const SmallNetwork network = fused_network();
  CHECK_THROWS_WITH_AS(simulate_quantization(network, get_default_qconfig(), calibrate),
                       doctest::Contains("expected fake quantizers ("), ArgumentError);
  CHECK_THROWS_WITH_AS(
      simulate_quantization(network, qconfig_for_format("fp8"), [](const nn::Module&) {}),
      doctest::Contains("got none at quant.activation_post_process, conv1.weight_fake_quant"),
      ArgumentError);
  CHECK_THROWS_AS(simulate_quantization(network, QConfigMapping(), calibrate), ArgumentError);
  CHECK_THROWS_WITH_AS(simulate_quantization(network, qconfig_for_format("fp8"), Calibrate()),
                       doctest::Contains("calibrate: expected a function, got none"),
                       ArgumentError);
}

aimet::QuantizeDequantize affine(std::int64_t bitwidth, bool symmetric) {
  return aimet::QuantizeDequantize({.bitwidth = bitwidth, .symmetric = symmetric});
}

TEST_CASE("AimetFakeQuantize: calibrates over all batches as its quantizer does alone") {
  AimetFakeQuantize fake(affine(8, false));
  fake.disable_fake_quant();
  aimet::QuantizeDequantize alone = affine(8, false);
  const auto batches = [](auto&& forward) {
    for (std::uint64_t seed = 1; seed < 4; ++seed) forward(small_input(seed));
  };
  batches([&](const Tensor& x) { CHECK(fake.forward(x).equal(x)); });
  alone.compute_encodings([&] { batches([&](const Tensor& x) { alone.forward(x); }); });
  fake.disable_observer();
  fake.enable_fake_quant();
  const Tensor x = small_input(9);
  CHECK(fake.forward(x).equal(alone.forward(x)));
  CHECK(fake.dtype() == DType::QUInt8);
  const ObservedQParams qparams = fake.calculate_qparams();
  CHECK(qparams.scale.item() == alone.get_scale()->item());
  CHECK(qparams.zero_point.item() == -alone.get_offset()->item());

  StateDict state;
  fake.save_state(state, "");
  AimetFakeQuantize loaded(affine(8, false));
  loaded.load_state(state, "");
  CHECK(loaded.forward(x).equal(fake.forward(x)));
  CHECK(fake.clone()->forward(x).equal(fake.forward(x)));
}

TEST_CASE("AimetFakeQuantize: quantizers stand in a QConfig and become an int8 network") {
  const QConfig qconfig{AimetFakeQuantize::with_args("a8", affine(8, false)),
                        AimetFakeQuantize::with_args("w8", affine(8, true))};
  const SmallNetwork network = fused_network();
  const SmallNetwork simulated = simulate_quantization(network, qconfig, calibrate);
  const Tensor x = small_input(13, 16);
  CHECK(sqnr_db(network(x), simulated(x)) > 25.0);
  const SmallNetwork int8 = convert(simulated);
  CHECK(sqnr_db(simulated(x), int8(x)) > 30.0);

  const QConfig w4{qconfig.activation, AimetFakeQuantize::with_args("w4", affine(4, true))};
  const SmallNetwork four = simulate_quantization(network, w4, calibrate);
  CHECK(sqnr_db(network(x), four(x)) < sqnr_db(network(x), simulated(x)));
}

TEST_CASE("aimet results: those on an int8 grid become QTensors and come back without loss") {
  for (const bool symmetric : {false, true}) {
    aimet::QuantizeDequantize quantizer = affine(8, symmetric);
    const Tensor x = small_input(14);
    quantizer.compute_encodings([&] { quantizer.forward(x); });
    const aimet::DequantizedTensor y = quantizer(x);
    const QTensor q = y.to_qtensor();
    CHECK(q.dtype() == (symmetric ? DType::QInt8 : DType::QUInt8));
    CHECK(dequantize(q).equal(y.tensor()));
    const aimet::EncodedTensor back = aimet::EncodedTensor::from_qtensor(q);
    CHECK(back.dequantize().tensor().equal(y.tensor()));
    CHECK(back.quantized_repr().to_int64_vector() == q.to_int64_vector());
  }
  aimet::QuantizeDequantize rows({.shape = {3, 1, 1}, .bitwidth = 8, .symmetric = true});
  const Tensor x = small_input(15);
  rows.compute_encodings([&] { rows.forward(x); });
  const aimet::DequantizedTensor y = rows(x);
  CHECK(dequantize(y.to_qtensor()).equal(y.tensor()));
}

}  // namespace
}  // namespace quanta
