// Pools: windows of one size, and those whose number follows from the input.

#include <algorithm>

#include "quanta/fusion/graph/detail/write_eager.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/whole_number.h"

namespace quanta::graph::detail {
namespace {

/// The settings of a window, one number for each spatial dimension.
struct Window {
  Numbers kernel, stride, begin, end, dilation;

  explicit Window(const EagerCall& call) {
    const std::size_t spatial = call.sizes(0).size() - 2;
    kernel = call.list("kernel_size", spatial, 1);
    stride = call.list("stride", spatial, 0);
    if (std::ranges::all_of(stride, [](std::int64_t s) { return s == 0; })) stride = kernel;
    begin = call.list("padding", spatial, 0);
    const Dims own_end = call.setting("padding_end", Dims{});
    end = own_end.empty() ? begin : call.list("padding_end", spatial, 0);
    dilation = call.list("dilation", spatial, 1);
  }

  Numbers pads() const {
    Numbers all = begin;
    all.insert(all.end(), end.begin(), end.end());
    return all;
  }
  /// Padding behind the input with which as many windows fit as the result has, where ceil_mode
  /// lets the last one stand over. Gives whether that is more than before.
  bool reach_last(const Dims& x, const Dims& y) {
    bool more = false;
    for (std::size_t i = 0; i < kernel.size(); ++i) {
      const std::int64_t needed =
          (y[i + 2] - 1) * stride[i] + dilation[i] * (kernel[i] - 1) + 1 - x[i + 2] - begin[i];
      if (needed <= end[i]) continue;
      end[i] = needed;
      more = true;
    }
    return more;
  }
};

bool has_batch(const EagerCall& call) {
  const std::string_view op = call.op();
  return call.rank(0) == (op.back() == 'd' ? op[op.size() - 2] - '0' : 2) + 2;
}

OnnxAttributes attributes_of(const Window& window) {
  return {{"kernel_shape", window.kernel}, {"strides", window.stride}, {"pads", window.pads()}};
}

bool max_pool(EagerCall& call) {
  if (!has_batch(call)) return call.refuse("expected a batch of images, got one without");
  Window window(call);
  window.reach_last(call.sizes(0), call.result_sizes());
  OnnxAttributes attributes = attributes_of(window);
  if (std::ranges::any_of(window.dilation, [](std::int64_t d) { return d != 1; })) {
    attributes["dilations"] = window.dilation;
    call.need(10, "MaxPool with dilations");
  }
  call.emit("MaxPool", {call.input(0)}, std::move(attributes));
  return true;
}

bool avg_pool(EagerCall& call) {
  if (!has_batch(call)) return call.refuse("expected a batch of images, got one without");
  Window window(call);
  const bool includes = call.setting("count_include_pad", true);
  const Numbers before = window.end;
  const bool more = window.reach_last(call.sizes(0), call.result_sizes());
  const bool is_padded = std::ranges::any_of(window.pads(), [](std::int64_t p) { return p != 0; });
  if (more && includes && before != Numbers(before.size(), 0)) {
    return call.refuse("ceil_mode counts some of the padding only");
  }
  OnnxAttributes attributes = attributes_of(window);
  const bool counts_all = call.is_set("divisor_override");
  // Windows that stand over count what lies within alone.
  if (is_padded) attributes["count_include_pad"] = std::int64_t{(includes && !more) || counts_all};
  if (std::ranges::any_of(window.dilation, [](std::int64_t d) { return d != 1; })) {
    attributes["dilations"] = window.dilation;
    call.need(19, "AveragePool with dilations");
  }
  call.need(7, "AveragePool");
  if (!counts_all) {
    call.emit("AveragePool", {call.input(0)}, std::move(attributes));
    return true;
  }
  double elements = 1.0;
  for (const std::int64_t size : window.kernel) elements *= static_cast<double>(size);
  const double factor =
      elements / static_cast<double>(call.setting("divisor_override", std::int64_t{1}));
  const std::string mean = call.part("AveragePool", {call.input(0)}, std::move(attributes));
  call.emit("Mul", {mean, call.scalar("factor", factor)});
  return true;
}

/// Windows that follow from the sizes; ONNX has those of one size.
template <bool kMax>
bool adaptive(EagerCall& call) {
  if (!has_batch(call)) return call.refuse("expected a batch of images, got one without");
  const Dims x = call.sizes(0);
  const Dims y = call.result_sizes();
  bool is_global = true;
  Numbers kernel;
  for (std::size_t i = 2; i < x.size(); ++i) {
    is_global = is_global && y[i] == 1;
    if (y[i] == 0 || x[i] % y[i] != 0) {
      return call.refuse("ONNX has no windows of different sizes");
    }
    kernel.push_back(x[i] / y[i]);
  }
  if (is_global) {
    call.emit(kMax ? "GlobalMaxPool" : "GlobalAveragePool", {call.input(0)});
  } else {
    call.emit(kMax ? "MaxPool" : "AveragePool", {call.input(0)},
              {{"kernel_shape", kernel}, {"strides", kernel}});
  }
  return true;
}

bool global_mean(EagerCall& call) {
  call.emit("GlobalAveragePool", {call.input(0)});
  return true;
}

bool lp_pool(EagerCall& call) {
  const double p = call.setting("p", 2.0);
  if (!quanta::detail::is_whole_number(p)) {
    return call.refuse(
        fmt::format("a norm of order {}: LpPool has whole ones up to 2^53 alone", p));
  }
  Window window(call);
  window.reach_last(call.sizes(0), call.result_sizes());
  OnnxAttributes attributes = attributes_of(window);
  attributes["p"] = static_cast<std::int64_t>(p);
  if (std::ranges::any_of(window.dilation, [](std::int64_t d) { return d != 1; })) {
    attributes["dilations"] = window.dilation;
    call.need(18, "LpPool with dilations");
  }
  call.emit("LpPool", {call.input(0)}, std::move(attributes));
  return true;
}

constexpr EagerRow kRows[] = {
    {"max_pool1d", max_pool},
    {"max_pool2d", max_pool},
    {"max_pool3d", max_pool},
    {"avg_pool1d", avg_pool},
    {"avg_pool2d", avg_pool},
    {"avg_pool3d", avg_pool},
    {"adaptive_max_pool1d", adaptive<true>},
    {"adaptive_max_pool2d", adaptive<true>},
    {"adaptive_max_pool3d", adaptive<true>},
    {"adaptive_avg_pool1d", adaptive<false>},
    {"adaptive_avg_pool2d", adaptive<false>},
    {"adaptive_avg_pool3d", adaptive<false>},
    {"global_mean_to_float", global_mean},
    {"lp_pool", lp_pool},
};

}  // namespace

std::span<const EagerRow> eager_pools() { return kRows; }

}  // namespace quanta::graph::detail
