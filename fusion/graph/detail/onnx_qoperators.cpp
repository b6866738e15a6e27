// What is done to the finished file: QDQ becomes QOperator, and what TensorRT takes is checked.

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/detail/onnx_writer.h"
#include "quanta/runtime/check.h"

namespace quanta::graph::detail {
namespace {

constexpr std::string_view kMicrosoft = "com.microsoft";

bool is_op(const OnnxNode& node, std::string_view op) {
  return node.op_type == op && node.domain.empty();
}

/// Codes with their scale and zero point, by name.
struct CodedName {
  std::string codes, scale, zero_point;
};

/// DequantizeLinear - operator - [Relu] - QuantizeLinear becomes one operator on codes.
class QOperators {
 public:
  explicit QOperators(OnnxModel& model) : model_(model), graph_(model.graph) {}

  void run() {
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      for (const std::string& name : graph_.nodes[i].outputs) makers_[name] = i;
      for (const std::string& name : graph_.nodes[i].inputs) users_[name].push_back(i);
      for (const auto& [name, attribute] : graph_.nodes[i].attributes) {
        if (const auto* body = std::get_if<std::shared_ptr<const OnnxGraph>>(&attribute)) {
          keep_captured(**body);
        }
      }
    }
    for (const OnnxValue& output : graph_.outputs) kept_.insert(output.name);
    for (const OnnxTensor& tensor : graph_.initializers) weights_[tensor.name] = &tensor;
    replaced_.resize(graph_.nodes.size());
    gone_.resize(graph_.nodes.size(), false);
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (!gone_[i]) replace(i);
    }
    std::vector<OnnxNode> nodes;
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      for (OnnxNode& made : replaced_[i]) nodes.push_back(std::move(made));
      if (replaced_[i].empty() && !gone_[i]) nodes.push_back(std::move(graph_.nodes[i]));
    }
    graph_.nodes = std::move(nodes);
    drop_unused();
    if (microsoft_) model_.opsets[std::string(kMicrosoft)] = 1;
  }

 private:
  void keep_captured(const OnnxGraph& body) {
    for (const OnnxNode& node : body.nodes) {
      kept_.insert(node.inputs.begin(), node.inputs.end());
      for (const auto& [name, attribute] : node.attributes) {
        if (const auto* inner = std::get_if<std::shared_ptr<const OnnxGraph>>(&attribute)) {
          keep_captured(**inner);
        }
      }
    }
    for (const OnnxValue& output : body.outputs) kept_.insert(output.name);
  }

  /// What DequantizeLinear made this value of; null for another one.
  const OnnxNode* dequantized(const std::string& name) const {
    const auto maker = makers_.find(name);
    if (maker == makers_.end()) return nullptr;
    const OnnxNode& node = graph_.nodes[maker->second];
    return is_op(node, "DequantizeLinear") && node.inputs.size() == 3 ? &node : nullptr;
  }
  bool coded(const std::string& name, CodedName& found) const {
    const OnnxNode* node = dequantized(name);
    if (node == nullptr) return false;
    found = {node->inputs[0], node->inputs[1], node->inputs[2]};
    return true;
  }
  /// An activation: one scale.
  bool coded_activation(const std::string& name, CodedName& found) const {
    const OnnxNode* node = dequantized(name);
    return node != nullptr && node->attributes.empty() && coded(name, found);
  }

  /// The one node that takes a value; -1 where others do.
  std::ptrdiff_t only_user(const std::string& name) const {
    const auto users = users_.find(name);
    if (kept_.contains(name) || users == users_.end() || users->second.size() != 1) return -1;
    return static_cast<std::ptrdiff_t>(users->second[0]);
  }

  std::int64_t opset() const {
    const auto found = model_.opsets.find("");
    return found == model_.opsets.end() ? 0 : found->second;
  }

  struct End {
    CodedName y;
    std::size_t quantize = 0;
    std::ptrdiff_t relu = -1;
    bool clamps = false;  ///< the relu has to be done on the codes
  };
  /// What quantizes a result, perhaps behind a Relu.
  bool find_end(const std::string& name, bool takes_relu, End& end) const {
    std::ptrdiff_t user = only_user(name);
    if (user < 0) return false;
    if (takes_relu && is_op(graph_.nodes[static_cast<std::size_t>(user)], "Relu")) {
      end.relu = user;
      user = only_user(graph_.nodes[static_cast<std::size_t>(user)].outputs[0]);
      if (user < 0) return false;
    }
    const OnnxNode& node = graph_.nodes[static_cast<std::size_t>(user)];
    if (!is_op(node, "QuantizeLinear") || node.inputs.size() != 3 || !node.attributes.empty()) {
      return false;
    }
    end.quantize = static_cast<std::size_t>(user);
    end.y = {node.outputs[0], node.inputs[1], node.inputs[2]};
    const auto zero = weights_.find(end.y.zero_point);
    if (zero == weights_.end()) return false;
    // Codes below that of 0 do not exist where it is the lowest one.
    const double lowest = zero->second->type == OnnxType::Int8 ? -128 : 0;
    end.clamps = end.relu >= 0 && zero->second->value.item() != lowest;
    return !end.clamps || opset() >= 12;  // Max of codes
  }

  /// `make(y)` writes codes to that name. Takes the place of the node at `at`, up to its codes.
  template <typename Make>
  void put(std::size_t at, const End& end, const Make& make) {
    std::string y = end.y.codes;
    if (end.clamps) y += "_unclipped";
    OnnxNode made = make(y);
    made.name = graph_.nodes[at].name;
    microsoft_ = microsoft_ || made.domain == kMicrosoft;
    replaced_[at].push_back(std::move(made));
    if (end.clamps) {
      OnnxNode clip;
      clip.name = graph_.nodes[at].name + "_Clip";
      clip.op_type = "Max";
      clip.inputs = {y, end.y.zero_point};
      clip.outputs = {end.y.codes};
      replaced_[at].push_back(std::move(clip));
    }
    gone_[end.quantize] = true;
    if (end.relu >= 0) gone_[static_cast<std::size_t>(end.relu)] = true;
  }

  static OnnxNode node_of(std::string_view op, std::string_view domain,
                          std::vector<std::string> inputs, std::string output,
                          OnnxAttributes attributes = {}) {
    OnnxNode node;
    node.op_type = op;
    node.domain = domain;
    node.inputs = std::move(inputs);
    node.outputs = {std::move(output)};
    node.attributes = std::move(attributes);
    return node;
  }

  void replace(std::size_t at) {
    const OnnxNode& node = graph_.nodes[at];
    if (!node.domain.empty() || node.outputs.size() != 1) return;
    if (replace_moving(at)) return;
    const bool layer = node.op_type == "Conv" || node.op_type == "Gemm" ||
                       node.op_type == "MatMul" || node.op_type == "Add" || node.op_type == "Mul" ||
                       node.op_type == "Concat";
    End end;
    if (!find_end(node.outputs[0], layer, end)) return;
    if (node.op_type == "Conv") return replace_conv(at, end);
    if (node.op_type == "Gemm") return replace_gemm(at, end);
    if (node.op_type == "MatMul") return replace_matmul(at, end);
    if (node.op_type == "Add" || node.op_type == "Mul") return replace_binary(at, end);
    if (node.op_type == "Concat") return replace_concat(at, end);
    replace_unary(at, end);
  }

  void replace_conv(std::size_t at, const End& end) {
    const OnnxNode& node = graph_.nodes[at];
    CodedName x, w, b;
    if (!coded_activation(node.inputs[0], x) || !coded(node.inputs[1], w)) return;
    const bool has_bias = node.inputs.size() > 2 && !node.inputs[2].empty();
    if (has_bias && !coded_bias(node.inputs[2], b)) return;
    put(at, end, [&](const std::string& y) {
      std::vector<std::string> inputs{x.codes, x.scale,      x.zero_point, w.codes,
                                      w.scale, w.zero_point, end.y.scale,  end.y.zero_point};
      if (has_bias) inputs.push_back(b.codes);
      return node_of("QLinearConv", "", std::move(inputs), y, node.attributes);
    });
  }

  /// Int32 in units of the product of the scales, which have no zero point.
  bool coded_bias(const std::string& name, CodedName& bias) const {
    const auto maker = makers_.find(name);
    if (maker == makers_.end()) return false;
    const OnnxNode& node = graph_.nodes[maker->second];
    const auto weight = weights_.find(node.inputs[0]);
    if (!is_op(node, "DequantizeLinear") || node.inputs.size() != 2 || weight == weights_.end() ||
        weight->second->type != OnnxType::Int32) {
      return false;
    }
    bias.codes = node.inputs[0];
    return true;
  }

  void replace_gemm(std::size_t at, const End& end) {
    const OnnxNode& node = graph_.nodes[at];
    CodedName x, w, b;
    if (!coded_activation(node.inputs[0], x) || !coded(node.inputs[1], w)) return;
    const bool has_bias = node.inputs.size() > 2 && !node.inputs[2].empty();
    if (has_bias && !coded_bias(node.inputs[2], b)) return;
    if (node.attributes.contains("beta")) return;
    put(at, end, [&](const std::string& y) {
      return node_of("QGemm", kMicrosoft,
                     {x.codes, x.scale, x.zero_point, w.codes, w.scale, w.zero_point,
                      has_bias ? b.codes : "", end.y.scale, end.y.zero_point},
                     y, node.attributes);
    });
  }

  void replace_matmul(std::size_t at, const End& end) {
    const OnnxNode& node = graph_.nodes[at];
    CodedName a, b;
    if (!coded_activation(node.inputs[0], a) || !coded(node.inputs[1], b)) return;
    put(at, end, [&](const std::string& y) {
      return node_of("QLinearMatMul", "",
                     {a.codes, a.scale, a.zero_point, b.codes, b.scale, b.zero_point, end.y.scale,
                      end.y.zero_point},
                     y);
    });
  }

  void replace_binary(std::size_t at, const End& end) {
    const OnnxNode& node = graph_.nodes[at];
    CodedName a, b;
    if (!coded_activation(node.inputs[0], a) || !coded_activation(node.inputs[1], b)) return;
    put(at, end, [&](const std::string& y) {
      return node_of("QLinear" + node.op_type, kMicrosoft,
                     {a.codes, a.scale, a.zero_point, b.codes, b.scale, b.zero_point, end.y.scale,
                      end.y.zero_point},
                     y);
    });
  }

  void replace_concat(std::size_t at, const End& end) {
    const OnnxNode& node = graph_.nodes[at];
    std::vector<std::string> inputs{end.y.scale, end.y.zero_point};
    for (const std::string& name : node.inputs) {
      CodedName x;
      if (!coded_activation(name, x)) return;
      inputs.insert(inputs.end(), {x.codes, x.scale, x.zero_point});
    }
    put(at, end, [&](const std::string& y) {
      return node_of("QLinearConcat", kMicrosoft, std::move(inputs), y, node.attributes);
    });
  }

  void replace_unary(std::size_t at, const End& end) {
    constexpr std::array<std::string_view, 4> kOps{"AveragePool", "GlobalAveragePool", "LeakyRelu",
                                                   "Sigmoid"};
    const OnnxNode& node = graph_.nodes[at];
    if (std::ranges::find(kOps, std::string_view(node.op_type)) == kOps.end()) return;
    CodedName x;
    if (!coded_activation(node.inputs[0], x)) return;
    put(at, end, [&](const std::string& y) {
      return node_of("QLinear" + node.op_type, kMicrosoft,
                     {x.codes, x.scale, x.zero_point, end.y.scale, end.y.zero_point}, y,
                     node.attributes);
    });
  }

  /// What only moves elements moves codes, where all of them are the same before and behind.
  bool replace_moving(std::size_t at) {
    constexpr std::array<std::string_view, 9> kOps{"DepthToSpace", "Expand",    "Flatten",
                                                   "Reshape",      "Slice",     "SpaceToDepth",
                                                   "Squeeze",      "Transpose", "Unsqueeze"};
    const OnnxNode& node = graph_.nodes[at];
    const bool pool = is_op(node, "MaxPool") && opset() >= 12;
    if (!pool && std::ranges::find(kOps, std::string_view(node.op_type)) == kOps.end()) {
      return false;
    }
    CodedName x;
    End end;
    if (!coded_activation(node.inputs[0], x) || !find_end(node.outputs[0], false, end) ||
        end.y.scale != x.scale || end.y.zero_point != x.zero_point) {
      return false;
    }
    put(at, end, [&](const std::string& y) {
      OnnxNode moved = node;
      moved.inputs[0] = x.codes;
      moved.outputs = {y};
      return moved;
    });
    return true;
  }

  /// DequantizeLinear whose floats nobody takes any more, and weights.
  void drop_unused() {
    std::set<std::string> used = kept_;
    std::vector<OnnxNode> nodes;
    for (auto node = graph_.nodes.rbegin(); node != graph_.nodes.rend(); ++node) {
      const bool wanted = !is_op(*node, "DequantizeLinear") || used.contains(node->outputs[0]);
      if (!wanted) continue;
      used.insert(node->inputs.begin(), node->inputs.end());
      nodes.push_back(std::move(*node));
    }
    std::reverse(nodes.begin(), nodes.end());
    graph_.nodes = std::move(nodes);
    std::erase_if(graph_.initializers,
                  [&](const OnnxTensor& tensor) { return !used.contains(tensor.name); });
  }

  OnnxModel& model_;
  OnnxGraph& graph_;
  std::map<std::string, std::size_t> makers_;
  std::map<std::string, std::vector<std::size_t>> users_;
  std::map<std::string, const OnnxTensor*> weights_;
  std::set<std::string> kept_;
  std::vector<std::vector<OnnxNode>> replaced_;
  std::vector<bool> gone_;
  bool microsoft_ = false;
};

