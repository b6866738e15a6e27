// Sums, means and extremes along dimensions, and what orders elements.

#include <algorithm>

#include "quanta/fusion/graph/detail/write_eager.h"

namespace quanta::graph::detail {
namespace {

/// The setting `dim`, a number or a list, counted from the front; empty: all dimensions.
Numbers axes_of(const EagerCall& call) {
  Numbers axes = call.setting("dim", Dims{}).to_vector();
  if (axes.empty()) axes = call.setting("dim", Numbers{});
  const std::int64_t one = call.setting("dim", std::int64_t{-100});
  if (axes.empty() && one != -100) axes = {one};
  for (std::int64_t& axis : axes) axis = axis < 0 ? axis + call.rank(0) : axis;
  return axes;
}

/// The argument in the type of the result: sums of integers are Int64.
std::string summed(EagerCall& call) {
  if (call.type(0) == call.result_type()) return call.input(0);
  return call.part("Cast", {call.input(0)},
                   {{"to", static_cast<std::int64_t>(call.result_type())}});
}

template <const char* kOp>
bool reduction(EagerCall& call) {
  if (call.rank(0) == 0) {
    call.emit("Identity", {summed(call)});
    return true;
  }
  call.reduce(kOp, summed(call), axes_of(call), call.setting("keepdim", false));
  return true;
}

constexpr char kSum[] = "ReduceSum";
constexpr char kMean[] = "ReduceMean";
constexpr char kMax[] = "ReduceMax";
constexpr char kMin[] = "ReduceMin";
constexpr char kProd[] = "ReduceProd";
constexpr char kArgMax[] = "ArgMax";
constexpr char kArgMin[] = "ArgMin";

template <bool kRoot>
bool variance(EagerCall& call) {
  const Numbers axes = axes_of(call);
  double count = 1.0;
  const Dims sizes = call.sizes(0);
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    const bool is_reduced =
        axes.empty() || std::ranges::find(axes, static_cast<std::int64_t>(d)) != axes.end();
    if (!is_reduced) continue;
    if (sizes[d] < 0) return call.refuse("the number of elements depends on the batch");
    count *= static_cast<double>(sizes[d]);
  }
  const double rest = count - call.setting("correction", 1.0);
  if (rest <= 0.0) return call.refuse("no degrees of freedom are left");
  const std::string x = call.input(0);
  const std::string y = call.result();
  const auto inner = [&](const char* suffix) {
    return call.writer.state.unique_value(call.name(suffix));
  };
  const std::string mean = inner("mean");
  call.reduce("ReduceMean", x, axes, true, mean);
  const std::string off = call.part("Sub", {x, mean});
  const std::string squares = call.part("Mul", {off, off});
  const std::string spread = inner("spread");
  call.reduce("ReduceMean", squares, axes, call.setting("keepdim", false), spread);
  const std::string factor = call.scalar("factor", count / rest);
  if (kRoot) {
    call.emit("Sqrt", {call.part("Mul", {spread, factor})}, {}, y);
  } else {
    call.emit("Mul", {spread, factor}, {}, y);
  }
  return true;
}

/// Along a dimension the second result is where the extreme stands.
template <const char* kOp, const char* kPosition>
bool extreme(EagerCall& call) {
  const Numbers axes = axes_of(call);
  const bool keepdim = call.setting("keepdim", false);
  if (call.wants(0)) call.reduce(kOp, call.input(0), axes, keepdim && !axes.empty());
  if (call.wants(1)) {
    call.emit(kPosition, {call.input(0)},
              {{"axis", axes.at(0)}, {"keepdims", std::int64_t{keepdim}}}, call.result(1));
  }
  return true;
}

template <const char* kOp>
bool position(EagerCall& call) {
  const Numbers axes = axes_of(call);
  std::string x = call.input(0);
  if (axes.empty()) x = call.part("Reshape", {x, call.integers("all", {-1})});
  const bool keepdim = call.setting("keepdim", false);
  if (axes.empty() && keepdim) return call.refuse("keepdim without a dimension");
  call.emit(
      kOp, {x},
      {{"axis", axes.empty() ? std::int64_t{0} : axes[0]}, {"keepdims", std::int64_t{keepdim}}});
  return true;
}

bool cumsum(EagerCall& call) {
  call.need(11, "CumSum");
  call.emit(
      "CumSum",
      {summed(call),
       call.weight("axis", Tensor::scalar(static_cast<double>(axes_of(call).at(0)), DType::Int64))},
      {{"exclusive", std::int64_t{call.setting("exclusive", false)}},
       {"reverse", std::int64_t{call.setting("reverse", false)}}});
  return true;
}

bool topk(EagerCall& call) {
  call.need(11, "TopK");
  const std::string x = call.input(0);
  const std::string count = call.integers("k", {call.setting("k", std::int64_t{1})});
  call.writer.emit(call.node.name, "TopK", {x, count}, {call.result(0), call.result(1)},
                   {{"axis", axes_of(call).at(0)},
                    {"largest", std::int64_t{call.setting("largest", true)}},
                    {"sorted", std::int64_t{call.setting("sorted", true)}}});
  return true;
}

constexpr EagerRow kRows[] = {
    {"sum", reduction<kSum>},
    {"mean", reduction<kMean>},
    {"amax", reduction<kMax>},
    {"amin", reduction<kMin>},
    {"prod", reduction<kProd>},
    {"var", variance<false>},
    {"std", variance<true>},
    {"max", extreme<kMax, kArgMax>},
    {"min", extreme<kMin, kArgMin>},
    {"argmax", position<kArgMax>},
    {"argmin", position<kArgMin>},
    {"cumsum", cumsum},
    {"topk", topk},
};

}  // namespace

std::span<const EagerRow> eager_reductions() { return kRows; }

}  // namespace quanta::graph::detail
