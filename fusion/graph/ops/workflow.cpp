// Nodes that the workflow puts into graphs: domain "quanta".

#include "quanta/fusion/graph/op_table.h"
#include "quanta/fusion/graph/ops/families.h"
#include "quanta/nn/float_functional.h"
#include "quanta/ops/arithmetic.h"

namespace quanta::graph {
namespace {

Outputs evaluate_add_relu(const NodeCall& call) {
  return {add_relu(call.input(0, "A"), call.input(1, "B"))};
}

Outputs call_add_relu(const nn::Module& module, const NodeCall& call) {
  const auto* functional = dynamic_cast<const nn::FloatFunctional*>(&module);
  if (functional == nullptr) call.fail("expected a FloatFunctional, got " + module.type_name());
  return {functional->add_relu(call.input(0, "A"), call.input(1, "B"))};
}

/// Stubs before they are converted.
Outputs evaluate_stub(const NodeCall& call) { return {call.input(0, "x")}; }

}  // namespace

void add_workflow_ops(OpTable& table) {
  table.add({.name = "AddRelu",
             .evaluate = evaluate_add_relu,
             .rule = CodeRule::Binary,
             .domain = "quanta",
             .call_module = call_add_relu});
  table.add({.name = "QuantStub", .evaluate = evaluate_stub, .domain = "quanta"});
  table.add({.name = "DeQuantStub", .evaluate = evaluate_stub, .domain = "quanta"});
}

}  // namespace quanta::graph