bool is_any(const Tensor& x, const auto& check) {
  const std::vector<std::int64_t> values = x.to_int64_vector();
  return std::ranges::any_of(values, check);
}

}  // namespace

void make_qoperators(OnnxModel& model) { QOperators(model).run(); }

void check_tensorrt(const OnnxModel& model) {
  std::map<std::string, const OnnxTensor*> weights;
  for (const OnnxTensor& tensor : model.graph.initializers) weights[tensor.name] = &tensor;
  std::set<std::string> quantized;
  std::vector<std::string> problems;
  const auto add = [&problems](const OnnxNode& node, const std::string& what) {
    problems.push_back(fmt::format("{} '{}': {}", node.op_type, node.name, what));
  };
  for (const OnnxNode& node : model.graph.nodes) {
    if (node.domain == "trt") continue;
    if (node.op_type == "Clip" && !node.inputs.empty() && quantized.contains(node.inputs[0])) {
      add(node, "fewer codes than the type has: a QConfig without reduce_range gives all");
      continue;
    }
    if (!node.domain.empty()) {
      add(node, "an operator of " + node.domain);
      continue;
    }
    if (node.op_type == "DynamicQuantizeLinear" || node.op_type == "MatMulInteger" ||
        node.op_type == "ConvInteger" || node.op_type.starts_with("QLinear")) {
      add(node, "no layer of TensorRT");
      continue;
    }
    const bool quantizes = node.op_type == "QuantizeLinear";
    if (quantizes) quantized.insert(node.outputs[0]);
    if ((!quantizes && node.op_type != "DequantizeLinear") || node.inputs.size() < 2) continue;
    const auto codes = weights.find(node.inputs[0]);
    const auto scale = weights.find(node.inputs[1]);
    const auto zero = node.inputs.size() > 2 ? weights.find(node.inputs[2]) : weights.end();
    const bool is_weight = !quantizes && codes != weights.end();
    OnnxType type = OnnxType::UInt8;
    if (zero != weights.end()) type = zero->second->type;
    if (is_weight) type = codes->second->type;
    if (type == OnnxType::Int32) {
      add(node, "a bias as Int32 codes: TensorRT takes Float biases");
    } else if (type != OnnxType::Int8 && type != OnnxType::Int4 && type != OnnxType::Float8E4M3FN &&
               type != OnnxType::Float4E2M1) {
      add(node, fmt::format("codes of {}, expected INT8: a symmetric QConfig gives them",
                            to_string(type)));
    }
    if (zero != weights.end() && zero->second->value.dtype() != DType::Float8E4M3FN &&
        is_any(zero->second->value, [](std::int64_t code) { return code != 0; })) {
      add(node, "a zero point that is not 0");
    }
    if (!is_weight && scale != weights.end() && scale->second->value.numel() != 1) {
      add(node, "one scale for each channel of an activation");
    }
  }
  QUANTA_CHECK(problems.empty(), "to_onnx: target: TensorRT does not take\n  {}",
               fmt::join(problems, "\n  "));
}

}  // namespace quanta::graph::detail
