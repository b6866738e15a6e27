#include "quanta/fusion/graph/detail/qdq_nodes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "quanta/runtime/check.h"
#include "quanta/runtime/error.h"

namespace quanta::graph::detail {
namespace {

constexpr std::int64_t kFirstQdq = 10;
constexpr std::int64_t kFirstAxis = 13;
constexpr std::int64_t kFirstFloat8 = 19;
constexpr std::int64_t kFirstBlocks = 21;
constexpr std::int64_t kFirstFloat4 = 23;

OnnxAttributes attributes_of(const QdqParameters& parameters) {
  OnnxAttributes attributes;
  if (parameters.axis >= 0) attributes["axis"] = parameters.axis;
  if (parameters.block_size > 0) attributes["block_size"] = parameters.block_size;
  return attributes;
}

void need_for(NodeSink& sink, std::string_view op, const QdqParameters& parameters) {
  const auto text = [&](std::string_view what) { return fmt::format("{} {}", op, what); };
  sink.need(kFirstQdq, op);
  if (parameters.axis >= 0) sink.need(kFirstAxis, text("per channel"));
  if (parameters.block_size > 0) sink.need(kFirstBlocks, text("in blocks"));
  switch (parameters.type) {
    case OnnxType::Int4:
    case OnnxType::UInt4:
      return sink.need(kFirstBlocks, text("of 4 bits"));
    case OnnxType::Int16:
    case OnnxType::UInt16:
      return sink.need(kFirstBlocks, text("of 16 bits"));
    case OnnxType::Float8E4M3FN:
    case OnnxType::Float8E5M2:
      return sink.need(kFirstFloat8, text("of float8"));
    case OnnxType::Float4E2M1:
      return sink.need(kFirstFloat4, text("of float4"));
    default:
      return;
  }
}

/// The sizes of `values` with as many axes as `x` has.
Dims aligned(const Dims& x, const Tensor& values) {
  Dims sizes = Dims::filled(x.size(), 1);
  const auto rank = static_cast<std::size_t>(values.dim());
  if (rank > x.size()) {
    // More axes than x has: leading ones of size 1.
    throw InternalError(fmt::format("scales of {} for {}", values.sizes(), x));
  }
  for (std::size_t d = 0; d < rank; ++d) sizes[x.size() - rank + d] = values.sizes()[d];
  return sizes;
}

/// Every value `times` times in a row along an axis.
Tensor repeated(const Tensor& values, std::size_t axis, std::int64_t times) {
  if (times == 1) return values;
  Dims expanded = values.sizes();
  expanded.insert(axis + 1, times);
  Dims joined = values.sizes();
  joined[axis] *= times;
  return values.unsqueeze(static_cast<std::int64_t>(axis) + 1).expand(expanded).reshape(joined);
}

/// The type that holds the codes; of activations one of 8 bits at least, which everybody runs.
std::optional<OnnxType> code_type(const IntegerGrid& grid, bool is_constant, bool in_blocks) {
  const auto within = [&](std::int64_t low, std::int64_t high) {
    return grid.low >= low && grid.high <= high;
  };
  if (is_constant && in_blocks) {
    if (within(-8, 7)) return OnnxType::Int4;
    if (within(0, 15)) return OnnxType::UInt4;
  }
  if (within(0, 255)) return OnnxType::UInt8;
  if (within(-128, 127)) return OnnxType::Int8;
  if (within(0, 65535)) return OnnxType::UInt16;
  if (within(-32768, 32767)) return OnnxType::Int16;
  if (is_constant &&
      within(std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max())) {
    return OnnxType::Int32;
  }
  return std::nullopt;
}

std::pair<std::int64_t, std::int64_t> range_of(OnnxType type) {
  switch (type) {
    case OnnxType::UInt8:
      return {0, 255};
    case OnnxType::UInt16:
      return {0, 65535};
    case OnnxType::Int16:
      return {-32768, 32767};
    default:
      return {-128, 127};
  }
}

bool is_zero(const Tensor& values) {
  return !values.defined() || std::ranges::all_of(values.to(DType::Float32).to_float_vector(),
                                                  [](float one) { return one == 0.0F; });
}

Tensor integers(const std::vector<std::int64_t>& codes, const Dims& sizes, OnnxType type) {
  return Tensor::from_int64(codes).to(*dtype_of(type)).reshape(sizes);
}

Tensor zero_points_as(const Tensor& zero_point, const Tensor& scale, OnnxType type) {
  const DType dtype = *dtype_of(type);
  if (!zero_point.defined()) return Tensor::zeros(scale.sizes(), dtype);
  return zero_point.to(DType::Int64).to(dtype);
}

OnnxType wider(OnnxType precision) {
  return precision == OnnxType::Undefined ? OnnxType::Float : precision;
}

/// The names that Q and DQ work between, with Casts around them.
class Casts {
 public:
  Casts(NodeSink& sink, const QdqValue& x) : sink_(sink), x_(x), precision_(wider(x.precision)) {}

