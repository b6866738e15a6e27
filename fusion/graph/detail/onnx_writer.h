#pragma once

// Private: graphs become ONNX's nodes, one after the other.

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/detail/coded_weight.h"
#include "quanta/fusion/graph/detail/onnx_metadata.h"
#include "quanta/fusion/graph/detail/qdq_nodes.h"
#include "quanta/fusion/graph/export_onnx.h"
#include "quanta/fusion/graph/graph.h"

namespace quanta {
class WeightOnlyPackedParams;
}
namespace quanta::nn::weight_only {
class Linear;
}
namespace quanta::nn::quantized::dynamic {
class Linear;
}

namespace quanta::graph::detail {

/// What all graphs of a file share.
struct ExportState {
  ExportOptions options;
  /// Of ai.onnx: what plain nodes are written for.
  std::int64_t opset = 0;
  /// The lowest that has what was written.
  std::int64_t needed = 0;
  std::string needed_for;
  std::map<std::string, std::int64_t, std::less<>> domains;
  std::set<std::string, std::less<>> value_names;
  std::set<std::string, std::less<>> node_names;
  /// "Op 'node': why"
  std::vector<std::string> refused;
  bool torch_arithmetic = false, onnx_arithmetic = false;
  /// For the metadata.
  OnnxMetadata notes;

  void need(std::int64_t at_least, std::string_view what);
  std::string unique_value(std::string_view base);
  std::string unique_node(std::string_view base);
};

/// A linear layer that quantizes its input in each call, by the names of nodes and values.
struct DynamicCall {
  std::string name;   ///< of the product's node
  std::string layer;  ///< before ".weight" and ".bias"
  std::string x, y;
  Tensor weight;  ///< QInt8 or Float16 [N, K]
  Tensor bias;
  LayerNote note;
};

/// Writes one graph; those within its nodes have their own.
class GraphWriter final : public NodeSink {
 public:
  GraphWriter(const Graph& source, ExportState& shared, bool is_top = false)
      : graph(source), state(shared), is_top_(is_top) {}

  /// All nodes and the outputs. `modules` as run_graph takes it. Inputs from `formal` on stand for
  /// values around the graph, whose names `outer` has.
  OnnxGraph run(std::span<const nn::Module* const> modules, const std::vector<std::string>& outer,
                std::size_t formal);

  const Value& value(ValueId id) const { return graph.values[static_cast<std::size_t>(id)]; }
  /// Of a value that nodes before have made of codes; null for others.
  const Codes* codes(ValueId id) const;
  /// The name under which a value's floats (or integers) stand; "" for kNone. Writes what makes them
  /// of codes or of a constant.
  std::string input(ValueId id);
  /// The name under which a node has to write what it makes; "" for kNone.
  std::string output(ValueId id);
  /// The same for floats that `quantize` makes codes of.
  std::string raw_output(ValueId id);
  void quantize(ValueId id, const std::string& raw, const Codes& codes);
  /// The name for codes that a node makes itself.
  std::string coded_output(ValueId id, const Codes& codes);
  /// The name of a value's codes; "" where it has none.
  std::string coded_input(ValueId id);

  /// Another weight of the file; gives its name.
  std::string weight(std::string_view base, const Tensor& tensor,
                     OnnxType type = OnnxType::Undefined) override;
  /// A constant in another form, by its own name where nobody else takes it.
  std::string constant_as(ValueId id, const Tensor& form);
  /// A weight of codes and what makes floats of them; gives the name of those.
  std::string coded_weight(std::string_view base, const CodedWeight& coded) {
    return append_coded(*this, base, coded);
  }
  /// Scale and zero point of activations as weights.
  QdqParameters parameters(std::string_view base, const Codes& codes);
  void emit(std::string_view name, std::string_view op, std::vector<std::string> inputs,
            std::vector<std::string> outputs, OnnxAttributes attributes = {},
            std::string_view domain = "") override;
  std::string unique_value(std::string_view base) override { return state.unique_value(base); }
  void need(std::int64_t opset, std::string_view what) override { state.need(opset, what); }
  void refuse(const Node& node, const std::string& why);
  /// The node that makes this value has been written with the one before it.
  void set_written(ValueId result) { made_before_.insert(result); }
  /// Says in the metadata that the node that was written last has the weight of `module`.
  /// `added_bias`: the Add behind it belongs to it.
  void note_layer(const nn::Module& module, bool added_bias);
  void note(LayerNote about, bool added_bias);
  static LayerNote note_of(const nn::Module& module);

