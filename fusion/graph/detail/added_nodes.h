#pragma once

// Private: nodes and weights that a file's graph gets beside its own.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/fusion/graph/detail/qdq_nodes.h"
#include "quanta/runtime/onnx_file.h"

namespace quanta::graph::detail {

/// Names that the graph does not have yet, and what was made under them. The graph stays as it is.
class AddedNodes : public NodeSink {
 public:
  explicit AddedNodes(const OnnxGraph& graph);

  std::string unique_value(std::string_view base) override;
  std::string weight(std::string_view base, const Tensor& tensor,
                     OnnxType type = OnnxType::Undefined) override;
  void emit(std::string_view name, std::string_view op, std::vector<std::string> inputs,
            std::vector<std::string> outputs, OnnxAttributes attributes = {},
            std::string_view domain = "") override;
  void need(std::int64_t opset, std::string_view what) override;

  std::int64_t needed_opset() const noexcept { return needed_; }
  /// What needs it.
  const std::string& needed_for() const noexcept { return needed_for_; }
  /// Since the last call, in order.
  std::vector<OnnxNode> take_nodes();
  std::vector<OnnxTensor> take_weights();

 private:
  std::set<std::string, std::less<>> value_names_, node_names_;
  std::vector<OnnxNode> nodes_;
  std::vector<OnnxTensor> weights_;
  std::int64_t needed_ = 0;
  std::string needed_for_;
};

/// The value of this name as inputs, values or outputs of the graph declare it; null: they do not.
const OnnxValue* find_declared(const OnnxGraph& graph, const std::string& name);
/// FLOAT, FLOAT16, BFLOAT16 and DOUBLE: what quantizers take.
bool is_quantizable(OnnxType type);
/// Of ONNX's own operators, whose domain has two names.
std::optional<std::int64_t> find_opset(const OnnxModel& model);

}  // namespace quanta::graph::detail
