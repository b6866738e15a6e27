// The files that docs/tutorial.md begins with, as Python would have saved them.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "net.h"
#include "quanta/runtime/onnx_file.h"
#include "quanta/runtime/random.h"

namespace {

using quanta::OnnxDim;
using quanta::OnnxNode;
using quanta::OnnxType;
using Ints = std::vector<std::int64_t>;

// What torch.onnx.export writes of a Net without its stubs.
quanta::OnnxModel exported(const Net& net) {
  quanta::OnnxModel model;
  model.ir_version = 8;
  model.producer_name = "pytorch";
  model.opsets[""] = 17;
  quanta::OnnxGraph& graph = model.graph;
  graph.name = "main_graph";
  const OnnxDim batch{.size = std::nullopt, .name = "batch"};
  graph.inputs.push_back({.name = "x",
                          .type = OnnxType::Float,
                          .sizes = std::vector<OnnxDim>{batch, {1, ""}, {28, ""}, {28, ""}}});
  graph.outputs.push_back(
      {.name = "y", .type = OnnxType::Float, .sizes = std::vector<OnnxDim>{batch, {10, ""}}});
  const auto weight = [&](const std::string& name, const Tensor& value) {
    graph.initializers.push_back({.name = name, .type = OnnxType::Float, .value = value});
    return name;
  };
  const auto node = [&](const std::string& type, std::vector<std::string> inputs,
                        const std::string& output, quanta::OnnxAttributes attributes = {}) {
    graph.nodes.push_back(OnnxNode{.name = type,
                                   .op_type = type,
                                   .domain = {},
                                   .overload = {},
                                   .inputs = std::move(inputs),
                                   .outputs = {output},
                                   .attributes = std::move(attributes),
                                   .references = {}});
  };
  node("Conv", {"x", weight("conv1.weight", net.conv1->weight)}, "c",
       {{"kernel_shape", Ints{3, 3}}, {"pads", Ints{1, 1, 1, 1}}});
  node("BatchNormalization",
       {"c", weight("bn1.weight", net.bn1->weight), weight("bn1.bias", net.bn1->bias),
        weight("bn1.running_mean", net.bn1->running_mean),
        weight("bn1.running_var", net.bn1->running_var)},
       "b");
  node("Relu", {"b"}, "r");
  node("GlobalAveragePool", {"r"}, "p");
  node("Flatten", {"p"}, "f");
  node("Gemm", {"f", weight("fc.weight", net.fc->weight), weight("fc.bias", net.fc->bias)}, "y",
       {{"transB", std::int64_t{1}}});
  return model;
}

void save(const std::string& path, const Tensor& x) {
  quanta::StateDict state;
  state.set("x", x);
  quanta::write_safetensors(state, path);
}

}  // namespace

int main() {
  quanta::manual_seed(1);
  Net net;
  quanta::Generator generator(2);
  const Tensor images = quanta::randn({96, 1, 28, 28}, generator);
  static_cast<void>(net(images));  // batch norms see data
  net.eval();
  quanta::write_safetensors(net.state_dict(), "net.safetensors");
  save("calibration.safetensors", images);
  save("image.safetensors", images.narrow(0, 0, 1).clone());
  quanta::write_onnx(exported(net), "net.onnx");
}
