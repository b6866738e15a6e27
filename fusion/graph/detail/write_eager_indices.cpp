// What is written and read at places that tensors tell.

#include "quanta/fusion/graph/detail/write_eager.h"

namespace quanta::graph::detail {
namespace {

/// What is done with values that meet.
OnnxAttributes reduction(EagerCall& call, std::string_view op) {
  const std::string reduce = call.setting("reduce", std::string("none"));
  if (reduce == "none") {
    call.need(11, op);
    return OnnxAttributes{};
  }
  call.need(reduce == "min" || reduce == "max" ? 18 : 16, op);
  return OnnxAttributes{{"reduction", reduce}};
}

bool scatter(EagerCall& call) {
  const std::int64_t axis = call.setting("dim", std::int64_t{0});
  OnnxAttributes attributes = reduction(call, "ScatterElements");
  attributes["axis"] = axis < 0 ? axis + call.rank(0) : axis;
  call.emit("ScatterElements", {call.input(0), call.input(1), call.input(2)},
            std::move(attributes));
  return true;
}

bool scatter_nd(EagerCall& call) {
  call.emit("ScatterND", {call.input(0), call.input(1), call.input(2)},
            reduction(call, "ScatterND"));
  return true;
}

bool gather_nd(EagerCall& call) {
  call.need(12, "GatherND");
  call.emit("GatherND", {call.input(0), call.input(1)},
            {{"batch_dims", call.setting("batch_dims", std::int64_t{0})}});
  return true;
}

bool one_hot(EagerCall& call) {
  call.need(11, "OneHot");
  const std::string depth = call.integers("depth", {call.setting("depth", std::int64_t{1})});
  call.emit("OneHot", {call.input(0), depth, call.input(1)},
            {{"axis", call.setting("dim", std::int64_t{-1})}});
  return true;
}

bool grid_sample(EagerCall& call) {
  const bool in_volumes = call.rank(0) == 5;
  call.need(in_volumes ? 20 : 16, "GridSample");
  std::string mode = call.setting("mode", std::string("linear"));
  // Called otherwise until 20.
  if (call.opset() < 20 && mode != "nearest") mode = mode == "linear" ? "bilinear" : "bicubic";
  call.emit("GridSample", {call.input(0), call.input(1)},
            {{"mode", mode},
             {"padding_mode", call.setting("padding", std::string("zeros"))},
             {"align_corners", std::int64_t{call.setting("align_corners", false)}}});
  return true;
}

constexpr EagerRow kRows[] = {
    {"gather_nd", gather_nd}, {"scatter", scatter},         {"scatter_nd", scatter_nd},
    {"one_hot", one_hot},     {"grid_sample", grid_sample},
};

}  // namespace

std::span<const EagerRow> eager_indices() { return kRows; }

}  // namespace quanta::graph::detail
