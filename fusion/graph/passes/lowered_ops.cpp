#include "quanta/fusion/graph/passes/lowered_ops.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "quanta/ops/conv_dynamic.h"
#include "quanta/ops/linear_dynamic.h"
#include "quanta/ops/pad.h"
#include "quanta/runtime/check.h"

namespace quanta::graph {
namespace {

using quantized::ConvPackedParams;
using quantized::LinearPackedParams;

/// Weight and bias as attributes.
template <typename Self>
std::span<const AttributeInfo> packed_table() {
  static constexpr std::array kTable{
      read_only_attribute<Self, [](const Self& op) { return op.packed.weight(); }>("weight"),
      read_only_attribute<Self, [](const Self& op) { return op.packed.bias(); }>("bias")};
  return kTable;
}

/// Those, and the convolution's settings.
template <typename Self>
std::span<const AttributeInfo> packed_conv_table() {
  static constexpr std::array kTable{
      read_only_attribute<Self, [](const Self& op) { return op.packed.weight(); }>("weight"),
      read_only_attribute<Self, [](const Self& op) { return op.packed.bias(); }>("bias"),
      read_only_attribute<Self, [](const Self& op) { return op.packed.options().stride; }>(
          "stride"),
      read_only_attribute<Self, [](const Self& op) { return op.packed.options().padding; }>(
          "padding"),
      read_only_attribute<Self, [](const Self& op) { return op.packed.options().output_padding; }>(
          "output_padding"),
      read_only_attribute<Self, [](const Self& op) { return op.packed.options().dilation; }>(
          "dilation"),
      read_only_attribute<Self, [](const Self& op) { return op.packed.options().groups; }>(
          "groups"),
      read_only_attribute<Self, [](const Self& op) { return op.packed.is_transposed(); }>(
          "transposed")};
  return kTable;
}

struct ConvToFloat final : ComposedOp<ConvToFloat> {
  static constexpr std::string_view kName = "conv_to_float";
  static constexpr ArgumentCount kArguments{1};
  ConvPackedParams packed;
  std::vector<Tensor> compose(const Arguments& in) const override {
    return {quantized::conv_to_float(QTensor(in[0]), packed)};
  }
  static std::span<const AttributeInfo> attribute_table() {
    return packed_conv_table<ConvToFloat>();
  }
};

struct LinearToFloat final : ComposedOp<LinearToFloat> {
  static constexpr std::string_view kName = "linear_to_float";
  static constexpr ArgumentCount kArguments{1};
  LinearPackedParams packed;
  std::vector<Tensor> compose(const Arguments& in) const override {
    return {quantized::linear_to_float(QTensor(in[0]), packed)};
  }
  static std::span<const AttributeInfo> attribute_table() { return packed_table<LinearToFloat>(); }
};

struct ConvOfCodes final : ComposedOp<ConvOfCodes> {
  static constexpr std::string_view kName = "conv_of_codes";
  static constexpr ArgumentCount kArguments{3};
  ConvPackedParams packed;
  std::vector<Tensor> compose(const Arguments& in) const override {
    return {quantized::conv_of_codes(in[0], in[1], in[2], packed)};
  }
  static std::span<const AttributeInfo> attribute_table() {
    return packed_conv_table<ConvOfCodes>();
  }
};

struct LinearOfCodes final : ComposedOp<LinearOfCodes> {
  static constexpr std::string_view kName = "linear_of_codes";
  static constexpr ArgumentCount kArguments{3};
  LinearPackedParams packed;
  std::vector<Tensor> compose(const Arguments& in) const override {
    return {quantized::linear_of_codes(in[0], in[1], in[2], packed)};
  }
  static std::span<const AttributeInfo> attribute_table() { return packed_table<LinearOfCodes>(); }
};

struct PadImage final : ComposedOp<PadImage> {
  static constexpr std::string_view kName = "pad_image";
  static constexpr ArgumentCount kArguments{1};
  Dims begin, end, stride, reach;
  bool same = false;
  bool lower = false;

  std::vector<Tensor> compose(const Arguments& in) const override {
    const Tensor& x = in[0];
    const std::size_t spatial = same ? stride.size() : begin.size();
    QUANTA_CHECK(x.defined() && x.dim() == static_cast<std::int64_t>(spatial) + 2,
                 "{}: x: expected {} dimensions", kName, spatial + 2);
    Dims widths;
    bool any = false;
    for (std::size_t d = spatial; d-- > 0;) {  // the last dimension comes first
      std::int64_t left = same ? 0 : begin[d];
      std::int64_t right = same ? 0 : end[d];
      if (same) {
        const std::int64_t size = x.sizes()[d + 2];
        const std::int64_t count = (size + stride[d] - 1) / stride[d];
        const std::int64_t total =
            std::max<std::int64_t>(0, (count - 1) * stride[d] + reach[d] - size);
        left = lower ? total - total / 2 : total / 2;
        right = total - left;
      }
      any = any || left != 0 || right != 0;
      widths.push_back(left);
      widths.push_back(right);
    }
    return {any ? pad(x, widths) : x};
  }
  static std::span<const AttributeInfo> attribute_table() {
    using Self = PadImage;
    static constexpr std::array kTable{
        attribute<Self, &Self::begin>("begin"),   attribute<Self, &Self::end>("end"),
        attribute<Self, &Self::stride>("stride"), attribute<Self, &Self::reach>("reach"),
        attribute<Self, &Self::same>("same"),     attribute<Self, &Self::lower>("lower")};
    return kTable;
  }
};

template <typename Kind, typename Packed>
std::shared_ptr<const Operation> holding(Packed packed) {
  auto operation = std::make_shared<Kind>();
  operation->packed = std::move(packed);
  return operation;
}

}  // namespace

std::shared_ptr<const Operation> conv_to_float_operation(ConvPackedParams packed) {
  return holding<ConvToFloat>(std::move(packed));
}
std::shared_ptr<const Operation> linear_to_float_operation(LinearPackedParams packed) {
  return holding<LinearToFloat>(std::move(packed));
}
std::shared_ptr<const Operation> conv_of_codes_operation(ConvPackedParams packed) {
  return holding<ConvOfCodes>(std::move(packed));
}
std::shared_ptr<const Operation> linear_of_codes_operation(LinearPackedParams packed) {
  return holding<LinearOfCodes>(std::move(packed));
}

std::shared_ptr<const Operation> pad_image_operation(ImagePadding padding) {
  auto operation = std::make_shared<PadImage>();
  operation->begin = padding.begin;
  operation->end = padding.end;
  operation->stride = padding.stride;
  operation->reach = padding.reach;
  operation->same = padding.same;
  operation->lower = padding.lower;
  return operation;
}

}  // namespace quanta::graph
