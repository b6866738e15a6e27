#pragma once

// Private: the steps of a recorded run become a graph.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "quanta/fusion/graph/detail/parts.h"
#include "quanta/fusion/graph/trace.h"
#include "quanta/nn/rnn.h"
#include "quanta/runtime/recorder.h"

namespace quanta::graph::detail {

/// The opset of ONNX's nodes in traced graphs.
inline constexpr std::int64_t kTraceOpset = 17;

/// The value's sizes as numbers; trace declares them for each value.
Dims declared_dims(const Value& value);

class Tracer {
 public:
  Tracer(const nn::Module& model, const TraceOptions& options);

  /// Runs the network on `example`, whose tensors have memory of their own.
  void run(std::span<const Tensor> example);
  Parts take();

 private:
  /// What stands in a storage: the value of these elements.
  struct Made {
    ValueId id = kNone;
    Tensor tensor;  ///< whose memory order the storage has
    const replay::Step* step = nullptr;
  };
  using ViewKey = std::tuple<ValueId, std::int64_t, std::vector<std::int64_t>,
                             std::vector<std::int64_t>, DType>;

  void name_weights();
  void add_inputs(std::span<const Tensor> example);
  void add_step(const replay::Step& step);
  void add_operation(const replay::Step& step);
  void add_outputs(std::span<const Tensor> results);
  bool is_node(const replay::Step& step) const;

  ValueId value_of(const Tensor& x, const replay::Step& step);
  ValueId constant_of(const Tensor& x, const std::string& path);
  ValueId view_of(const Made& base, const Tensor& x, const std::string& path);
  /// A value with the sizes and dtype of `like`.
  ValueId add_value(std::string_view base, const Tensor& like);
  ValueId add_value(std::string_view base, const Dims& sizes, OnnxType type,
                    const std::optional<Codes>& codes);
  ValueId add_integers(std::string_view base, std::span<const std::int64_t> numbers);
  Node& add_node(std::string_view op, std::string_view base, std::vector<ValueId> inputs,
                 std::vector<ValueId> outputs);
  /// One of ONNX's operators on `x`, which keeps dtype and codes.
  ValueId add_onnx(std::string_view op, std::vector<ValueId> inputs, const Dims& sizes,
                   const std::string& base, OnnxAttributes attributes = {});
  ValueId reshaped(ValueId x, const Dims& sizes, const std::string& base);
  void register_result(const Tensor& result, ValueId id, const replay::Step* step);
  std::string base_name(const replay::Step& step) const;
  std::string unique_value(std::string_view base);
  std::string unique_node(std::string_view base);
  const Value& value(ValueId id) const { return graph_.values[index_of(id)]; }

  // LSTM, GRU and RNN ------------------------------------------------------------------------

  struct Direction {
    const replay::Step* steps = nullptr;
    ValueId x = kNone;
  };
  struct Layers {
    std::int64_t next = 0;  ///< layer * directions + direction
    std::vector<Direction> directions;
  };
  /// False for a step that is no recurrent layer of which ONNX has the like.
  bool add_recurrent(const replay::Step& step);
  void write_layer(const nn::RecurrentLayer& module, std::int64_t layer,
                   std::span<const Direction> directions);
  ValueId joined_state(std::span<const Direction> directions, std::size_t input,
                       const std::string& base);
  std::vector<ValueId> layer_weights(const nn::RecurrentLayer& module, std::int64_t layer,
                                     const std::string& base);

  const nn::Module& model_;
  TraceOptions options_;
  Graph graph_;
  std::vector<nn::Module::NamedChild> children_;
  std::map<std::string, const nn::Module*> modules_;
  std::map<const void*, std::pair<std::string, Tensor>> weights_;  // by address
  std::map<std::string, int> steps_of_path_;
  std::map<const Storage*, Made> made_;
  std::map<ViewKey, ValueId> views_;
  std::map<std::tuple<const void*, std::vector<std::int64_t>, std::vector<std::int64_t>, DType>,
           ValueId>
      constants_;
  std::set<const Storage*> overwritten_;  // constants that a step writes to
  std::map<std::string, Layers> recurrent_;
  std::set<std::string, std::less<>> value_names_, node_names_;
  std::vector<Tensor> kept_;  // what the maps have addresses of
};

/// Makes the batch of the graph the input's: `twice` and `thrice` are graphs of the network for
/// 2 * batch and 3 * batch samples. Throws UnsupportedError that lists what cannot follow.
void follow_batch(Graph& twice, const Graph& thrice, std::int64_t batch);

}  // namespace quanta::graph::detail
