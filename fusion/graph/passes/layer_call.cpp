#include "quanta/fusion/graph/passes/layer_call.h"

#include <algorithm>

#include "quanta/fusion/graph/passes/codes.h"

namespace quanta::graph {
namespace {

/// `count` numbers of an attribute, or nothing for another number of them.
std::optional<Dims> numbers(const Node& node, std::string_view name, std::int64_t otherwise,
                            std::size_t count) {
  Dims result;
  const std::vector<std::int64_t> given = list_attribute(node, name);
  if (given.empty()) {
    for (std::size_t d = 0; d < count; ++d) result.push_back(otherwise);
    return result;
  }
  if (given.size() != count) return {};
  for (const std::int64_t value : given) result.push_back(value);
  return result;
}

}  // namespace

std::optional<ConvCall> conv_call(const Node& node, const Dims& weight, std::string& reason) {
  ConvCall call;
  call.spatial = static_cast<std::int64_t>(weight.size()) - 2;
  reason = "its attributes are none that the int8 layer has";
  if (call.spatial < 1 || call.spatial > 3) return {};
  const auto count = static_cast<std::size_t>(call.spatial);
  const std::optional<Dims> stride = numbers(node, "strides", 1, count);
  const std::optional<Dims> dilation = numbers(node, "dilations", 1, count);
  const std::optional<Dims> pads = numbers(node, "pads", 0, 2 * count);
  if (!stride || !dilation || !pads) return {};
  const std::vector<std::int64_t> kernel = list_attribute(node, "kernel_shape");
  if (!kernel.empty() &&
      !std::equal(kernel.begin(), kernel.end(), weight.begin() + 2, weight.end()))
    return {};
  call.options.stride = *stride;
  call.options.dilation = *dilation;
  call.options.groups = integer_attribute(node, "group", 1);
  call.options.padding = {};
  for (std::size_t d = 0; d < count; ++d) call.options.padding.push_back(0);
  const std::string auto_pad = text_attribute(node, "auto_pad", "NOTSET");
  if (node.op == "ConvTranspose") {
    const std::optional<Dims> output_padding = numbers(node, "output_padding", 0, count);
    if (auto_pad != "NOTSET" || !list_attribute(node, "output_shape").empty() || !output_padding) {
      return {};
    }
    for (std::size_t d = 0; d < count; ++d) {
      if ((*pads)[d] != (*pads)[d + count] || (*output_padding)[d] >= (*stride)[d]) return {};
      call.options.padding[d] = (*pads)[d];
    }
    call.options.output_padding = *output_padding;
    return call;
  }
  if (auto_pad == "VALID") return call;
  ImagePadding padding;
  if (auto_pad != "NOTSET") {
    padding.same = true;
    padding.lower = auto_pad == "SAME_LOWER";
    padding.stride = *stride;
    for (std::size_t d = 0; d < count; ++d) {
      padding.reach.push_back((weight[d + 2] - 1) * (*dilation)[d] + 1);
    }
    call.padding = padding;
    return call;
  }
  bool even = true;
  for (std::size_t d = 0; d < count; ++d) {
    padding.begin.push_back((*pads)[d]);
    padding.end.push_back((*pads)[d + count]);
    even = even && (*pads)[d] == (*pads)[d + count] && (*pads)[d] >= 0;
  }
  if (even) {
    call.options.padding = padding.begin;
  } else {
    call.padding = padding;
  }
  return call;
}

}  // namespace quanta::graph
