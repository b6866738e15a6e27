// A graph for any number of samples, out of the graphs for two numbers.

#include <algorithm>
#include <set>
#include <utility>

#include "quanta/fusion/graph/detail/tracer.h"
#include "quanta/fusion/graph/op_table.h"
#include "quanta/runtime/check.h"

namespace quanta::graph::detail {
namespace {

using Numbers = std::vector<std::int64_t>;

class BatchFollower {
 public:
  BatchFollower(Graph& twice, const Graph& thrice, std::int64_t batch)
      : graph_(twice), other_(thrice), two_(2 * batch), three_(3 * batch) {}

  void run() {
    if (graph_.nodes.size() != other_.nodes.size() ||
        graph_.values.size() != other_.values.size()) {
      throw UnsupportedError(fmt::format(
          "trace: dynamic_batch: expected the same operations for every batch, got {} for {} "
          "samples and {} for {}",
          graph_.nodes.size(), two_, other_.nodes.size(), three_));
    }
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) compare_nodes(n);
    for (std::size_t v = 0; v < graph_.values.size(); ++v) compare_sizes(v);
    std::vector<Node> nodes;
    const std::vector<Node> before = std::exchange(graph_.nodes, {});
    for (const Node& node : before) {
      Node changed = node;
      follow_inputs(changed, nodes);
      nodes.push_back(std::move(changed));
    }
    graph_.nodes = std::move(front_);
    graph_.nodes.insert(graph_.nodes.end(), nodes.begin(), nodes.end());
    if (!refused_.empty()) {
      throw UnsupportedError(
          fmt::format("trace: dynamic_batch: what depends on the number of samples:\n  {}",
                      fmt::join(refused_, "\n  ")));
    }
    erase_dead(graph_);
  }

 private:
  void refuse(const Node& node, const std::string& what) {
    const std::string text = fmt::format("{} '{}': {}", node.op, node.name, what);
    if (std::ranges::find(refused_, text) == refused_.end()) refused_.push_back(text);
  }

  void compare_nodes(std::size_t n) {
    const Node& a = graph_.nodes[n];
    const Node& b = other_.nodes[n];
    if (a.op != b.op || a.inputs != b.inputs || a.outputs != b.outputs) {
      return refuse(a, "which operations run");
    }
    if (a.operation == nullptr || b.operation == nullptr) return;
    for (const AttributeInfo& info : a.operation->attributes()) {
      const Attribute own = info.get(*a.operation);
      const bool is_object =
          std::holds_alternative<Tensor>(own) || std::holds_alternative<OpaqueAttribute>(own);
      if (!is_object && !same_attribute(own, info.get(*b.operation))) {
        refuse(a, fmt::format("the setting {}", info.name));
      }
    }
  }

  /// Declared sizes that differ are no numbers.
  void compare_sizes(std::size_t v) {
    Value& value = graph_.values[v];
    const Value& other = other_.values[v];
    if (!value.sizes || !other.sizes || value.sizes->size() != other.sizes->size()) return;
    for (std::size_t d = 0; d < value.sizes->size(); ++d) {
      OnnxDim& dim = (*value.sizes)[d];
      const std::optional<std::int64_t> size = (*other.sizes)[d].size;
      if (dim.size == size) continue;
      const bool is_batch = dim.size == two_ && size == three_;
      dim = {.size = {}, .name = is_batch ? "batch" : ""};
    }
  }

  void follow_inputs(Node& node, std::vector<Node>& nodes) {
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId id = node.inputs[i];
      if (id == kNone) continue;
      const Tensor a = graph_.values[index_of(id)].constant;
      if (!a.defined() || index_of(id) >= other_.values.size()) continue;
      const Tensor& b = other_.values[index_of(id)].constant;
      if (!b.defined() || (a.sizes() == b.sizes() && a.equal(b))) continue;
      const std::string name = graph_.values[index_of(id)].name;
      if (i == 1 && node.op == "Reshape") {
        if (const std::optional<Numbers> sizes = free_sizes(a, b)) {
          node.inputs[i] = graph_.add_constant(unique(name + "_any"), Tensor::from_int64(*sizes));
        } else {
          refuse(node,
                 fmt::format("several of the sizes {}", fmt::join(a.to_int64_vector(), ", ")));
        }
      } else if (i == 1 && node.op == "Expand") {
        const ValueId sizes = expanded_sizes(a.to_int64_vector(), b.to_int64_vector(), name, nodes);
        if (sizes == kNone) {
          refuse(node, fmt::format("the sizes {}", fmt::join(a.to_int64_vector(), ", ")));
        } else {
          node.inputs[i] = sizes;
        }
      } else if (const ValueId grown = expanded_constant(id, b, nodes); grown != kNone) {
        node.inputs[i] = grown;
      } else {
        refuse(node, fmt::format("the constant '{}'", name));
      }
    }
  }

