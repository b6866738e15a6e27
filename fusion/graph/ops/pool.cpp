// Pooling over windows and over all that is spatial.

#include <algorithm>
#include <memory>

#include "quanta/fusion/graph/op_table.h"
#include "quanta/fusion/graph/ops/families.h"
#include "quanta/fusion/graph/ops/math_support.h"
#include "quanta/fusion/graph/ops/windows.h"
#include "quanta/nn/pooling.h"
#include "quanta/ops/pooling.h"
#include "quanta/runtime/check.h"

namespace quanta::graph {
namespace {

/// Sets what the options of all poolings have.
template <typename Options>
Options pool_options(const NodeCall& call, const WindowShape& window) {
  Options options;
  options.kernel_size = window.kernel;
  options.stride = window.stride;
  options.padding = window.begin;
  options.dilation = window.dilation;
  // With auto_pad the number of windows is what it says.
  options.ceil_mode = auto_pad_of(call) == AutoPad::NotSet && call.flag("ceil_mode", false);
  bool is_usual = window.even_padding();
  for (std::size_t d = 0; is_usual && d < window.rank(); ++d) {
    is_usual = window.begin[d] <= window.kernel[d] / 2;
  }
  if (!is_usual) options.padding_end = window.end;
  return options;
}

/// The windows over an input.
template <typename Options>
Options pool_options(const NodeCall& call, const Tensor& x) {
  const Dims sizes = spatial_sizes(call, x);
  WindowShape window = window_shape(call, kernel_shape(call, sizes.size()));
  set_padding(call, sizes, window);
  return pool_options<Options>(call, window);
}

AvgPoolOptions with_divisor(const NodeCall& call, AvgPoolOptions options) {
  options.count_include_pad = call.flag("count_include_pad", false);
  return options;
}

Outputs evaluate_max_pool(const NodeCall& call) {
  const Tensor& x = call.input(0, "X");
  const auto options = pool_options<MaxPoolOptions>(call, x);
  const std::int64_t rank = x.dim() - 2;
  Outputs results(2);
  results[0] = rank == 1   ? max_pool1d(x, options)
               : rank == 2 ? max_pool2d(x, options)
                           : max_pool3d(x, options);
  if (call.wants(1)) {
    const IndexOrder order =
        call.flag("storage_order", false) ? IndexOrder::ColumnMajor : IndexOrder::RowMajor;
    results[1] = max_pool_indices(x, options, rank, order);
  }
  return results;
}

Outputs evaluate_average_pool(const NodeCall& call) {
  const Tensor& x = call.input(0, "X");
  const AvgPoolOptions options = with_divisor(call, pool_options<AvgPoolOptions>(call, x));
  switch (x.dim() - 2) {
    case 1:
      return {avg_pool1d(x, options)};
    case 2:
      return {avg_pool2d(x, options)};
    default:
      return {avg_pool3d(x, options)};
  }
}

// An integer since opset 2.
double power_of(const NodeCall& call) {
  const double p =
      call.opset() < 2 ? call.number("p", 2.0) : static_cast<double>(call.integer("p", 2));
  if (p <= 0.0) call.fail(fmt::format("attribute p: expected a number > 0, got {}", p));
  return p;
}

Outputs evaluate_lp_pool(const NodeCall& call) {
  const Tensor& x = call.input(0, "X");
  auto options = pool_options<LpPoolOptions>(call, x);
  options.p = power_of(call);
  return {lp_pool(x, options, x.dim() - 2)};
}

/// run(x) for an input with one to three spatial dimensions; more of them are one. The result has
/// size 1 for each.
template <typename Run>
Tensor over_all(const NodeCall& call, const Tensor& x, const Run& run) {
  const std::size_t rank = spatial_sizes(call, x).size();
  if (rank <= 3) return run(x);
  Dims ones = Dims::filled(rank + 2, 1);
  ones[0] = x.size(0);
  ones[1] = x.size(1);
  return run(x.flatten(2)).reshape(ones);
}

Outputs evaluate_global_average_pool(const NodeCall& call) {
  return {over_all(call, call.input(0, "X"), [](const Tensor& x) {
    return x.dim() == 3   ? adaptive_avg_pool1d(x, {1})
           : x.dim() == 4 ? adaptive_avg_pool2d(x, {1})
                          : adaptive_avg_pool3d(x, {1});
  })};
}

Outputs evaluate_global_max_pool(const NodeCall& call) {
  return {over_all(call, call.input(0, "X"), [](const Tensor& x) {
    return x.dim() == 3   ? adaptive_max_pool1d(x, {1})
           : x.dim() == 4 ? adaptive_max_pool2d(x, {1})
                          : adaptive_max_pool3d(x, {1});
  })};
}

Outputs evaluate_global_lp_pool(const NodeCall& call) {
  return {over_all(call, call.input(0, "X"), [&](const Tensor& x) {
    LpPoolOptions options;
    for (std::int64_t d = 2; d < x.dim(); ++d) options.kernel_size.push_back(x.size(d));
    options.p = power_of(call);
    return lp_pool(x, options, x.dim() - 2);
  })};
}

// Modules ----------------------------------------------------------------------------------------

/// The options of a pooling whose padding does not depend on its input, or none.
template <typename Options>
std::optional<Options> static_options(const NodeCall& constants) {
  WindowShape window = window_shape(constants, kernel_shape(constants));
  if (!set_static_padding(constants, window)) return {};
  return pool_options<Options>(constants, window);
}

template <typename Module>
std::shared_ptr<nn::Module> in_eval_mode(std::shared_ptr<Module> module) {
  module->eval();
  return module;
}

std::shared_ptr<nn::Module> make_max_pool(const NodeCall& constants) {
  if (constants.wants(1)) return nullptr;
  const auto options = static_options<MaxPoolOptions>(constants);
  if (!options) return nullptr;
  switch (options->kernel_size.size()) {
    case 1:
      return in_eval_mode(nn::make_module<nn::MaxPool1d>(*options));
    case 2:
      return in_eval_mode(nn::make_module<nn::MaxPool2d>(*options));
    default:
      return in_eval_mode(nn::make_module<nn::MaxPool3d>(*options));
  }
}

std::shared_ptr<nn::Module> make_average_pool(const NodeCall& constants) {
  const auto static_part = static_options<AvgPoolOptions>(constants);
  if (!static_part) return nullptr;
  const AvgPoolOptions options = with_divisor(constants, *static_part);
  switch (options.kernel_size.size()) {
    case 1:
      return in_eval_mode(nn::make_module<nn::AvgPool1d>(options));
    case 2:
      return in_eval_mode(nn::make_module<nn::AvgPool2d>(options));
    default:
      return in_eval_mode(nn::make_module<nn::AvgPool3d>(options));
  }
}

}  // namespace

void add_pool_ops(OpTable& table) {
  // Calculated in float in an int8 network as well, but for those that only pick elements.
  table.add({.name = "MaxPool",
             .evaluate = evaluate_max_pool,
             .rule = CodeRule::Pass,
             .make_module = make_max_pool,
             .call_module = call_unary_module<evaluate_max_pool>});
  table.add({.name = "AveragePool",
             .evaluate = evaluate_average_pool,
             .make_module = make_average_pool,
             .call_module = call_unary_module<evaluate_average_pool>});
  table.add({.name = "LpPool", .evaluate = evaluate_lp_pool});
  // No modules: the number of dimensions is known in a run only.
  table.add({.name = "GlobalAveragePool", .evaluate = evaluate_global_average_pool});
  table.add(
      {.name = "GlobalMaxPool", .evaluate = evaluate_global_max_pool, .rule = CodeRule::Pass});
  table.add({.name = "GlobalLpPool", .evaluate = evaluate_global_lp_pool});
}

}  // namespace quanta::graph
