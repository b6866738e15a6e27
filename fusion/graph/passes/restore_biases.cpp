#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "quanta/fusion/graph/detail/onnx_metadata.h"
#include "quanta/fusion/graph/passes/codes.h"
#include "quanta/fusion/graph/passes/passes.h"

namespace quanta::graph {
namespace {

class BiasRestorer {
 public:
  BiasRestorer(Graph& graph, const detail::OnnxMetadata& metadata)
      : graph_(graph), metadata_(metadata) {}

  bool run() {
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (!is_plain(node)) continue;
      if (is_op(node, "DequantizeLinear") && !node.outputs.empty()) dequantized(node);
      if (node.op == "QLinearConv" && node.domain.empty()) of_codes(n, 8, 1.0);
      if (node.op == "QGemm" && node.domain == "com.microsoft") {
        of_codes(n, 6, number_attribute(node, "alpha", 1.0));
      }
    }
    return changed_ && (erase_dead(graph_) || changed_);
  }

 private:
  const Tensor* constant(const Node& node, std::size_t i) const {
    if (i >= node.inputs.size() || !graph_.is_constant(node.inputs[i])) return nullptr;
    return &graph_.values[index_of(node.inputs[i])].constant;
  }

  /// The floats that became `codes`, in these units; an id of a new constant. kNone where nothing
  /// is known of them, or where the codes are others.
  ValueId floats(ValueId codes, const std::vector<float>& units) {
    const Value& value = graph_.values[index_of(codes)];
    const std::vector<float> bias = detail::find_bias(metadata_, value.name);
    const auto count = static_cast<std::size_t>(value.constant.numel());
    if (bias.empty() || bias.size() != count || value.constant.dtype() != DType::Int32 ||
        (units.size() != 1 && units.size() != count)) {
      return kNone;
    }
    constexpr double kLow = std::numeric_limits<std::int32_t>::min();
    constexpr double kHigh = std::numeric_limits<std::int32_t>::max();
    const std::vector<std::int64_t> stored = value.constant.to_int64_vector();
    for (std::size_t i = 0; i < count; ++i) {
      const double code = static_cast<double>(bias[i]) / units[units.size() > 1 ? i : 0];
      // Units are rounded products: large codes may be off by more than the rounding.
      const double allowed = 0.5 + 1e-6 * std::fabs(code);
      const double cut = std::min(std::max(code, kLow), kHigh);
      if (!(std::fabs(cut - static_cast<double>(stored[i])) <= allowed)) return kNone;
    }
    const std::string name = graph_.unique_value_name(value.name + "_floats");
    return graph_.add_constant(name, Tensor::from_values(bias, value.constant.sizes()));
  }

  void dequantized(const Node& node) {
    const Tensor* codes = constant(node, 0);
    const Tensor* scale = constant(node, 1);
    const ValueId output = node.outputs[0];
    if (codes == nullptr || scale == nullptr || codes->dtype() != DType::Int32 ||
        graph_.is_output(output)) {
      return;
    }
    const ValueId bias = floats(node.inputs[0], scale->to_float_vector());
    if (bias == kNone) return;
    graph_.replace_all_uses(output, bias);
    changed_ = true;
  }

  /// Of an operator on codes, which expand_qoperators will take apart.
  void of_codes(std::size_t n, std::size_t at, double factor) {
    const Node& node = graph_.nodes[n];
    for (std::size_t i = 1; i < 8; ++i) {
      if (i != at && constant(node, i) == nullptr) return;
    }
    if (constant(node, at) == nullptr) return;
    std::vector<float> units = constant(node, 4)->to_float_vector();
    const auto x_scale = static_cast<float>(constant(node, 1)->item() * factor);
    for (float& unit : units) unit *= x_scale;
    const ValueId bias = floats(node.inputs[at], units);
    if (bias == kNone) return;
    graph_.nodes[n].inputs[at] = bias;
    changed_ = true;
  }

  Graph& graph_;
  const detail::OnnxMetadata& metadata_;
  bool changed_ = false;
};

}  // namespace

bool restore_biases(Graph& graph, const std::map<std::string, std::string>& metadata) {
  return BiasRestorer(graph, metadata).run();
}

}  // namespace quanta::graph
