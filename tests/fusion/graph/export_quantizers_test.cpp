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
#include "quanta/nn/container.h"
#include "quanta/observers/defaults.h"
#include "quanta/observers/learnable_fake_quantize.h"
#include "quanta/runtime/error.h"
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

}  // namespace quanta::graph
