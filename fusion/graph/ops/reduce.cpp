// Reductions, running sums, and picking the largest.

#include <algorithm>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/ops/families.h"
#include "quanta/fusion/graph/ops/math_support.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/compare.h"
#include "quanta/ops/elementwise.h"
#include "quanta/ops/reduce.h"
#include "quanta/ops/shape.h"
#include "quanta/ops/sort.h"
#include "quanta/runtime/check.h"

namespace quanta::graph {
namespace {

/// What is reduced: some dimensions, all (`dims` is empty), or none at all, when sums of one
/// element each are taken.
struct Reduction {
  Tensor x;
  Dims dims;
  bool none = false;
  ReduceOptions options;
};

// `axes` is an attribute before opset 18 (of ReduceSum before 13), then an input.
Reduction reduction_of(const NodeCall& call) {
  Reduction reduction{call.input(0, "data"), {}, false, {.keepdim = call.flag("keepdims", true)}};
  const bool by_input = call.opset() >= (call.op() == "ReduceSum" ? 13 : 18);
  std::vector<std::int64_t> axes;
  if (!by_input) {
    axes = call.integer_list("axes", {});
  } else if (call.has(1)) {
    axes = call.integers(1, "axes");
  }
  reduction.none = by_input && axes.empty() && call.flag("noop_with_empty_axes", false);
  if (axes.size() > Dims::kMaxDims) {
    call.fail(fmt::format("axes: expected at most {}, got {}", Dims::kMaxDims, axes.size()));
  }
  for (const std::int64_t axis : axes) reduction.dims.push_back(axis);
  return reduction;
}

// The dtype stays; integers are summed in 64 bits and wrap around.
Tensor sum_over(const Tensor& x, const Reduction& reduction) {
  if (reduction.none) return x;
  return cast(sum(x, reduction.dims, reduction.options), x.dtype());
}

// What is summed, and what becomes of the sums: evaluated as Float64 for integers where a root or
// logarithm is taken.
template <typename Before, typename After>
Outputs reduce_floats(const NodeCall& call, Before&& before, After&& after) {
  const Reduction reduction = reduction_of(call);
  return {as_floats(reduction.x,
                    [&](const Tensor& x) { return after(sum_over(before(x), reduction)); })};
}

Tensor square(const Tensor& x) { return mul(x, x); }
Tensor same(const Tensor& x) { return x; }

Outputs reduce_sum(const NodeCall& call) {
  const Reduction reduction = reduction_of(call);
  return {sum_over(reduction.x, reduction)};
}
Outputs reduce_l1(const NodeCall& call) {
  const Reduction reduction = reduction_of(call);
  return {sum_over(abs(reduction.x), reduction)};
}
Outputs reduce_sum_square(const NodeCall& call) {
  const Reduction reduction = reduction_of(call);
  return {sum_over(square(reduction.x), reduction)};
}
Outputs reduce_l2(const NodeCall& call) { return reduce_floats(call, square, sqrt); }
Outputs reduce_log_sum(const NodeCall& call) { return reduce_floats(call, same, log); }

// log(sum(exp(x))) of what is left after the largest, which no exponential of can overflow.
Outputs reduce_log_sum_exp(const NodeCall& call) {
  const Reduction reduction = reduction_of(call);
  return {as_floats(reduction.x, [&](const Tensor& x) {
    if (reduction.none) return x;
    const Tensor highest = amax(x, reduction.dims, {.keepdim = true});
    // Infinity less infinity is no number; an infinite sum is found without it.
    const Tensor largest = where(isinf(highest), Tensor::zeros({}, x.dtype()), highest);
    const Tensor logs = log(sum(exp(sub(x, largest)), reduction.dims, reduction.options));
    return add(logs, largest.reshape(logs.sizes()));
  })};
}

Outputs reduce_mean(const NodeCall& call) {
  const Reduction reduction = reduction_of(call);
  const Tensor& x = reduction.x;
  if (reduction.none) return {x};
  if (is_float(x)) return {mean(x, reduction.dims, reduction.options)};
  const Tensor sums = sum(x, reduction.dims, reduction.options);
  const std::int64_t count = sums.numel() == 0 ? 1 : x.numel() / sums.numel();
  const Tensor divisor = Tensor::full({}, static_cast<double>(count), DType::Int64);
  return {cast(div_trunc(sums, divisor), x.dtype())};
}

Outputs reduce_max(const NodeCall& call) {
  const Reduction reduction = reduction_of(call);
  if (reduction.none) return {reduction.x};
  return {amax(reduction.x, reduction.dims, reduction.options)};
}
Outputs reduce_min(const NodeCall& call) {
  const Reduction reduction = reduction_of(call);
  if (reduction.none) return {reduction.x};
  return {amin(reduction.x, reduction.dims, reduction.options)};
}
Outputs reduce_prod(const NodeCall& call) {
  const Reduction reduction = reduction_of(call);
  if (reduction.none) return {reduction.x};
  return {cast(prod(reduction.x, reduction.dims, reduction.options), reduction.x.dtype())};
}

using ArgFunction = Tensor (*)(const Tensor&, std::int64_t, const ReduceOptions&);

// The last of equal ones is the first of the reversed tensor.
template <ArgFunction kFunction>
Outputs arg_extreme(const NodeCall& call) {
  const Tensor& x = call.input(0, "data");
  const std::int64_t dim = wrap_dim(call.integer("axis", 0), x.dim(), call.op());
  const ReduceOptions options{.keepdim = call.flag("keepdims", true)};
  if (!call.flag("select_last_index", false)) return {kFunction(x, dim, options)};
  const Tensor from_end = kFunction(flip(x, {dim}), dim, options);
  const auto last = static_cast<double>(x.size(dim) - 1);
  return {sub(Tensor::full({}, last, DType::Int64), from_end)};
}

// Operators on one number along an axis -------------------------------------------------------

using CumulativeFunction = Tensor (*)(const Tensor&, std::int64_t, const CumulativeOptions&);

template <CumulativeFunction kFunction>
Outputs cumulative(const NodeCall& call) {
  const auto axis = call.integers(1, "axis");
  if (axis.size() != 1) {
    call.fail(fmt::format("input 1 (axis): expected one number, got {}", axis.size()));
  }
  return {kFunction(
      call.input(0, "x"), axis[0],
      {.exclusive = call.flag("exclusive", false), .reverse = call.flag("reverse", false)})};
}

// `k` is an attribute before opset 10.
Outputs evaluate_top_k(const NodeCall& call) {
  std::int64_t k = 0;
  if (call.opset() < 10) {
    k = call.integer("k");
  } else {
    const auto values = call.integers(1, "K");
    if (values.size() != 1) {
      call.fail(fmt::format("input 1 (K): expected one number, got {}", values.size()));
    }
    k = values[0];
  }
  ValuesIndices result = topk(call.input(0, "X"), k,
                              {.dim = call.integer("axis", -1),
                               .largest = call.flag("largest", true),
                               .sorted = call.flag("sorted", true)});
  return {std::move(result.values), std::move(result.indices)};
}

}  // namespace

void add_reduce_ops(OpTable& table) {
  table.add({.name = "ReduceSum", .evaluate = reduce_sum});
  table.add({.name = "ReduceMean", .evaluate = reduce_mean});
  table.add({.name = "ReduceMax", .evaluate = reduce_max});
  table.add({.name = "ReduceMin", .evaluate = reduce_min});
  table.add({.name = "ReduceProd", .evaluate = reduce_prod});
  table.add({.name = "ReduceL1", .evaluate = reduce_l1});
  table.add({.name = "ReduceL2", .evaluate = reduce_l2});
  table.add({.name = "ReduceSumSquare", .evaluate = reduce_sum_square});
  table.add({.name = "ReduceLogSum", .evaluate = reduce_log_sum});
  table.add({.name = "ReduceLogSumExp", .evaluate = reduce_log_sum_exp});
  table.add({.name = "ArgMax", .evaluate = arg_extreme<argmax>});
  table.add({.name = "ArgMin", .evaluate = arg_extreme<argmin>});
  table.add({.name = "CumSum", .evaluate = cumulative<cumsum>});
  table.add({.name = "CumProd", .evaluate = cumulative<cumprod>});
  table.add({.name = "TopK", .evaluate = evaluate_top_k});
}

}  // namespace quanta::graph
