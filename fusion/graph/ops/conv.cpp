// Conv and ConvTranspose.

#include "quanta/ops/conv.h"

#include <algorithm>
#include <memory>

#include "quanta/fusion/graph/op_table.h"
#include "quanta/fusion/graph/ops/families.h"
#include "quanta/fusion/graph/ops/windows.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/skip_init.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/pad.h"
#include "quanta/runtime/check.h"

namespace quanta::graph {
namespace {

/// The kernel's sizes, which kernel_shape repeats if it is given.
Dims kernel_of(const NodeCall& call, const Tensor& weight) {
  if (weight.dim() < 3 || weight.dim() > 5) {
    call.unsupported(fmt::format("input 1 (W): expected 1 to 3 spatial dimensions, got sizes {}",
                                 weight.sizes()));
  }
  Dims kernel = weight.sizes();
  kernel.erase(0);
  kernel.erase(0);
  for (const std::int64_t size : kernel) {
    if (size < 1)
      call.fail(fmt::format("input 1 (W): expected sizes >= 1, got {}", weight.sizes()));
  }
  const std::vector<std::int64_t> given = call.integer_list("kernel_shape", {});
  if (!given.empty() && !std::equal(kernel.begin(), kernel.end(), given.begin(), given.end())) {
    call.fail(fmt::format("attribute kernel_shape: expected {} as W has, got [{}]", kernel,
                          fmt::join(given, ", ")));
  }
  return kernel;
}

void check_input(const NodeCall& call, const Tensor& x, const Tensor& weight) {
  if (x.dim() != weight.dim()) {
    call.fail(fmt::format("input 0 (X): expected {} dimensions as W has, got sizes {}",
                          weight.dim(), x.sizes()));
  }
  for (const std::int64_t size : spatial_sizes(call, x)) {
    // Products with a stride stay within 63 bits.
    if (size < 1 || size > std::int64_t{1} << 30) {
      call.fail(fmt::format("input 0 (X): expected sizes of 1 to 2^30, got {}", x.sizes()));
    }
  }
}

/// The numbers of pad() for the spatial dimensions: the last one first, each (before, behind).
Dims pad_widths(const Dims& before, const Dims& behind) {
  Dims widths;
  for (std::size_t d = before.size(); d-- > 0;) {
    widths.push_back(before[d]);
    widths.push_back(behind[d]);
  }
  return widths;
}

Outputs evaluate_conv(const NodeCall& call) {
  Tensor x = call.input(0, "X");
  const Tensor& weight = call.input(1, "W");
  const Tensor bias = call.optional(2);
  WindowShape window = window_shape(call, kernel_of(call, weight));
  check_input(call, x, weight);
  set_padding(call, spatial_sizes(call, x), window);
  if (!window.even_padding()) {
    x = pad(x, pad_widths(window.begin, window.end));
    window.begin = Dims::filled(window.rank(), 0);
  }
  const ConvOptions options{window.stride, window.begin, window.dilation, call.integer("group", 1)};
  switch (window.rank()) {
    case 1:
      return {conv1d(x, weight, bias, options)};
    case 2:
      return {conv2d(x, weight, bias, options)};
    default:
      return {conv3d(x, weight, bias, options)};
  }
}

bool is_float_constant(const Tensor& x) { return x.defined() && x.dtype() == DType::Float32; }

/// Whether input i is left out in the file, or a Float32 constant.
bool absent_or_constant(const NodeCall& call, std::size_t i) {
  const bool absent = i >= call.node().inputs.size() || call.node().inputs[i] == kNone;
  return absent || (call.has(i) && is_float_constant(call.optional(i)));
}

template <typename Layer, typename Options>
std::shared_ptr<nn::Module> layer_of(const NodeCall& constants, const Options& options) {
  const nn::SkipInit no_random_weights;
  auto layer = nn::make_module<Layer>(options);
  layer->weight = constants.optional(1);
  layer->bias = constants.optional(2);
  layer->eval();
  return layer;
}

std::shared_ptr<nn::Module> make_conv(const NodeCall& constants) {
  const Tensor weight = constants.optional(1);
  if (!is_float_constant(weight) || !absent_or_constant(constants, 2)) return nullptr;
  WindowShape window = window_shape(constants, kernel_of(constants, weight));
  if (!set_static_padding(constants, window) || !window.even_padding()) return nullptr;
  const std::int64_t groups = constants.integer("group", 1);
  if (groups < 1) constants.fail(fmt::format("attribute group: expected >= 1, got {}", groups));
  const Tensor bias = constants.optional(2);
  if (bias.defined() && bias.sizes() != Dims{weight.size(0)}) return nullptr;
  nn::ConvNdOptions options;
  options.in_channels = weight.size(1) * groups;
  options.out_channels = weight.size(0);
  options.kernel_size = window.kernel;
  options.stride = window.stride;
  options.padding = window.begin;
  options.dilation = window.dilation;
  options.groups = groups;
  options.bias = bias.defined();
  switch (window.rank()) {
    case 1:
      return layer_of<nn::Conv1d>(constants, options);
    case 2:
      return layer_of<nn::Conv2d>(constants, options);
    default:
      return layer_of<nn::Conv3d>(constants, options);
  }
}

// Transposed -------------------------------------------------------------------------------------

/// What of the whole result of a transposed convolution without padding is asked for.
struct Part {
  Dims first;  ///< where it begins
  Dims whole;  ///< sizes of the whole result
  Dims sizes;  ///< of the part, which may reach beyond the whole
};

std::int64_t whole_size(const WindowShape& window, std::int64_t in, std::size_t d) {
  return (in - 1) * window.stride[d] + window.reach(d);
}

/// Where output_shape or auto_pad say the size, the padding follows from it.
Part asked_part(const NodeCall& call, const WindowShape& shape, const Dims& in) {
  WindowShape window = shape;
  const std::size_t rank = window.rank();
  const AutoPad pad = auto_pad_of(call);
  const Dims extra = window_list(call, "output_padding", rank, 0, 0);
  std::vector<std::int64_t> given = call.integer_list("output_shape", {});
  // Some files have batch and channels in it too.
  if (given.size() == rank + 2) given.erase(given.begin(), given.begin() + 2);
  const bool has_shape = !given.empty();
  if (has_shape && given.size() != rank) {
    call.fail(
        fmt::format("attribute output_shape: expected {} numbers, got {}", rank, given.size()));
  }
  const bool is_same = pad == AutoPad::SameUpper || pad == AutoPad::SameLower;
  if (!has_shape && !is_same) set_padding(call, in, window);
  Part part;
  for (std::size_t d = 0; d < rank; ++d) {
    const std::int64_t whole = whole_size(window, in[d], d);
    part.whole.push_back(whole);
    if (!has_shape && !is_same) {
      part.first.push_back(window.begin[d]);
      part.sizes.push_back(whole + extra[d] - window.begin[d] - window.end[d]);
      continue;
    }
    const std::int64_t size = has_shape ? given[d] : in[d] * window.stride[d];
    // A larger result than there is begins at the same place and ends in zeros.
    const std::int64_t total = std::max<std::int64_t>(whole + extra[d] - size, 0);
    part.first.push_back(pad == AutoPad::SameUpper ? total / 2 : total - total / 2);
    part.sizes.push_back(size);
  }
  for (const std::int64_t size : part.sizes) {
    if (size < 1) call.fail(fmt::format("expected sizes >= 1 of the result, got {}", part.sizes));
  }
  return part;
}

/// The output padding with which a layer with padding `first` gives the part, if one does.
std::optional<Dims> output_padding_of(const Part& part, const WindowShape& window) {
  Dims padding;
  for (std::size_t d = 0; d < part.first.size(); ++d) {
    const std::int64_t more = part.sizes[d] - (part.whole[d] - 2 * part.first[d]);
    if (more < 0 || more >= window.stride[d]) return {};
    padding.push_back(more);
  }
  return padding;
}

Tensor transposed(const Tensor& x, const Tensor& weight, const Tensor& bias,
                  const ConvTransposeOptions& options, std::size_t rank) {
  switch (rank) {
    case 1:
      return conv_transpose1d(x, weight, bias, options);
    case 2:
      return conv_transpose2d(x, weight, bias, options);
    default:
      return conv_transpose3d(x, weight, bias, options);
  }
}

Outputs evaluate_conv_transpose(const NodeCall& call) {
  const Tensor& x = call.input(0, "X");
  const Tensor& weight = call.input(1, "W");
  const Tensor bias = call.optional(2);
  const WindowShape window = window_shape(call, kernel_of(call, weight));
  check_input(call, x, weight);
  const Part part = asked_part(call, window, spatial_sizes(call, x));
  ConvTransposeOptions options{.stride = window.stride,
                               .padding = part.first,
                               .dilation = window.dilation,
                               .groups = call.integer("group", 1)};
  const std::size_t rank = window.rank();
  if (const std::optional<Dims> more = output_padding_of(part, window)) {
    options.output_padding = *more;
    return {transposed(x, weight, bias, options, rank)};
  }
  // Otherwise the whole result is cut. Where the part reaches beyond it, only the bias is left.
  options.padding = Dims::filled(rank, 0);
  Dims before, behind;
  for (std::size_t d = 0; d < rank; ++d) {
    before.push_back(-part.first[d]);
    behind.push_back(part.first[d] + part.sizes[d] - part.whole[d]);
  }
  Tensor result = pad(transposed(x, weight, {}, options, rank), pad_widths(before, behind));
  if (bias.defined()) {
    Dims sizes = Dims::filled(rank + 1, 1);
    sizes[0] = bias.numel();
    result = add(result, bias.reshape(sizes));
  }
  return {result};
}

std::shared_ptr<nn::Module> make_conv_transpose(const NodeCall& constants) {
  const Tensor weight = constants.optional(1);
  if (!is_float_constant(weight) || !absent_or_constant(constants, 2)) return nullptr;
  if (constants.has_attribute("output_shape")) return nullptr;
  const AutoPad pad = auto_pad_of(constants);
  if (pad == AutoPad::SameUpper || pad == AutoPad::SameLower) return nullptr;
  const WindowShape window = window_shape(constants, kernel_of(constants, weight));
  // Begin and output padding of a part do not depend on the input's sizes.
  const Part part = asked_part(constants, window, Dims::filled(window.rank(), 1 << 20));
  const std::optional<Dims> more = output_padding_of(part, window);
  if (!more) return nullptr;
  const std::int64_t groups = constants.integer("group", 1);
  if (groups < 1) constants.fail(fmt::format("attribute group: expected >= 1, got {}", groups));
  const Tensor bias = constants.optional(2);
  nn::ConvTransposeNdOptions options;
  options.in_channels = weight.size(0);
  options.out_channels = weight.size(1) * groups;
  if (bias.defined() && bias.sizes() != Dims{options.out_channels}) return nullptr;
  options.kernel_size = window.kernel;
  options.stride = window.stride;
  options.padding = part.first;
  options.output_padding = *more;
  options.groups = groups;
  options.bias = bias.defined();
  options.dilation = window.dilation;
  switch (window.rank()) {
    case 1:
      return layer_of<nn::ConvTranspose1d>(constants, options);
    case 2:
      return layer_of<nn::ConvTranspose2d>(constants, options);
    default:
      return layer_of<nn::ConvTranspose3d>(constants, options);
  }
}

}  // namespace

void add_conv_ops(OpTable& table) {
  table.add({.name = "Conv",
             .evaluate = evaluate_conv,
             .rule = CodeRule::Layer,
             .make_module = make_conv});
  table.add({.name = "ConvTranspose",
             .evaluate = evaluate_conv_transpose,
             .rule = CodeRule::Layer,
             .make_module = make_conv_transpose});
}

}  // namespace quanta::graph
