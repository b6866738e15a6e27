// Other element types.

#include "quanta/fusion/graph/ops/families.h"
#include "quanta/fusion/graph/ops/math_support.h"
#include "quanta/ops/elementwise.h"
#include "quanta/runtime/check.h"

namespace quanta::graph {
namespace {

std::int64_t bits_of(OnnxType type) {
  switch (type) {
    case OnnxType::Int4:
    case OnnxType::UInt4:
      return 4;
    case OnnxType::Int2:
    case OnnxType::UInt2:
      return 2;
    default:
      return 8;
  }
}

Outputs cast_to(const NodeCall& call, OnnxType type) {
  const auto dtype = dtype_of(type);
  if (!dtype) {
    call.unsupported(fmt::format("to: a type that Quanta has tensors of, got {}", to_string(type)));
  }
  return {cast(call.input(0, "input"), *dtype,
               {.saturate = call.flag("saturate", true), .bits = bits_of(type)})};
}

Outputs evaluate_cast(const NodeCall& call) {
  return cast_to(call, static_cast<OnnxType>(call.integer("to")));
}
Outputs evaluate_cast_like(const NodeCall& call) {
  call.input(1, "target_type");
  return cast_to(call, call.input_type(1));
}

}  // namespace

void add_cast_ops(OpTable& table) {
  table.add({.name = "Cast", .evaluate = evaluate_cast, .since = 6, .widens = false});
  table.add({.name = "CastLike", .evaluate = evaluate_cast_like, .widens = false});
}

}  // namespace quanta::graph
