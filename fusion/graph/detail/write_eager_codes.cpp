// Where codes begin and end.

#include "quanta/fusion/graph/detail/write_eager.h"

namespace quanta::graph::detail {
namespace {

/// The result is quantized as every result of codes is.
bool quantize(EagerCall& call) {
  if (!call.result_codes()) return call.refuse("a scale for each channel of activations");
  const ValueId id = call.node.outputs[0];
  call.writer.quantize(id, call.input(0), *call.result_codes());
  call.wrote(0);
  call.writer.state.torch_arithmetic = true;
  return true;
}

bool dequantize(EagerCall& call) {
  const ValueId id = call.node.inputs[0];
  const Codes* codes = call.writer.codes(id);
  if (codes == nullptr) {
    call.emit("Identity", {call.input(0)});
    return true;
  }
  append_dequantize(call.writer, call.node.name, call.writer.coded_input(id),
                    call.writer.parameters(call.value(0).name, *codes), call.result());
  return true;
}

/// The codes themselves.
bool int_repr(EagerCall& call) {
  const ValueId id = call.node.inputs[0];
  const Codes* codes = call.writer.codes(id);
  if (codes == nullptr) return call.refuse("its input is not made of codes");
  if (stored_codes(call.writer.state.options, *codes) != *codes) {
    return call.refuse("the target has other codes");
  }
  call.emit("Identity", {call.writer.coded_input(id)});
  return true;
}

constexpr EagerRow kRows[] = {
    {"quantize_per_tensor", quantize},
    {"dequantize", dequantize},
    {"int_repr", int_repr},
};

}  // namespace

std::span<const EagerRow> eager_codes() { return kRows; }

}  // namespace quanta::graph::detail