  std::string input() {
    if (x_.type == precision_) return x_.name;
    std::string cast = sink_.unique_value(x_.base + "_cast");
    sink_.emit(x_.base + "_Cast", "Cast", {x_.name}, {cast}, to(precision_));
    return cast;
  }
  std::string output() {
    return x_.type == precision_ ? x_.y : sink_.unique_value(x_.base + "_dequantized");
  }
  void finish(const std::string& made) {
    if (made == x_.y) return;
    sink_.emit(x_.base + "_Cast_back", "Cast", {made}, {x_.y}, to(x_.type));
  }

 private:
  static OnnxAttributes to(OnnxType type) { return {{"to", static_cast<std::int64_t>(type)}}; }

  NodeSink& sink_;
  const QdqValue& x_;
  OnnxType precision_;
};

Tensor in_precision(const Tensor& scale, const QdqValue& x) {
  return scale.to(*dtype_of(wider(x.precision)));
}

std::vector<float> floats_of(const Tensor& x) {
  return x.contiguous().to(DType::Float32).to_float_vector();
}

/// The codes nearest to values.
std::vector<std::int64_t> codes_of(const Tensor& x, const IntegerGrid& grid) {
  const std::vector<float> values = floats_of(x);
  const std::vector<float> scales = spread_over(x.sizes(), grid.scale);
  const std::vector<float> zeros = grid.zero_point.defined()
                                       ? spread_over(x.sizes(), grid.zero_point)
                                       : std::vector<float>(values.size(), 0.0F);
  std::vector<std::int64_t> codes(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double code =
        std::nearbyint(static_cast<double>(values[i]) / static_cast<double>(scales[i])) +
        static_cast<double>(zeros[i]);
    const double clamped =
        std::clamp(code, static_cast<double>(grid.low), static_cast<double>(grid.high));
    codes[i] = std::isnan(code) ? grid.low : static_cast<std::int64_t>(clamped);
  }
  return codes;
}

}  // namespace

bool holds(OnnxType type, DType dtype) {
  if (type == OnnxType::Float4E2M1) return dtype == DType::UInt8;
  return type != OnnxType::Undefined && dtype_of(type) == dtype;
}

void append_quantize(NodeSink& sink, std::string_view name, const std::string& x,
                     const QdqParameters& parameters, const std::string& y) {
  need_for(sink, "QuantizeLinear", parameters);
  OnnxAttributes attributes = attributes_of(parameters);
  std::vector<std::string> inputs{x, parameters.scale};
  if (!parameters.zero_point.empty()) {
    inputs.push_back(parameters.zero_point);
  } else if (parameters.type != OnnxType::Undefined) {
    sink.need(kFirstBlocks, "QuantizeLinear with output_dtype");
    attributes["output_dtype"] = static_cast<std::int64_t>(parameters.type);
  }
  sink.emit(name, "QuantizeLinear", std::move(inputs), {y}, std::move(attributes));
}

void append_dequantize(NodeSink& sink, std::string_view name, const std::string& codes,
                       const QdqParameters& parameters, const std::string& y) {
  need_for(sink, "DequantizeLinear", parameters);
  std::vector<std::string> inputs{codes, parameters.scale};
  if (!parameters.zero_point.empty()) inputs.push_back(parameters.zero_point);
  sink.emit(name, "DequantizeLinear", std::move(inputs), {y}, attributes_of(parameters));
}

std::string append_coded(NodeSink& sink, std::string_view base, const CodedWeight& coded,
                         std::string y) {
  const std::string codes = sink.weight(fmt::format("{}_quantized", base), coded.codes, coded.type);
  QdqParameters parameters{.scale = sink.weight(fmt::format("{}_scale", base), coded.scales),
                           .axis = coded.axis,
                           .block_size = coded.block_size,
                           .type = coded.type};
  if (coded.zero_points.defined()) {
    parameters.zero_point =
        sink.weight(fmt::format("{}_zero_point", base), coded.zero_points, coded.type);
  }
  if (y.empty()) y = sink.unique_value(fmt::format("{}_dequantized", base));
  append_dequantize(sink, fmt::format("{}_DequantizeLinear", base), codes, parameters, y);
  return y;
}

ScaleLayout scale_layout(const Dims& x, const Tensor& scale, const Tensor& zero_point) {
  ScaleLayout result;
  const auto keep = [](const Tensor& values, const Dims& sizes) {
    return values.defined() ? values.contiguous().reshape(sizes) : values;
  };
  if (scale.numel() == 1) {
    result.scale = keep(scale, {});
    result.zero_point = keep(zero_point, {});
    return result;
  }
  const Dims sizes = aligned(x, scale);
  std::vector<std::size_t> shared;  // axes along which several elements have one scale
  std::vector<std::size_t> many;    // axes with several scales
  for (std::size_t d = 0; d < x.size(); ++d) {
    if (sizes[d] < 1 || x[d] % sizes[d] != 0) {
      throw InternalError(fmt::format("scales of {} for {}", scale.sizes(), x));
    }
    if (sizes[d] != x[d]) shared.push_back(d);
    if (sizes[d] != 1) many.push_back(d);
  }
  if (many.size() == 1 && sizes[many[0]] == x[many[0]]) {
    result.axis = static_cast<std::int64_t>(many[0]);
    result.scale = keep(scale, {scale.numel()});
    result.zero_point = keep(zero_point, {scale.numel()});
    return result;
  }
  const std::size_t axis = shared.empty() ? x.size() - 1 : shared.back();
  const auto to_blocks = [&](const Tensor& values) {
    if (!values.defined()) return values;
    Tensor blocks = keep(values, sizes);
    for (const std::size_t d : shared) {
      if (d != axis) blocks = repeated(blocks, d, x[d] / sizes[d]);
    }
    return blocks.contiguous();
  };
  result.axis = static_cast<std::int64_t>(axis);
  result.block_size = x[axis] / sizes[axis];
  result.scale = to_blocks(scale);
  result.zero_point = to_blocks(zero_point);
  return result;
}

std::vector<float> spread_over(const Dims& x, const Tensor& values) {
  const Dims sizes = aligned(x, values);
  Tensor spread = values.contiguous().reshape(sizes);
  for (std::size_t d = 0; d < x.size(); ++d) {
    if (sizes[d] != x[d]) spread = repeated(spread, d, x[d] / sizes[d]);
  }
  return floats_of(spread);
}

std::string refusal(const QdqValue& x, const IntegerGrid& grid) {
  if (!code_type(grid, x.result.defined(), false)) {
    return fmt::format(
        "codes of {}..{}, which QuantizeLinear has not (at most 16 bits): switch this quantizer "
        "off "
        "(disable_fake_quant), or give it 16 bits",
        grid.low, grid.high);
  }
  for (const float scale : floats_of(grid.scale)) {
    if (!std::isfinite(scale) || scale <= 0.0F) {
      return fmt::format("a scale of {}: expected finite ones above 0", scale);
    }
  }
  if (!grid.zero_point.defined()) return "";
  if (code_type(grid, x.result.defined(), false) == OnnxType::Int32 && !is_zero(grid.zero_point)) {
    return "codes of 32 bits with a zero point, which DequantizeLinear has not";
  }
  for (const float zero : floats_of(grid.zero_point)) {
    if (zero != std::nearbyint(zero)) {
      return fmt::format("a zero point of {}: ONNX has whole ones alone", zero);
    }
    if (zero < static_cast<float>(grid.low) || zero > static_cast<float>(grid.high)) {
      return fmt::format("a zero point of {} outside {}..{}", zero, grid.low, grid.high);
    }
  }
  return "";
}

void append_qdq(NodeSink& sink, const QdqValue& x, const IntegerGrid& grid) {
  const ScaleLayout layout = scale_layout(x.sizes, grid.scale, grid.zero_point);
  const bool is_constant = x.result.defined();
  const OnnxType type = *code_type(grid, is_constant, layout.block_size > 0);
  Casts casts(sink, x);
  const std::string made = casts.output();
  if (is_constant) {
    const std::vector<std::int64_t> codes = codes_of(x.result, grid);
    CodedWeight coded{.codes = integers(codes, x.sizes, type),
                      .scales = in_precision(layout.scale, x),
                      .axis = layout.axis,
                      .block_size = layout.block_size,
                      .type = type};
    // Codes of 32 bits have none.
    if (type != OnnxType::Int32 || !is_zero(layout.zero_point)) {
      coded.zero_points = zero_points_as(layout.zero_point, layout.scale, type);
    }
    append_coded(sink, x.base, coded, made);
    return casts.finish(made);
  }
  const std::string in = casts.input();
  const QdqParameters parameters{
      .scale = sink.weight(x.base + "_scale", in_precision(layout.scale, x)),
      .zero_point = sink.weight(x.base + "_zero_point",
                                zero_points_as(layout.zero_point, layout.scale, type), type),
      .axis = layout.axis,
      .block_size = layout.block_size,
      .type = type};
  std::string codes = sink.unique_value(x.base + "_quantized");
  append_quantize(sink, x.base + "_QuantizeLinear", in, parameters, codes);
  if (std::pair(grid.low, grid.high) != range_of(type)) {
    const auto end = [&](const char* suffix, std::int64_t code) {
      return sink.weight(x.base + suffix, integers({code}, {}, type), type);
    };
    std::string clipped = sink.unique_value(x.base + "_clipped");
    sink.need(12, "Clip of codes");
    sink.emit(x.base + "_Clip", "Clip", {codes, end("_low", grid.low), end("_high", grid.high)},
              {clipped});
    codes = std::move(clipped);
  }
  append_dequantize(sink, x.base + "_DequantizeLinear", codes, parameters, made);
  casts.finish(made);
}

namespace {

/// The codes nearest to numbers in E2M1: the sign, and the place among the magnitudes.
Tensor float4_codes(const std::vector<float>& values, const Dims& sizes) {
  constexpr std::array kMagnitudes{0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
  std::vector<std::int64_t> codes(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float magnitude = std::fabs(values[i]);
    std::size_t nearest = 0;
    for (std::size_t k = 1; k < kMagnitudes.size(); ++k) {
      const float here = std::fabs(magnitude - kMagnitudes[k]);
      const float best = std::fabs(magnitude - kMagnitudes[nearest]);
      // Ties go to the even mantissa.
      if (here < best || (here == best && k % 2 == 0)) nearest = k;
    }
    codes[i] = static_cast<std::int64_t>(nearest) + (std::signbit(values[i]) ? 8 : 0);
  }
  return Tensor::from_int64(codes).to(DType::UInt8).reshape(sizes);
}

}  // namespace

Tensor on_grid(const Tensor& values, const IntegerGrid& grid) {
  const std::vector<std::int64_t> codes = codes_of(values, grid);
  const std::vector<float> scales = spread_over(values.sizes(), grid.scale);
  const std::vector<float> zeros = grid.zero_point.defined()
                                       ? spread_over(values.sizes(), grid.zero_point)
                                       : std::vector<float>(codes.size(), 0.0F);
  std::vector<float> result(codes.size());
  for (std::size_t i = 0; i < codes.size(); ++i) {
    result[i] = (static_cast<float>(codes[i]) - zeros[i]) * scales[i];
  }
  return Tensor::from_values(result, values.sizes());
}

Tensor float_codes(const Tensor& values, const Tensor& scale, OnnxType type) {
  std::vector<float> codes = floats_of(values);
  const std::vector<float> scales = spread_over(values.sizes(), scale);
  const float largest = type == OnnxType::Float8E5M2 ? 57344.0F : 448.0F;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    codes[i] = std::clamp(codes[i] / scales[i], -largest, largest);
  }
  if (type == OnnxType::Float4E2M1) return float4_codes(codes, values.sizes());
  return Tensor::from_values(codes, values.sizes()).to(*dtype_of(type));
}

void append_qdq(NodeSink& sink, const QdqValue& x, const FloatGrid& grid) {
  const ScaleLayout layout = scale_layout(x.sizes, grid.scale);
  Casts casts(sink, x);
  const std::string made = casts.output();
  const Tensor scale = in_precision(layout.scale, x);
  if (x.result.defined()) {
    append_coded(sink, x.base,
                 {.codes = float_codes(x.result, grid.scale, grid.type),
                  .scales = scale,
                  .axis = layout.axis,
                  .block_size = layout.block_size,
                  .type = grid.type},
                 made);
    return casts.finish(made);
  }
  const std::string in = casts.input();
  QdqParameters parameters{.scale = sink.weight(x.base + "_scale", scale),
                           .axis = layout.axis,
                           .block_size = layout.block_size,
                           .type = grid.type};
  // float4 came after output_dtype.
  if (grid.type != OnnxType::Float4E2M1) {
    parameters.zero_point =
        sink.weight(x.base + "_zero_point",
                    Tensor::zeros(layout.scale.sizes()).to(*dtype_of(grid.type)), grid.type);
  }
  const std::string codes = sink.unique_value(x.base + "_quantized");
  append_quantize(sink, x.base + "_QuantizeLinear", in, parameters, codes);
  append_dequantize(sink, x.base + "_DequantizeLinear", codes, parameters, made);
  casts.finish(made);
}

}  // namespace quanta::graph::detail
