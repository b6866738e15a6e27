#include "quanta/fusion/detail/report/matched_values.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "quanta/fusion/graph/model.h"
#include "quanta/fusion/report.h"

namespace quanta::reporting {
namespace {

using graph::Graph;
using graph::index_of;
using graph::kNone;
using graph::Node;
using graph::ValueId;

// What Quanta and ONNX Runtime append to the names of values.
constexpr std::array<std::string_view, 8> kSuffixes{"_quantized",
                                                    "_dequantized",
                                                    "_quant",
                                                    "_dequant",
                                                    "_raw",
                                                    "_QuantizeLinear_Output",
                                                    "_DequantizeLinear_Output",
                                                    "_QuantizeLinear_Input"};

using Names = std::map<std::string, ValueId, std::less<>>;

/// The float value behind a name, or kNone. Aliases may go round in a hostile file.
ValueId find_value(const Names& names, const std::map<std::string, std::string>& aliases,
                   std::string name) {
  constexpr int kMostSteps = 16;
  for (int step = 0; step < kMostSteps; ++step) {
    if (const auto found = names.find(name); found != names.end()) return found->second;
    if (const auto alias = aliases.find(name); alias != aliases.end()) {
      name = alias->second;
      continue;
    }
    const auto suffix = std::find_if(kSuffixes.begin(), kSuffixes.end(), [&](auto end) {
      return name.size() > end.size() && name.ends_with(end);
    });
    if (suffix == kSuffixes.end()) return kNone;
    name.resize(name.size() - suffix->size());
  }
  return kNone;
}

}  // namespace

bool is_same_value(const Node& node) {
  constexpr std::array<std::string_view, 8> kOps{
      "QuantizeLinear", "DequantizeLinear",    "Quantize",  "Dequantize", "QuantStub",
      "DeQuantStub",    "quantize_per_tensor", "dequantize"};
  const std::string_view op =
      node.operation != nullptr ? node.operation->name() : std::string_view(node.op);
  return std::find(kOps.begin(), kOps.end(), op) != kOps.end() ||
         std::find(kOps.begin(), kOps.end(), node.op) != kOps.end();
}

std::vector<ValueId> matched_values(
    const Graph& in_float, const Graph& quantized,
    const std::vector<std::pair<std::string, std::string>>& aliases) {
  Names names;
  for (std::size_t i = 0; i < in_float.values.size(); ++i) {
    const graph::Value& value = in_float.values[i];
    if (!value.constant.defined() && !value.name.empty()) {
      names.emplace(value.name, static_cast<ValueId>(i));
    }
  }
  const std::map<std::string, std::string> behind(aliases.begin(), aliases.end());
  std::vector<ValueId> stands(quantized.values.size(), kNone);
  for (std::size_t i = 0; i < stands.size(); ++i) {
    if (quantized.values[i].constant.defined()) continue;
    stands[i] = find_value(names, behind, quantized.values[i].name);
  }
  for (const Node& node : quantized.nodes) {
    if (!is_same_value(node) || node.inputs.empty() || node.outputs.empty()) continue;
    const ValueId from = node.inputs[0], to = node.outputs[0];
    if (from != kNone && to != kNone && stands[index_of(to)] == kNone) {
      stands[index_of(to)] = stands[index_of(from)];
    }
  }
  return stands;
}

}  // namespace quanta::reporting

namespace quanta {

std::vector<std::pair<std::string, std::string>> value_aliases(const OnnxModel& quantized) {
  const graph::Graph literal = graph::import_graph(quantized);
  std::vector<std::pair<std::string, std::string>> aliases;
  for (const graph::Node& node : literal.nodes) {
    if (node.op != "QuantizeLinear" && node.op != "DequantizeLinear") continue;
    if (node.inputs.empty() || node.outputs.empty()) continue;
    const graph::ValueId from = node.inputs[0], to = node.outputs[0];
    if (from == graph::kNone || to == graph::kNone) continue;
    aliases.emplace_back(literal.values[graph::index_of(to)].name,
                         literal.values[graph::index_of(from)].name);
  }
  return aliases;
}

}  // namespace quanta
