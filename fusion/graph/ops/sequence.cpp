// Operators of sequences: fold_constants writes others in their place (passes/sequences.h).

#include "quanta/fusion/graph/op_table.h"
#include "quanta/fusion/graph/ops/families.h"

namespace quanta::graph {
namespace {

Outputs evaluate_unresolved(const NodeCall& call) {
  call.unsupported("a sequence of tensors that loading has not resolved");
}

}  // namespace

void add_sequence_ops(OpTable& table) {
  for (const std::string_view name :
       {"ConcatFromSequence", "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase",
        "SequenceInsert", "SequenceLength", "SplitToSequence"}) {
    table.add({.name = name, .evaluate = evaluate_unresolved, .widens = false});
  }
}

}  // namespace quanta::graph
