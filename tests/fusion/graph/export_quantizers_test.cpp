// Fake quantizers in ONNX files: what the file says is what the network calculates.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fusion/small_network.h"
#include "quanta/fusion/graph/export_onnx.h"
#include "quanta/fusion/graph/model.h"
#include "quanta/fusion/quantsim.h"
#include "quanta/fusion/simulate.h"
#include "quanta/nn/aimet/affine_quantizer.h"
#include "quanta/nn/aimet/float_quantizer.h"
#include "quanta/nn/container.h"
#include "quanta/observers/defaults.h"
#include "quanta/observers/format_qconfig.h"
#include "quanta/observers/learnable_fake_quantize.h"
#include "quanta/observers/modelopt/tensor_quantizer.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/tensor_quant.h"
#include "quanta/runtime/error.h"
#include "support/capture_binding.h"
#include "support/compare.h"
#include "support/onnx_cases.h"

namespace quanta::graph {
namespace {

using test::SmallNetwork;

std::map<std::string, int> count_ops(const OnnxModel& file) {
  std::map<std::string, int> counts;
  for (const OnnxNode& node : file.graph.nodes) ++counts[node.op_type];
  return counts;
}

SmallNetwork qat_network(const QConfig& qconfig) {
  SmallNetwork net;
  net.train();
  fuse_modules_qat(net, test::small_network_groups());
  prepare_qat_(net, QConfigMapping(qconfig));
  for (int i = 0; i < 4; ++i) net(test::small_input(static_cast<std::uint64_t>(i)));
  net.eval();
  disable_observer(net);
  return net;
}

/// SQNR of the file as it stands, and as int8 layers run it.
struct Agreement {
  double literal = 0.0, int8 = 0.0;
};
Agreement agreement(const std::string& name, const nn::Module& net, const Tensor& x,
                    const OnnxModel& file) {
  test::write_onnx_case(name, file, x, net(x));
  const Tensor want = net(x);
  return {test::sqnr_db(want, from_onnx(file, {.literal = true})(x)),
          test::sqnr_db(want, from_onnx(file)(x))};
}

}  // namespace

TEST_CASE("to_onnx: fake quantizers of QAT become Q and DQ and weights become codes") {
  const Tensor x = test::small_input(9);
  for (const char* backend : {"x86", "qnnpack", "onednn"}) {
    CAPTURE(backend);
    const SmallNetwork net = qat_network(get_default_qat_qconfig(backend));
    const OnnxModel file = to_onnx(net, x);
    std::map<std::string, int> ops = count_ops(file);
    // The input, two layers, the sum, the last layer; the mean keeps its codes.
    CHECK(ops["QuantizeLinear"] >= 5);
    CHECK(ops["DequantizeLinear"] == ops["QuantizeLinear"] + 3);
    const Agreement agrees = agreement(std::string("qat_") + backend, net, x, file);
    CHECK(agrees.literal > 45.0);
    CHECK(agrees.int8 > 45.0);
  }
}

TEST_CASE("load_onnx: layers between clipped codes run in int8") {
  const Tensor x = test::small_input(9);
  const SmallNetwork net = qat_network(get_default_qat_qconfig("x86"));
  const OnnxModel file = to_onnx(net, x);
  // Activations of x86 have the codes 0..127.
  CHECK(count_ops(file).contains("Clip"));
  const Model read = from_onnx(file);
  std::map<std::string, int> types;
  for (const nn::Module::NamedModule& entry : read.named_modules()) {
    ++types[entry.module->type_name()];
  }
  CHECK(types["QuantizedConv2d"] == 1);
  CHECK(types["QuantizedConvReLU2d"] == 1);
  for (const Node& node : read.graph().nodes) CHECK(node.op != "ToCodes");
}

TEST_CASE("to_onnx: simulated formats say what the network calculates") {
  manual_seed(3);
  nn::Sequential net{nn::Linear(64, 32), nn::ReLU(), nn::Linear(32, 32), nn::Linear(32, 7)};
  net.eval();
  const Tensor x = randn({5, 64});
  // Of the last result 7 numbers: no whole block.
  const auto simulated = [&](const char* format) {
    QConfigMapping qconfigs(qconfig_for_format(format));
    qconfigs.set_module_name("3", std::nullopt);
    return simulate_quantization(net, qconfigs, [&](const nn::Module& m) { m(x); });
  };
  for (const char* format :
       {"int8", "int4-block32", "fp8", "fp8-e5m2", "mxfp8", "mxfp4", "nvfp4"}) {
    CAPTURE(format);
    const nn::Sequential fake = simulated(format);
    const OnnxModel file = to_onnx(fake, x);
    CHECK(file.opsets.size() == 1);
    test::write_onnx_case(std::string("format_") + format, file, x, fake(x));
    const bool is_float4 = std::string_view(format).ends_with("fp4");
    CHECK((file.opsets.at("") >= 23) == is_float4);
    if (is_float4) continue;  // no dtype of Quanta's
    CHECK(test::sqnr_db(fake(x), from_onnx(file, {.literal = true})(x)) > 50.0);
  }
  CHECK_THROWS_WITH_AS(to_onnx(simulated("mxfp6"), x), doctest::Contains("elements of (3, 2)"),
                       UnsupportedError);
  // The whole network has results of 7 numbers.
  const nn::Sequential all = simulate_quantization(net, QConfigMapping(qconfig_for_format("mxfp8")),
                                                   [&](const nn::Module& m) { m(x); });
  CHECK_THROWS_WITH_AS(to_onnx(all, x), doctest::Contains("blocks of 32 that do not divide"),
                       UnsupportedError);
}

TEST_CASE("to_onnx: TensorRT does not take clipped codes") {
  const SmallNetwork net = qat_network(get_default_qat_qconfig("x86"));
  CHECK_THROWS_WITH_AS(to_onnx(net, test::small_input(1), {.target = OnnxTarget::TensorRT}),
                       doctest::Contains("fewer codes than the type has"), ArgumentError);
}

TEST_CASE("to_onnx: weights of int4 blocks are INT4 codes in the weight's sizes") {
  manual_seed(4);
  nn::Sequential net{nn::Linear(64, 32)};
  net.eval();
  const Tensor x = randn({5, 64});
  const nn::Sequential fake = simulate_quantization(
      net, QConfigMapping(qconfig_for_format("int4-block32")), [&](const nn::Module& m) { m(x); });
  const OnnxModel file = to_onnx(fake, x);
  bool found = false;
  for (const OnnxTensor& tensor : file.graph.initializers) {
    if (tensor.type != OnnxType::Int4) continue;
    found = found || tensor.value.sizes() == Dims{32, 64};
  }
  CHECK(found);
  CHECK(file.opsets.at("") == 21);
}

TEST_CASE("to_onnx: quantizers of ModelOpt become their nodes") {
  using modelopt::ConfigValue;
  using modelopt::QuantizerConfig;
  using modelopt::TensorQuantizer;
  manual_seed(5);
  nn::Sequential net{nn::Linear(64, 32), nn::ReLU(), nn::Linear(32, 32)};
  net.eval();
  const Tensor x = randn({5, 64});
  const auto config = [](std::initializer_list<std::pair<ConfigValue, ConfigValue>> fields) {
    return TensorQuantizer::with_args(QuantizerConfig::from_dict(ConfigValue::dict(fields)));
  };
  const auto fp = [](int e, int m) { return ConfigValue::tuple({e, m}); };
  const ConfigValue int4_blocks = ConfigValue::dict({{-1, 16}});
  const ConfigValue mx_blocks =
      ConfigValue::dict({{-1, 32}, {"type", "dynamic"}, {"scale_bits", fp(8, 0)}});
  const ConfigValue nv_blocks =
      ConfigValue::dict({{-1, 16}, {"type", "dynamic"}, {"scale_bits", fp(4, 3)}});
  const ConfigValue static_nv_blocks = ConfigValue::dict({{-1, 16}, {"scale_bits", fp(4, 3)}});
  struct Case {
    const char* name;
    QConfig qconfig;
    std::map<std::string, int> trt;  // operators for TensorRT
  };
  const ObserverFactory int8 = config({{"num_bits", 8}});
  const std::vector<Case> cases{
      {"modelopt_int8", {int8, config({{"num_bits", 8}, {"axis", 0}})}, {{"QuantizeLinear", 2}}},
      {"modelopt_int4_blocks", {int8, config({{"num_bits", 4}, {"block_sizes", int4_blocks}})}, {}},
      {"modelopt_fp8",
       {config({{"num_bits", fp(4, 3)}}), config({{"num_bits", fp(4, 3)}})},
       {{"TRT_FP8QuantizeLinear", 2}, {"TRT_FP8DequantizeLinear", 4}}},
      {"modelopt_mxfp8",
       {config({{"num_bits", fp(4, 3)}, {"block_sizes", mx_blocks}}),
        config({{"num_bits", fp(4, 3)}, {"block_sizes", mx_blocks}})},
       {{"TRT_MXFP8DynamicQuantize", 2}, {"TRT_MXFP8DequantizeLinear", 4}}},
      {"modelopt_nvfp4",
       {config({{"num_bits", fp(2, 1)}, {"block_sizes", nv_blocks}}),
        config({{"num_bits", fp(2, 1)}, {"block_sizes", static_nv_blocks}})},
       {{"TRT_FP4DynamicQuantize", 2}}},
  };
  for (const Case& each : cases) {
    CAPTURE(each.name);
    const nn::Sequential fake = simulate_quantization(net, QConfigMapping(each.qconfig),
                                                      [&](const nn::Module& m) { m(x); });
    const OnnxModel file = to_onnx(fake, x);
    test::write_onnx_case(each.name, file, x, fake(x));
    if (!std::string_view(each.name).ends_with("fp4")) {
      CHECK(test::sqnr_db(fake(x), from_onnx(file, {.literal = true})(x)) > 50.0);
    }
    if (each.trt.empty()) continue;
    std::map<std::string, int> ops = count_ops(to_onnx(fake, x, {.target = OnnxTarget::TensorRT}));
    for (const auto& [op, count] : each.trt) {
      CAPTURE_BINDING(op);
      CHECK(ops[op] >= count);
    }
  }
}

TEST_CASE("to_onnx: a weight of zeros in NVFP4 stays one") {
  struct Zeros : nn::Module {
    Tensor weight = Tensor::zeros({4, 32});
    Tensor amax = Tensor::zeros({4, 2});
    Tensor forward(const Tensor& x) const override {
      const Tensor rows = static_fp4(weight.reshape({8, 16}), amax.reshape({8, 1}));
      return add(x, rows.reshape({4, 32}));
    }
  };
  Zeros net;
  net.eval();
  manual_seed(6);
  const Tensor x = randn({4, 32});
  CHECK(from_onnx(to_onnx(net, x), {.literal = true})(x).equal(net(x)));
}

TEST_CASE("to_onnx: scales of columns are no scales of rows, whatever follows") {
  struct Columns : nn::Module {
    Tensor weight = randn({8, 8});
    Tensor amax = Tensor::from_values({1, 2, 3, 4, 5, 6, 7, 80}, {1, 8});
    Tensor forward(const Tensor& x) const override {
      return add(x, fake_tensor_quant(weight, amax).reshape({1, 8, 8}));
    }
  };
  manual_seed(7);
  Columns net;
  net.eval();
  const Tensor x = randn({1, 8, 8});
  test::check_close(from_onnx(to_onnx(net, x), {.literal = true})(x), net(x));
}

TEST_CASE("to_onnx: quantizers of AIMET become Q and DQ or are refused by name") {
  aimet::QuantizationSimModel<SmallNetwork> sim(
      test::fused_network(), {.scheme = aimet::QuantScheme::MinMax, .param_bitwidth = 4});
  sim.compute_encodings([](const nn::Module& m) { m(test::small_input(1)); });
  const Tensor x = test::small_input(2);
  const OnnxModel file = to_onnx(sim.model(), x);
  const Agreement agrees = agreement("aimet_w4a8", sim.model(), x, file);
  CHECK(agrees.literal > 45.0);
  CHECK(agrees.int8 > 45.0);

  const auto with_quantizer = [&](const aimet::Quantizer& quantizer) {
    nn::Sequential net{nn::Linear(16, 16)};
    net.eval();
    const ObserverFactory factory = AimetFakeQuantize::with_args("q", quantizer);
    return simulate_quantization(net, QConfigMapping(QConfig{factory, factory}),
                                 [](const nn::Module& m) {
                                   m(randn({4, 16}));
                                 });
  };
  const Tensor rows = randn({4, 16});
  for (const char* dtype :
       {"float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn"}) {
    CAPTURE(dtype);
    const nn::Sequential fake = with_quantizer(aimet::FloatQuantizeDequantize({.dtype = dtype}));
    const OnnxModel floats = to_onnx(fake, rows);
    test::write_onnx_case(std::string("aimet_") + dtype, floats, rows, fake(rows));
    if (std::string_view(dtype) == "float4_e2m1fn") continue;
    CHECK(test::sqnr_db(fake(rows), from_onnx(floats, {.literal = true})(rows)) > 50.0);
  }
  CHECK_THROWS_WITH_AS(
      to_onnx(with_quantizer(aimet::FloatQuantizeDequantize({.dtype = "float8_e4m3fnuz"})), rows),
      doctest::Contains("the format float8_e4m3fnuz, which ONNX"), UnsupportedError);
  CHECK_THROWS_WITH_AS(
      to_onnx(with_quantizer(aimet::QuantizeDequantize({.bitwidth = 20, .symmetric = true})), rows),
      doctest::Contains("at most 16 bits"), UnsupportedError);
}

}  // namespace quanta::graph
