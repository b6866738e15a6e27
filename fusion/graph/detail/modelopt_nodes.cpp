#include "quanta/fusion/graph/detail/modelopt_nodes.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/runtime/amax_math.h"
#include "quanta/runtime/check.h"

namespace quanta::graph::detail {
namespace {

constexpr std::string_view kTrt = "trt";
constexpr NumBits kE4M3 = NumBits::floating(4, 3);
constexpr NumBits kE5M2 = NumBits::floating(5, 2);
constexpr NumBits kE2M1 = NumBits::floating(2, 1);
constexpr NumBits kE8M0 = NumBits::floating(8, 0);
constexpr float kLargestE4M3 = 448.0F;
// Blocks whose scale would be smaller are zeros to float32's kernels.
constexpr double kSmallestNormal = 0x1p-126;

using Names = std::vector<std::string>;
using Numbers = std::vector<std::int64_t>;

std::vector<float> floats_of(const Tensor& x) {
  return x.contiguous().to(DType::Float32).to_float_vector();
}

Tensor mapped(const Tensor& amax, auto&& unit) {
  std::vector<float> values = floats_of(amax);
  for (float& value : values) value = unit(value);
  return Tensor::from_values(values, amax.sizes());
}

/// The type of the elements' codes; nothing for formats that ONNX has not.
std::optional<OnnxType> element_type(const NumBits& bits) {
  if (bits == kE4M3) return OnnxType::Float8E4M3FN;
  if (bits == kE5M2) return OnnxType::Float8E5M2;
  if (bits == kE2M1) return OnnxType::Float4E2M1;
  if (!bits.is_float) return OnnxType::Int8;
  return std::nullopt;
}

float largest_of(const NumBits& bits) {
  if (bits == kE4M3) return kLargestE4M3;
  if (bits == kE5M2) return 57344.0F;
  if (bits == kE2M1) return 6.0F;
  return static_cast<float>((std::int64_t{1} << (bits.bits - 1)) - 1);
}

IntegerGrid element_grid(const NumBits& bits, const Tensor& scale) {
  const auto largest = static_cast<std::int64_t>(largest_of(bits));
  return {.scale = scale, .low = -largest, .high = largest};
}

/// 1 / t: what float8 scales of blocks are multiples of.
float unit_of(const Blocks& blocks) {
  if (!blocks.amax || *blocks.amax == 0.0F || !std::isfinite(*blocks.amax)) return 1.0F;
  return *blocks.amax / largest_of(blocks.options.num_bits) / kLargestE4M3;
}

OnnxType precision_of(const QdqValue& x) {
  return x.precision == OnnxType::Undefined ? OnnxType::Float : x.precision;
}

OnnxAttributes block_attributes(const Blocks& blocks) {
  return {{"axis", std::int64_t{-1}}, {"block_size", blocks.options.block_size}};
}

/// Nodes of one chain.
class Chain {
 public:
  Chain(NodeSink& sink, const QdqValue& x) : sink_(sink), x_(x) {}

  std::string add(std::string_view op, Names inputs, OnnxAttributes attributes = {},
                  std::string_view domain = "") {
    std::string y = sink_.unique_value(fmt::format("{}_{}", x_.base, op));
    emit(op, std::move(inputs), {y}, std::move(attributes), domain);
    return y;
  }
  void emit(std::string_view op, Names inputs, Names outputs, OnnxAttributes attributes = {},
            std::string_view domain = "") {
    sink_.emit(fmt::format("{}_{}", x_.base, op), op, std::move(inputs), std::move(outputs),
               std::move(attributes), domain);
  }
  std::string number(std::string_view suffix, double value, OnnxType type = OnnxType::Float) {
    return sink_.weight(fmt::format("{}_{}", x_.base, suffix),
                        Tensor::scalar(value, *dtype_of(type)));
  }
  std::string integers(std::string_view suffix, const Numbers& values) {
    return sink_.weight(fmt::format("{}_{}", x_.base, suffix), Tensor::from_int64(values));
  }
  std::string cast(const std::string& x, OnnxType from, OnnxType to) {
    if (from == to) return x;
    return add("Cast", {x}, {{"to", static_cast<std::int64_t>(to)}});
  }
  /// The last node, whose result has `type`, and a Cast back to the value's type where that differs.
  void end(std::string_view op, Names inputs, OnnxType type, OnnxAttributes attributes = {}) {
    if (type == x_.type) return emit(op, std::move(inputs), {x_.y}, std::move(attributes), kTrt);
    finish(add(op, std::move(inputs), std::move(attributes), kTrt), type);
  }
  /// A Cast back to the value's type, or Identity.
  void finish(const std::string& made, OnnxType type) {
    if (type == x_.type) return emit("Identity", {made}, {x_.y});
    emit("Cast", {made}, {x_.y}, {{"to", static_cast<std::int64_t>(x_.type)}});
  }

