// Fake quantizers: values of a grid between QuantizeLinear and DequantizeLinear, weights as codes.

#include <algorithm>
#include <cmath>
#include <optional>

#include "quanta/fusion/graph/detail/qdq_nodes.h"
#include "quanta/fusion/graph/detail/write_eager.h"
#include "quanta/ops/quantize_affine.h"
#include "quanta/runtime/amax_math.h"
#include "quanta/runtime/check.h"

namespace quanta::graph::detail {
namespace {

constexpr const char* kCalculated = "scales that are calculated from values";

bool has_constants(const EagerCall& call, std::size_t first) {
  for (std::size_t i = first; i < call.input_count(); ++i) {
    if (call.has(i) && !call.is_constant(i)) return false;
  }
  return true;
}

std::vector<float> floats_of(const Tensor& x) {
  return x.contiguous().to(DType::Float32).to_float_vector();
}

/// The value that a call quantizes. What is made of a constant is calculated here.
QdqValue value_of(EagerCall& call) {
  QdqValue x{.sizes = call.sizes(0), .type = call.type(0), .base = call.node.name};
  if (call.is_constant(0)) {
    std::vector<Tensor> arguments;
    for (std::size_t i = 0; i < call.input_count(); ++i) {
      arguments.push_back(call.has(i) ? call.constant(i) : Tensor());
    }
    x.result = run_all(call.operation, std::span<const Tensor>(arguments))[0];
    x.base = call.value(0).name;
  }
  return x;
}

/// The names of what goes in and comes out, once nothing can be refused any more.
void name(EagerCall& call, QdqValue& x) {
  if (!x.result.defined()) x.name = call.input(0);
  if (x.y.empty()) x.y = call.result();
}

/// Which division the codes come from.
enum class Rounding : bool { Torch, Onnx };

bool write(EagerCall& call, const IntegerGrid& grid, Rounding rounding) {
  QdqValue x = value_of(call);
  const std::string why = refusal(x, grid);
  if (!why.empty()) return call.refuse(why);
  name(call, x);
  if (!x.result.defined()) {
    ExportState& state = call.writer.state;
    (rounding == Rounding::Torch ? state.torch_arithmetic : state.onnx_arithmetic) = true;
  }
  append_qdq(call.writer, x, grid);
  return true;
}

/// Values along one axis of x, in its rank.
Tensor along(const EagerCall& call, const Tensor& values, std::int64_t axis) {
  const std::int64_t rank = call.rank(0);
  Dims sizes = Dims::filled(static_cast<std::size_t>(rank), 1);
  sizes[static_cast<std::size_t>(axis < 0 ? axis + rank : axis)] = values.numel();
  return values.contiguous().reshape(sizes);
}

// torch --------------------------------------------------------------------------------------------

/// A zero point that is trained, as the quantizer rounds it.
Tensor rounded(const Tensor& zero_point, std::int64_t low, std::int64_t high) {
  std::vector<float> values = floats_of(zero_point);
  for (float& value : values) {
    value = std::clamp(std::nearbyint(value), static_cast<float>(low), static_cast<float>(high));
  }
  return Tensor::from_values(values, zero_point.sizes());
}

template <bool kPerChannel, bool kLearned>
bool fake_quantize(EagerCall& call) {
  if (!has_constants(call, 1)) return call.refuse(kCalculated);
  IntegerGrid grid{.low = call.setting("quant_min", std::int64_t{0}),
                   .high = call.setting("quant_max", std::int64_t{255})};
  if (call.input_count() > 1) {
    grid.scale = call.constant(1);
    grid.zero_point = call.constant(2);
  } else {
    grid.scale = Tensor::scalar(call.setting("scale", 1.0));
    grid.zero_point =
        Tensor::scalar(static_cast<double>(call.setting("zero_point", std::int64_t{0})));
  }
  if (kLearned) grid.zero_point = rounded(grid.zero_point, grid.low, grid.high);
  if (kPerChannel) {
    const std::int64_t axis = call.setting("axis", std::int64_t{0});
    grid.scale = along(call, grid.scale, axis);
    grid.zero_point = along(call, grid.zero_point, axis);
  }
  return write(call, grid, Rounding::Torch);
}

// AIMET --------------------------------------------------------------------------------------------

Tensor negated(const Tensor& x) {
  std::vector<float> values = floats_of(x);
  for (float& value : values) value = value == 0.0F ? 0.0F : -value;
  return Tensor::from_values(values, x.sizes());
}

/// The settings of an affine quantizer of AIMET, unless ONNX cannot have them.
std::optional<IntegerGrid> affine_grid(EagerCall& call) {
  if (!has_constants(call, 1)) {
    call.refuse(kCalculated);
    return {};
  }
  if (call.setting("zero_point_shift", 0.0) != 0.0) {
    call.refuse("a zero_point_shift: ONNX has whole zero points alone");
    return {};
  }
  if (!call.is_constant(0) &&
      call.setting("rounding", std::string("HalfEven")) != std::string("HalfEven")) {
    call.refuse("another rounding than half to even");
    return {};
  }
  return IntegerGrid{.scale = call.constant(1),
                     .zero_point = negated(call.constant(2)),
                     .low = call.setting("qmin", std::int64_t{-128}),
                     .high = call.setting("qmax", std::int64_t{127})};
}

bool quantize_dequantize_affine(EagerCall& call) {
  const std::optional<IntegerGrid> grid = affine_grid(call);
  if (!grid) return false;
  const bool divides = call.setting("kernel", std::string("Automatic")) == "Divide" ||
                       !call.setting("block_size", Dims{}).empty();
  return write(call, *grid, divides ? Rounding::Onnx : Rounding::Torch);
}

constexpr EagerRow kRows[] = {
    {"fake_quantize_per_tensor_affine", fake_quantize<false, false>},
    {"fake_quantize_per_channel_affine", fake_quantize<true, false>},
    {"fake_quantize_learnable_per_tensor_affine", fake_quantize<false, true>},
    {"fake_quantize_learnable_per_channel_affine", fake_quantize<true, true>},
    {"quantize_dequantize_affine", quantize_dequantize_affine},
};

}  // namespace

std::span<const EagerRow> eager_quantizers() { return kRows; }

}  // namespace quanta::graph::detail