  /// Sizes with -1 for the one that grows with the batch.
  std::optional<Numbers> free_sizes(const Tensor& a, const Tensor& b) const {
    Numbers sizes = a.to_int64_vector();
    const Numbers other = b.to_int64_vector();
    if (sizes.size() != other.size()) return {};
    bool found = false;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] == other[i]) continue;
      if (found || sizes[i] * three_ != other[i] * two_) return {};
      sizes[i] = -1;
      found = true;
    }
    return sizes;
  }

  std::string unique(const std::string& base) const { return graph_.unique_value_name(base); }

  /// One more node of ONNX's; gives its result.
  ValueId add(std::vector<Node>& nodes, const std::string& op, const std::string& base,
              std::vector<ValueId> inputs, OnnxType type, OnnxAttributes attributes = {}) {
    const ValueId made = graph_.add_value({.name = unique(base), .type = type});
    Node node{.name = graph_.values[index_of(made)].name, .op = op, .opset = kTraceOpset};
    node.row = op_table().find("", op, kTraceOpset);
    node.inputs = std::move(inputs);
    node.outputs = {made};
    node.attributes = std::move(attributes);
    nodes.push_back(std::move(node));
    return made;
  }

  ValueId integers(const std::string& base, const Numbers& numbers) {
    return graph_.add_constant(unique(base), Tensor::from_int64(numbers));
  }

  /// [number of samples]
  ValueId batch() {
    if (batch_ == kNone) {
      const ValueId sizes =
          add(front_, "Shape", "batch_sizes", {graph_.inputs[0]}, OnnxType::Int64);
      const ValueId begin = integers("batch_begin", {0});
      const ValueId end = integers("batch_end", {1});
      batch_ = add(front_, "Slice", "batch", {sizes, begin, end}, OnnxType::Int64);
    }
    return batch_;
  }

  /// The sizes with the number of samples where it stands; kNone where something else differs.
  ValueId expanded_sizes(const Numbers& a, const Numbers& b, const std::string& name,
                         std::vector<Node>& nodes) {
    if (a.size() != b.size()) return kNone;
    std::vector<ValueId> parts;
    Numbers plain;
    const auto flush = [&] {
      if (!plain.empty()) parts.push_back(integers(name + "_part", plain));
      plain.clear();
    };
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (a[i] == b[i]) {
        plain.push_back(a[i]);
      } else if (a[i] == two_ && b[i] == three_) {
        flush();
        parts.push_back(batch());
      } else {
        return kNone;
      }
    }
    flush();
    return add(nodes, "Concat", name + "_any", parts, OnnxType::Int64, {{"axis", std::int64_t{0}}});
  }

  /// A constant with the same elements for each sample, for any number of them.
  ValueId expanded_constant(ValueId id, const Tensor& other, std::vector<Node>& nodes) {
    if (const auto known = grown_.find(id); known != grown_.end()) return known->second;
    const Tensor own = graph_.values[index_of(id)].constant;
    if (own.dim() != other.dim() || own.is_quantized()) return kNone;
    Tensor row = own;
    for (std::int64_t d = 0; d < own.dim(); ++d) {
      if (own.size(d) == other.size(d)) continue;
      row = row.narrow(d, 0, 1);
    }
    if (!row.expand(own.sizes()).equal(own) || !row.expand(other.sizes()).equal(other))
      return kNone;
    const std::string name = graph_.values[index_of(id)].name;
    const ValueId sizes =
        expanded_sizes(own.sizes().to_vector(), other.sizes().to_vector(), name, nodes);
    if (sizes == kNone) return kNone;
    const ValueId one = graph_.add_constant(unique(name + "_row"), row.contiguous());
    const ValueId made =
        add(nodes, "Expand", name + "_rows", {one, sizes}, onnx_type_of(own.dtype()));
    grown_[id] = made;
    return made;
  }

  Graph& graph_;
  const Graph& other_;
  std::int64_t two_, three_;
  std::vector<Node> front_;
  ValueId batch_ = kNone;
  std::map<ValueId, ValueId> grown_;
  std::vector<std::string> refused_;
};

}  // namespace

void follow_batch(Graph& twice, const Graph& thrice, std::int64_t batch) {
  BatchFollower(twice, thrice, batch).run();
}

}  // namespace quanta::graph::detail