 private:
  NodeSink& sink_;
  const QdqValue& x_;
};

void append_trt_nvfp4(NodeSink& sink, const QdqValue& x, const Blocks& blocks) {
  Chain chain(sink, x);
  const OnnxType precision = precision_of(x);
  const std::string in = chain.cast(x.name, x.type, precision);
  const std::string unit = chain.number("scale", unit_of(blocks));
  const std::string codes = sink.unique_value(x.base + "_float4");
  const std::string scales = sink.unique_value(x.base + "_float8_scales");
  OnnxAttributes attributes = block_attributes(blocks);
  attributes["scale_type"] = static_cast<std::int64_t>(OnnxType::Float8E4M3FN);
  chain.emit("TRT_FP4DynamicQuantize", {in, unit}, {codes, scales}, std::move(attributes), kTrt);
  const std::string steps = chain.add("DequantizeLinear", {scales, unit}, {}, kTrt);
  chain.end("DequantizeLinear", {codes, steps}, precision, block_attributes(blocks));
}

void append_trt_mxfp8(NodeSink& sink, const QdqValue& x, const Blocks& blocks) {
  Chain chain(sink, x);
  OnnxAttributes quantize = block_attributes(blocks);
  quantize["output_dtype"] = static_cast<std::int64_t>(OnnxType::Float8E4M3FN);
  OnnxAttributes dequantize = block_attributes(blocks);
  dequantize["output_dtype"] = static_cast<std::int64_t>(x.type);
  std::string codes = sink.unique_value(x.base + "_float8");
  std::string scales = sink.unique_value(x.base + "_exponents");
  if (x.result.defined()) {
    // Exponents of E8M0 as the bytes that they are.
    std::vector<std::int64_t> exponents;
    for (const float scale : floats_of(blocks.scales)) {
      exponents.push_back(static_cast<std::int64_t>(std::ilogb(scale)) + 127);
    }
    codes = sink.weight(codes, float_codes(x.result, blocks.scales, OnnxType::Float8E4M3FN),
                        OnnxType::Float8E4M3FN);
    scales = sink.weight(
        scales, Tensor::from_int64(exponents).to(DType::UInt8).reshape(blocks.scales.sizes()));
  } else {
    chain.emit("TRT_MXFP8DynamicQuantize", {x.name}, {codes, scales}, std::move(quantize), kTrt);
  }
  chain.emit("TRT_MXFP8DequantizeLinear", {codes, scales}, {x.y}, std::move(dequantize), kTrt);
}

bool has_trt_nodes(const Blocks& blocks) {
  const DynamicBlockOptions& options = blocks.options;
  if (options.scale_bits == kE8M0) return options.num_bits == kE4M3;
  return options.scale_bits == kE4M3 && options.num_bits == kE2M1;
}

/// 2^ceil(log2(r)). A logarithm that is off by a rounding is put right by comparison.
std::string power_above(Chain& chain, const std::string& ratio) {
  const std::string r = chain.add("Max", {ratio, chain.number("smallest", kSmallestNormal)});
  const std::string log =
      chain.add("Mul", {chain.add("Log", {r}), chain.number("per_octave", 1.4426950408889634)});
  const std::string near = chain.add("Pow", {chain.number("two", 2.0), chain.add("Ceil", {log})});
  const std::string half = chain.add("Mul", {near, chain.number("half", 0.5)});
  const std::string low = chain.add("Where", {chain.add("GreaterOrEqual", {half, r}), half, near});
  const std::string twice = chain.add("Mul", {low, chain.number("two", 2.0)});
  return chain.add("Where", {chain.add("Less", {low, r}), twice, low});
}

void append_standard_blocks(NodeSink& sink, const QdqValue& x, const Blocks& blocks) {
  Chain chain(sink, x);
  const DynamicBlockOptions& options = blocks.options;
  sink.need(18, "ReduceMax with axes as an input");
  const std::string in = chain.cast(x.name, x.type, OnnxType::Float);
  Numbers split(x.sizes.begin(), x.sizes.end() - 1);
  split.push_back(x.sizes.back() / options.block_size);
  split.push_back(options.block_size);
  const std::string rows = chain.add("Reshape", {in, chain.integers("blocks", split)});
  const std::string largest =
      chain.add("ReduceMax", {chain.add("Abs", {rows}), chain.integers("last", {-1})});
  const std::string ratio =
      chain.add("Div", {largest, chain.number("largest", largest_of(options.num_bits))});
  std::string scale = ratio;
  if (options.scale_bits == kE8M0) {
    scale = power_above(chain, ratio);
  } else if (options.scale_bits == kE4M3) {
    const double unit = static_cast<double>(unit_of(blocks));
    QdqValue scales{.name = ratio, .base = x.base + "_scales"};
    scales.y = sink.unique_value(scales.base + "_rounded");
    append_qdq(sink, scales,
               FloatGrid{OnnxType::Float8E4M3FN, Tensor::scalar(unit, DType::Float32)});
    scale = scales.y;
  }
  // Blocks with a scale of 0 become 0 by the product; what they are divided by does not matter.
  const std::string divisor = chain.add(
      "Where",
      {chain.add("Equal", {scale, chain.number("zero", 0.0)}), chain.number("one", 1.0), scale});
  QdqValue parts{.name = chain.add("Div", {rows, divisor}), .base = x.base + "_elements"};
  parts.y = sink.unique_value(parts.base + "_rounded");
  const Tensor one = Tensor::scalar(1.0, DType::Float32);
  const OnnxType type = *element_type(options.num_bits);
  if (type == OnnxType::Int8) {
    append_qdq(sink, parts, element_grid(options.num_bits, one));
  } else {
    append_qdq(sink, parts, FloatGrid{type, one});
  }
  const std::string product = chain.add("Mul", {parts.y, scale});
  Numbers sizes(x.sizes.begin(), x.sizes.end());
  const std::string shape = chain.integers("sizes", sizes);
  if (x.type == OnnxType::Float) return chain.emit("Reshape", {product, shape}, {x.y});
  chain.finish(chain.add("Reshape", {product, shape}), OnnxType::Float);
}

void append_constant_blocks(NodeSink& sink, const QdqValue& x, const Blocks& blocks) {
  const DynamicBlockOptions& options = blocks.options;
  const OnnxType type = *element_type(options.num_bits);
  // A block of zeros may have any scale.
  const Tensor scales = mapped(blocks.scales, [](float s) { return s > 0.0F ? s : 1.0F; });
  if (type == OnnxType::Int8) {
    append_qdq(sink, x, element_grid(options.num_bits, scales));
  } else if (type == OnnxType::Float4E2M1 && options.scale_bits == kE4M3) {
    append_two_levels(sink, x, blocks.scales, unit_of(blocks));
  } else {
    append_qdq(sink, x, FloatGrid{type, scales});
  }
}

}  // namespace

IntegerGrid integer_grid(const Tensor& amax, const TensorQuantOptions& options) {
  const math::AmaxGrid grid =
      math::amax_grid(options.num_bits, options.is_unsigned, options.narrow_range);
  const Tensor scale = mapped(
      amax, [&](float value) { return value <= math::kSmallestAmax ? 1.0F : value / grid.max; });
  return {.scale = scale,
          .low = static_cast<std::int64_t>(grid.min),
          .high = static_cast<std::int64_t>(grid.max)};
}

FloatGrid e4m3_grid(const Tensor& amax) {
  if (!amax.defined()) {
    return {OnnxType::Float8E4M3FN, Tensor::scalar(1.0, DType::Float32)};
  }
  return {OnnxType::Float8E4M3FN, mapped(amax, [](float value) {
            return (value <= math::kSmallestAmax ? 1.0F : value) / kLargestE4M3;
          })};
}

std::string trt_refusal(const FloatGrid& grid) {
  if (grid.type != OnnxType::Float8E4M3FN) {
    return fmt::format("{}: TensorRT has E4M3 alone", to_string(grid.type));
  }
  return grid.scale.numel() == 1 ? "" : "float8 with several scales: TensorRT takes one";
}

void append_trt_fp8(NodeSink& sink, const QdqValue& x, const FloatGrid& grid) {
  Chain chain(sink, x);
  const OnnxType precision = precision_of(x);
  const std::string scale =
      sink.weight(x.base + "_scale", grid.scale.reshape({}).to(*dtype_of(precision)), precision);
  std::string codes;
  if (x.result.defined()) {
    codes =
        sink.weight(x.base + "_quantized", float_codes(x.result, grid.scale, grid.type), grid.type);
  } else {
    codes = chain.add("TRT_FP8QuantizeLinear", {chain.cast(x.name, x.type, precision), scale}, {},
                      kTrt);
  }
  chain.end("TRT_FP8DequantizeLinear", {codes, scale}, precision);
}

void append_trt_int4(NodeSink& sink, const QdqValue& x, const IntegerGrid& grid, std::int64_t axis,
                     std::int64_t block_size) {
  Chain chain(sink, x);
  const OnnxType precision = precision_of(x);
  const std::string scale =
      sink.weight(x.base + "_scale", grid.scale.to(*dtype_of(precision)), precision);
  chain.end("DequantizeLinear", {chain.cast(x.name, x.type, precision), scale}, precision,
            {{"axis", axis}, {"block_size", block_size}});
}

std::string refusal(const QdqValue& x, const Blocks& blocks, QuantizerNodes nodes) {
  const DynamicBlockOptions& options = blocks.options;
  const std::string format = to_string(options.num_bits);
  if (!options.num_bits.is_float && (options.num_bits.bits < 2 || options.num_bits.bits > 8)) {
    return fmt::format("elements of {} bits: there are integers of 2 to 8", options.num_bits.bits);
  }
  if (!element_type(options.num_bits)) {
    return fmt::format("elements of {}: ONNX has (4, 3), (5, 2), (2, 1) and integers", format);
  }
  if (options.scale_bits && options.scale_bits != kE8M0 && options.scale_bits != kE4M3) {
    return fmt::format("scales of {}: ONNX has (8, 0) and (4, 3)", to_string(*options.scale_bits));
  }
  if (x.sizes.empty() || x.sizes.back() < 1 || x.sizes.back() % options.block_size != 0) {
    return fmt::format(
        "blocks of {} that do not divide the last axis of {}: leave this module without a QConfig",
        options.block_size, x.sizes);
  }
  if (nodes == QuantizerNodes::ModelOpt && !x.result.defined() && !has_trt_nodes(blocks)) {
    return fmt::format(
        "dynamic blocks of {}: TensorRT has NVFP4 and MXFP8; the standard nodes have it", format);
  }
  return "";
}

void append_blocks(NodeSink& sink, const QdqValue& x, const Blocks& blocks, QuantizerNodes nodes) {
  const bool is_mxfp8 = blocks.options.scale_bits == kE8M0 && blocks.options.num_bits == kE4M3;
  if (nodes == QuantizerNodes::ModelOpt && is_mxfp8) return append_trt_mxfp8(sink, x, blocks);
  if (x.result.defined()) return append_constant_blocks(sink, x, blocks);
  if (nodes == QuantizerNodes::ModelOpt) return append_trt_nvfp4(sink, x, blocks);
  append_standard_blocks(sink, x, blocks);
}

void append_two_levels(NodeSink& sink, const QdqValue& x, const Tensor& scales, float unit) {
  const ScaleLayout layout = scale_layout(x.sizes, scales);
  const Tensor positive = mapped(scales, [](float s) { return s > 0.0F ? s : 1.0F; });
  const Tensor step = Tensor::scalar(static_cast<double>(unit), DType::Float32);
  const std::string steps =
      append_coded(sink, x.base + "_scale",
                   {.codes = float_codes(layout.scale, step, OnnxType::Float8E4M3FN),
                    .scales = step,
                    .type = OnnxType::Float8E4M3FN});
  const std::string codes =
      sink.weight(x.base + "_quantized", float_codes(x.result, positive, OnnxType::Float4E2M1),
                  OnnxType::Float4E2M1);
  const bool casts = x.type != OnnxType::Float;
  const std::string made = casts ? sink.unique_value(x.base + "_dequantized") : x.y;
  append_dequantize(sink, x.base + "_DequantizeLinear", codes,
                    {.scale = steps,
                     .axis = layout.axis,
                     .block_size = layout.block_size,
                     .type = OnnxType::Float4E2M1},
                    made);
  if (casts) Chain(sink, x).finish(made, OnnxType::Float);
}

}  // namespace quanta::graph::detail
