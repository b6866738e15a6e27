#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/passes/codes.h"
#include "quanta/fusion/graph/passes/passes.h"
#include "quanta/ops/quantize_linear.h"

namespace quanta::graph {
namespace {

constexpr std::size_t kCodes = std::tuple_size_v<ByteTable>;

/// Each element of the result by the elements at its place.
bool is_elementwise(const Node& node) {
  constexpr std::array<std::string_view, 5> kOps{"quantized::add", "quantized::add_relu",
                                                 "quantized::map_codes", "quantized::mul",
                                                 "quantized::mul_relu"};
  return node.operation != nullptr && node.outputs.size() == 1 && node.outputs[0] != kNone &&
         std::ranges::find(kOps, node.operation->name()) != kOps.end();
}

class TableMerger {
 public:
  explicit TableMerger(Graph& graph) : graph_(graph), origins_(graph.values.size()) {}

  bool run() {
    bool changed = false;
    for (Node& node : graph_.nodes) {
      if (is_elementwise(node) && merge(node)) changed = true;
    }
    if (changed) erase_dead(graph_);
    return changed;
  }

 private:
  /// Of codes that are a function of another value's codes.
  struct Origin {
    ValueId source = kNone;
    Tensor codes{};  ///< UInt8 [256]: the answer to each code of the source
  };

  /// A value that nothing is known of is a function of itself.
  Origin origin_of(ValueId id) const {
    const Origin& known = origins_[index_of(id)];
    if (known.source != kNone) return known;
    return {id, Tensor::arange(kCodes).to(DType::UInt8)};
  }

  /// Gives whether the node was replaced.
  bool merge(Node& node) {
    Origin own;
    std::vector<Tensor> answers;
    bool direct = node.inputs.size() == 1;
    for (const ValueId id : node.inputs) {
      if (id == kNone || graph_.is_constant(id)) return false;
      const std::optional<Codes>& codes = graph_.values[index_of(id)].codes;
      if (!codes || codes->dtype != DType::QUInt8) return false;
      const Origin origin = origin_of(id);
      if (own.source != kNone && own.source != origin.source) return false;
      own.source = origin.source;
      direct = direct && origin.source == id;
      answers.push_back(quantized::from_codes(origin.codes, codes->scale, codes->zero_point));
    }
    const Value& result = graph_.values[index_of(node.outputs[0])];
    if (!result.codes || result.codes->dtype != DType::QUInt8) return false;
    own.codes = quantized::to_codes(
        QTensor(quanta::run(*node.operation, std::span<const Tensor>(answers))), DType::UInt8);
    origins_[index_of(node.outputs[0])] = own;
    if (direct) return false;
    auto table = std::make_shared<ByteTable>();
    std::copy_n(static_cast<const std::uint8_t*>(own.codes.data_ptr()), kCodes, table->begin());
    node = made_node(node.name, "MapCodes",
                     quantized::map_codes_operation(std::move(table), result.codes->scale,
                                                    result.codes->zero_point),
                     {own.source}, node.outputs);
    return true;
  }

  Graph& graph_;
  std::vector<Origin> origins_;
};

}  // namespace

bool merge_tables(Graph& graph) { return TableMerger(graph).run(); }

}  // namespace quanta::graph