  // Nodes by what they run.
  void write(const Node& node, const nn::Module* module);
  /// As it stands in the file; `replaced` has other names for some of its inputs. The first result
  /// becomes codes where `made` says so, or where the input's codes go through.
  void write_plain(const Node& node, const std::map<std::size_t, std::string>& replaced = {},
                   const std::optional<Codes>& made = {});
  void write_module(const Node& node, const nn::Module& module);
  void write_operation(const Node& node);
  /// A node of a traced network; false where there is no form, with the reason in `why` if it is a
  /// matter of settings.
  bool write_eager(const Node& node, std::string& why);
  void write_workflow(const Node& node);
  void write_weight_only(const Node& node, const nn::weight_only::Linear& linear);
  void write_weight_only(const Node& node, const std::string& layer,
                         const WeightOnlyPackedParams& packed, const Tensor& added,
                         const LayerNote& about);
  void write_dynamic(const Node& node, const nn::quantized::dynamic::Linear& linear);
  void write_dynamic(const DynamicCall& call);
  /// False for a module that is no dynamic LSTM or GRU.
  bool write_recurrent(const Node& node, const nn::Module& module);

  const Graph& graph;
  ExportState& state;
  OnnxGraph out;

 private:
  struct Written {
    std::string base;   ///< a name for it
    std::string name;   ///< of the floats, once somebody has asked for them
    std::string codes;  ///< of the codes
    std::optional<Codes> qparams;
  };
  bool is_graph_output(ValueId id) const { return outputs_.contains(id); }
  void check_meaning(const Node& node);
  /// Softmax and its like until opset 12, in a newer file: they work on rows of all dimensions from
  /// `axis` on.
  bool works_on_rows(const Node& node) const;
  void write_rows(const Node& node, const std::string& x, const std::string& y,
                  OnnxAttributes attributes);
  /// An activation that the opset does not have yet, written as what it is made of.
  bool has_parts(const Node& node) const;
  void write_parts(const Node& node, const std::string& x, const std::string& y);
  /// The attribute that is an input in the opset that is written; null for none.
  const char* moved_input(const Node& node) const;
  void follow_opset(const Node& node, std::vector<std::string>& inputs, OnnxAttributes& attributes);
  std::optional<std::vector<OnnxDim>> declared_sizes(ValueId id) const;
  void write_outputs();

  bool is_top_;
  std::set<ValueId> outputs_;
  std::set<ValueId> made_before_;
  std::map<ValueId, Written> written_;
  std::map<std::string, QdqParameters> parameters_;
};

/// The bias of an int8 layer whose input is `x`: floats, or codes in units of the input's scale times
/// the weight's, as the options say.
std::string write_bias(GraphWriter& writer, const std::string& base, ValueId x, const Tensor& bias,
                       const QTensor& weight);

/// The codes of quantized activations as the file stores them: Int8 around 0 for TensorRT where
/// that is exact.
Codes stored_codes(const ExportOptions& options, const Codes& codes);

/// Whether a node that runs its row on codes gives codes of the same parameters.
bool passes_codes(const Node& node);

/// Layers of int8 between DequantizeLinear and QuantizeLinear become QLinearConv and the like.
void make_qoperators(OnnxModel& model);
/// Throws ArgumentError that lists what TensorRT does not take.
void check_tensorrt(const OnnxModel& model);

}  // namespace quanta::graph::detail
