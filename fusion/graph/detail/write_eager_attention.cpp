// Attention as its parts: products, a softmax and a mask.

#include <cmath>
#include <limits>

#include "quanta/fusion/graph/detail/write_eager.h"
#include "quanta/ops/shape.h"

namespace quanta::graph::detail {
namespace {

/// softmax(scale * Q K^T + mask)
bool weights(EagerCall& call, double scale, bool is_causal, const std::string& y) {
  const std::int64_t rank = call.rank(1);
  Numbers order;
  for (std::int64_t d = 0; d < rank; ++d) order.push_back(d);
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  const std::string key = call.part("Transpose", {call.input(1)}, {{"perm", order}});
  const std::string products = call.part("MatMul", {call.input(0), key});
  std::string scores = call.part("Mul", {products, call.scalar("scale", scale)});
  const auto add = [&](const std::string& mask) { scores = call.part("Add", {scores, mask}); };
  constexpr double kLeftOut = -std::numeric_limits<double>::infinity();
  const bool has_mask =
      call.input_count() > 2 && call.op() == "attention_weights" ? call.has(2) : call.has(3);
  if (has_mask) {
    const std::size_t i = call.op() == "attention_weights" ? 2 : 3;
    std::string mask = call.input(i);
    if (call.type(i) == OnnxType::Bool) {
      call.need(9, "Where");
      mask =
          call.part("Where", {mask, call.scalar("taken", 0.0), call.scalar("left_out", kLeftOut)});
    }
    add(mask);
  }
  if (is_causal) {
    const std::int64_t queries =
        call.sizes(0).to_vector()[static_cast<std::size_t>(call.rank(0)) - 2];
    const std::int64_t keys = call.sizes(1).to_vector()[static_cast<std::size_t>(rank) - 2];
    add(call.weight("causal", triu(Tensor::full({queries, keys}, kLeftOut), 1)));
  }
  call.need(13, "Softmax");
  call.emit("Softmax", {scores}, {{"axis", std::int64_t{-1}}}, y);
  return true;
}

bool attention_weights(EagerCall& call) {
  return weights(call, call.setting("scale", 1.0), false, call.result());
}

bool attention(EagerCall& call) {
  if (call.setting("attention_dtype", DType::Float32) != DType::Float32) {
    return call.refuse("ONNX has no attention that quantizes queries, keys and values");
  }
  const double features =
      static_cast<double>(call.sizes(0)[static_cast<std::size_t>(call.rank(0)) - 1]);
  const double scale = call.setting("scale", 1.0 / std::sqrt(features));
  const std::string y = call.result();
  const std::string shares = call.writer.state.unique_value(call.name("weights"));
  weights(call, scale, call.setting("is_causal", false), shares);
  call.emit("MatMul", {shares, call.input(2)}, {}, y);
  return true;
}

constexpr EagerRow kRows[] = {
    {"scaled_dot_product_attention", attention},
    {"attention_weights", attention_weights},
};

}  // namespace

std::span<const EagerRow> eager_attention() { return kRows; }

}  // namespace quanta::graph::detail
