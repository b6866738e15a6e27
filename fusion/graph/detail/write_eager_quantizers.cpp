// Fake quantizers: values of a grid between QuantizeLinear and DequantizeLinear, weights as codes.

#include <algorithm>
#include <cmath>
#include <optional>

#include "quanta/fusion/graph/detail/modelopt_nodes.h"
#include "quanta/fusion/graph/detail/qdq_nodes.h"
#include "quanta/fusion/graph/detail/write_eager.h"
#include "quanta/observers/aimet/float_format.h"
#include "quanta/ops/block_quant.h"
#include "quanta/ops/tensor_quant.h"
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

/// The value that a call quantizes, unless Q and DQ cannot have its type. What is made of a constant
/// is calculated here.
std::optional<QdqValue> value_of(EagerCall& call) {
  QdqValue x{.sizes = call.sizes(0), .type = call.type(0), .base = call.node.name};
  const std::optional<DType>& wanted = call.writer.state.options.trt_high_precision_dtype;
  if (wanted && *wanted != DType::Float32) {
    x.precision = onnx_type_of(*wanted);
    if (x.precision != x.type) {
      call.refuse(fmt::format("trt_high_precision_dtype: expected Float32 or its {}, got {}",
                              to_string(x.type), *wanted));
      return {};
    }
  }
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
  std::optional<QdqValue> value = value_of(call);
  if (!value) return false;
  QdqValue& x = *value;
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

// amax ---------------------------------------------------------------------------------------------

/// ModelOpt's nodes where TensorRT runs the file.
QuantizerNodes nodes_of(const EagerCall& call) {
  return call.writer.state.options.target == OnnxTarget::TensorRT ? QuantizerNodes::ModelOpt
                                                                  : QuantizerNodes::Standard;
}

/// A bias is subtracted before, and added after.
class Bias {
 public:
  Bias(EagerCall& call, std::size_t argument, QdqValue& x) : call_(call), x_(x) {
    if (!call.has(argument) || x.result.defined()) return;
    bias_ = call.writer.weight(call.name("bias"), call.constant(argument).to(*dtype_of(x.type)));
    x.name = call.part("Sub", {x.name, bias_});
    x.y = call.writer.state.unique_value(call.name("without_bias"));
  }
  void finish() {
    if (!bias_.empty()) call_.emit("Add", {x_.y, bias_});
  }

 private:
  EagerCall& call_;
  QdqValue& x_;
  std::string bias_;
};

/// Blocks of a weight that were rows of their own on the way through the quantizer: the Reshape
/// behind it gives the weight's sizes back, and its blocks stand in the file.
void join_blocks(EagerCall& call, QdqValue& x, Tensor& scale) {
  if (!x.result.defined() || x.sizes.size() != 2) return;
  if (scale.sizes() != Dims{x.sizes[0], 1}) return;  // one for each row
  const ValueId made = call.node.outputs[0];
  const std::vector<NodeId> users = call.writer.graph.users(made);
  if (users.size() != 1 || call.writer.graph.is_output(made)) return;
  const Node& next = call.writer.graph.nodes[static_cast<std::size_t>(users[0])];
  if (next.op != "Reshape" || !next.domain.empty()) return;
  Dims sizes;
  for (const OnnxDim& dim : *call.writer.value(next.outputs[0]).sizes) {
    sizes.push_back(dim.size.value_or(-1));
  }
  const std::int64_t block = x.sizes[1];
  if (sizes.empty() || product(sizes) != x.result.numel() || sizes.back() % block != 0) return;
  Dims blocks = sizes;
  blocks[blocks.size() - 1] /= block;
  scale = scale.contiguous().reshape(blocks);
  x.result = x.result.contiguous().reshape(sizes);
  x.sizes = sizes;
  call.wrote(0);
  x.y = call.writer.output(next.outputs[0]);
  call.writer.set_written(next.outputs[0]);
}

bool fake_tensor_quant(EagerCall& call) {
  if (!has_constants(call, 1)) return call.refuse(kCalculated);
  const TensorQuantOptions options{.num_bits = call.setting("num_bits", std::int64_t{8}),
                                   .is_unsigned = call.setting("unsigned", false),
                                   .narrow_range = call.setting("narrow_range", true)};
  IntegerGrid grid = integer_grid(call.constant(1), options);
  std::optional<QdqValue> value = value_of(call);
  if (!value) return false;
  QdqValue& x = *value;
  if (x.result.defined() && call.has(2)) return call.refuse("a constant with a bias");
  const std::string why = refusal(x, grid);
  if (!why.empty()) return call.refuse(why);
  join_blocks(call, x, grid.scale);
  name(call, x);
  if (!x.result.defined()) call.writer.state.torch_arithmetic = true;
  Bias bias(call, 2, x);
  append_qdq(call.writer, x, grid);
  bias.finish();
  return true;
}

bool fake_affine_tensor_quant(EagerCall& call) {
  if (!has_constants(call, 1)) return call.refuse(kCalculated);
  const math::AffineRange range =
      math::affine_range(floats_of(call.constant(1))[0], floats_of(call.constant(2))[0],
                         call.setting("num_bits", std::int64_t{8}));
  return write(call,
               {.scale = Tensor::scalar(range.step, DType::Float32),
                .zero_point = Tensor::scalar(-range.zero, DType::Float32),
                .low = static_cast<std::int64_t>(range.low),
                .high = static_cast<std::int64_t>(range.high)},
               Rounding::Onnx);
}

bool write(EagerCall& call, FloatGrid grid, std::size_t bias_argument) {
  std::optional<QdqValue> value = value_of(call);
  if (!value) return false;
  QdqValue& x = *value;
  const bool has_bias = call.has(bias_argument);
  if (x.result.defined() && has_bias) return call.refuse("a constant with a bias");
  const bool for_tensorrt = nodes_of(call) == QuantizerNodes::ModelOpt;
  if (for_tensorrt && !x.result.defined()) {
    const std::string why = trt_refusal(grid);
    if (!why.empty()) return call.refuse(why);
  }
  join_blocks(call, x, grid.scale);
  name(call, x);
  Bias bias(call, bias_argument, x);
  if (for_tensorrt && trt_refusal(grid).empty()) {
    append_trt_fp8(call.writer, x, grid);
  } else {
    append_qdq(call.writer, x, grid);
  }
  bias.finish();
  return true;
}

constexpr std::size_t kNoBias = 3;

bool scaled_e4m3(EagerCall& call) {
  if (!has_constants(call, 1)) return call.refuse(kCalculated);
  return write(call, e4m3_grid(call.has(1) ? call.constant(1) : Tensor()), 2);
}

/// FormatFakeQuantize of one scale.
bool scaled_float(EagerCall& call) {
  if (!has_constants(call, 1)) return call.refuse(kCalculated);
  FloatGrid grid = e4m3_grid(call.constant(1));
  if (call.setting("exponent_bits", std::int64_t{4}) == 5) {
    grid.type = OnnxType::Float8E5M2;
    grid.scale = Tensor::scalar(static_cast<double>(floats_of(grid.scale)[0]) * 448.0 / 57344.0,
                                DType::Float32);
  }
  return write(call, grid, kNoBias);
}

NumBits bits_of(const std::vector<std::int64_t>& numbers) {
  return numbers.size() == 1 ? NumBits::integer(numbers[0])
                             : NumBits::floating(numbers[0], numbers[1]);
}

bool dynamic_block_quant(EagerCall& call) {
  if (!has_constants(call, 1)) return call.refuse(kCalculated);
  using Bits = std::vector<std::int64_t>;
  Blocks blocks{.options = {.num_bits = bits_of(call.setting("num_bits", Bits{2, 1})),
                            .block_size = call.setting("block_size", std::int64_t{16})}};
  blocks.options.scale_bits.reset();
  if (call.is_set("scale_bits")) {
    blocks.options.scale_bits = bits_of(call.setting("scale_bits", Bits{4, 3}));
  }
  if (call.has(1)) blocks.amax = std::ranges::max(floats_of(call.constant(1)));
  std::optional<QdqValue> value = value_of(call);
  if (!value) return false;
  QdqValue& x = *value;
  if (x.result.defined()) {
    const Tensor amax = call.has(1) ? call.constant(1) : Tensor();
    blocks.scales = dynamic_block_quant_with_scales(call.constant(0), amax, blocks.options).scales;
  }
  const std::string why = refusal(x, blocks, nodes_of(call));
  if (!why.empty()) return call.refuse(why);
  name(call, x);
  append_blocks(call.writer, x, blocks, nodes_of(call));
  return true;
}

/// NVFP4 whose blocks are known.
bool static_fp4(EagerCall& call) {
  if (!has_constants(call, 1)) return call.refuse(kCalculated);
  const Tensor global = call.has(2) ? call.constant(2) : Tensor();
  const Fp4ScaleOptions options{
      .quantize_block_scales = call.setting("quantize_block_scales", true),
      .fp8_max = call.setting("fp8_max", 448.0)};
  const Tensor amax = call.constant(1);
  Tensor scale = compute_fp4_scales(amax, global, options);
  std::optional<QdqValue> value = value_of(call);
  if (!value) return false;
  QdqValue& x = *value;
  join_blocks(call, x, scale);
  name(call, x);
  if (x.result.defined() && options.quantize_block_scales) {
    const float largest = std::ranges::max(floats_of(global.defined() ? global : amax));
    const auto whole = static_cast<float>(static_cast<double>(largest) / options.fp8_max / 6.0);
    const float unit = whole > 0.0F ? whole : 1.0F;  // of a weight of zeros
    append_two_levels(call.writer, x, scale, unit);
  } else {
    append_qdq(call.writer, x, FloatGrid{OnnxType::Float4E2M1, scale});
  }
  return true;
}

// AIMET's float formats ----------------------------------------------------------------------------

aimet::FloatSpec spec_of(const EagerCall& call) {
  return {.exponent_bits = call.setting("exponent_bits", std::int64_t{0}),
          .mantissa_bits = call.setting("mantissa_bits", std::int64_t{0}),
          .finite = call.setting("finite", false),
          .unsigned_zero = call.setting("unsigned_zero", false)};
}

std::optional<OnnxType> float_type(const aimet::FloatSpec& spec) {
  if (spec == aimet::FloatSpec::from_name("float8_e4m3fn")) return OnnxType::Float8E4M3FN;
  if (spec == aimet::FloatSpec::from_name("float8_e5m2")) return OnnxType::Float8E5M2;
  if (spec == aimet::FloatSpec::from_name("float4_e2m1fn")) return OnnxType::Float4E2M1;
  if (spec == aimet::FloatSpec::from_name("float16")) return OnnxType::Float16;
  if (spec == aimet::FloatSpec::from_name("bfloat16")) return OnnxType::BFloat16;
  return std::nullopt;
}

/// 16 bits: a Cast there and back.
bool cast_there_and_back(EagerCall& call, OnnxType type, double largest) {
  if (std::ranges::any_of(floats_of(call.constant(1)), [](float s) { return s != 1.0F; })) {
    return call.refuse("a scale of 16-bit floats other than 1");
  }
  const auto to = [](OnnxType target) {
    return OnnxAttributes{{"to", static_cast<std::int64_t>(target)}};
  };
  const std::string x = call.input(0);
  // Beyond the largest number Cast would give infinity.
  call.need(11, "Clip");
  const std::string clipped =
      call.part("Clip", {x, call.scalar("low", -largest), call.scalar("high", largest)});
  const OnnxType own = call.type(0);
  call.emit("Cast", {call.part("Cast", {clipped}, to(type))}, to(own));
  return true;
}

bool float_quantize_dequantize(EagerCall& call) {
  if (!has_constants(call, 1)) return call.refuse(kCalculated);
  const aimet::FloatSpec spec = spec_of(call);
  const std::optional<OnnxType> type = float_type(spec);
  if (!type) {
    return call.refuse(fmt::format(
        "the format {}, which ONNX has not: choose float8_e4m3fn, float8_e5m2, float4_e2m1fn, "
        "float16 or bfloat16",
        spec.name()));
  }
  if (*type == OnnxType::Float16 || *type == OnnxType::BFloat16) {
    return cast_there_and_back(call, *type, spec.max());
  }
  return write(call, FloatGrid{*type, call.constant(1)}, kNoBias);
}

constexpr EagerRow kRows[] = {
    {"fake_quantize_per_tensor_affine", fake_quantize<false, false>},
    {"fake_quantize_per_channel_affine", fake_quantize<true, false>},
    {"fake_quantize_learnable_per_tensor_affine", fake_quantize<false, true>},
    {"fake_quantize_learnable_per_channel_affine", fake_quantize<true, true>},
    {"quantize_dequantize_affine", quantize_dequantize_affine},
    {"float_quantize_dequantize", float_quantize_dequantize},
    {"fake_tensor_quant", fake_tensor_quant},
    {"legacy_fake_tensor_quant", fake_tensor_quant},
    {"fake_affine_tensor_quant", fake_affine_tensor_quant},
    {"scaled_e4m3", scaled_e4m3},
    {"FormatFakeQuantize", scaled_float},
    {"dynamic_block_quant", dynamic_block_quant},
    {"static_fp4", static_fp4},
};

}  // namespace

std::span<const EagerRow> eager_quantizers() { return kRows; }

}  // namespace quanta::graph::detail
