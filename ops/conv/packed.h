#pragma once

// Private: what ConvPackedParams hold, and the attributes of operations that keep them.

#include <array>
#include <cstddef>
#include <string_view>

#include "quanta/ops/conv.h"
#include "quanta/ops/conv/cpu_int8.h"
#include "quanta/ops/conv/geometry.h"
#include "quanta/ops/detail/cuda_int8_weight.h"
#include "quanta/runtime/attribute.h"
#include "quanta/runtime/check.h"

namespace quanta {

namespace conv {

/// The names of the operations with one kind of weight.
struct QuantizedNames {
  std::string_view plain, relu, add, add_relu;
};
const QuantizedNames& quantized_names(std::int64_t spatial, bool transposed);

}  // namespace conv

struct quantized::ConvPackedParams::Impl {
  Impl(const QTensor& weight, const Tensor& bias, const ConvTransposeOptions& options,
       std::int64_t spatial, bool transposed);

  detail::ConvGeometry geometry;
  cpu::ConvInt8 kernel;
  mutable detail::CudaInt8Weight on_cuda;
  const conv::QuantizedNames& names;
};

namespace conv {

inline const quantized::ConvPackedParams::Impl& checked_params(
    const quantized::ConvPackedParams& packed) {
  QUANTA_CHECK(packed.defined(),
               "conv: packed: expected packed parameters, got empty ConvPackedParams");
  return packed.impl();
}

/// Rows for `op.packed`, followed by `more`.
template <typename Op, typename... Rows>
constexpr std::array<AttributeInfo, 7 + sizeof...(Rows)> packed_attributes(const Rows&... more) {
  return {
      read_only_attribute<Op, [](const Op& op) { return op.packed->weight(); }>("weight"),
      read_only_attribute<Op, [](const Op& op) { return op.packed->bias(); }>("bias"),
      read_only_attribute<Op, [](const Op& op) { return op.packed->options().stride; }>("stride"),
      read_only_attribute<Op, [](const Op& op) { return op.packed->options().padding; }>("padding"),
      read_only_attribute<Op, [](const Op& op) { return op.packed->options().output_padding; }>(
          "output_padding"),
      read_only_attribute<Op, [](const Op& op) { return op.packed->options().dilation; }>(
          "dilation"),
      read_only_attribute<Op, [](const Op& op) { return op.packed->options().groups; }>("groups"),
      more...};
}

}  // namespace conv
}  // namespace quanta
