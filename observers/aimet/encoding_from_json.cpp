// Reading what encoding_json.cpp writes.

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <utility>

#include "quanta/observers/aimet/encoding_json.h"
#include "quanta/observers/aimet/float_encoding.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/json.h"
#include "quanta/runtime/detail/reading.h"

namespace quanta::aimet {
namespace {

using quanta::detail::Json;

constexpr std::string_view kOp = "encoding_from_json";

// Fields -----------------------------------------------------------------------------------------

const Json& field(const Json& object, std::string_view name) {
  const Json* value = object.find(name);
  QUANTA_CHECK(value != nullptr, "{}: {}: expected a value, got {}", kOp, name, "nothing");
  return *value;
}

const std::string& string_field(const Json& object, std::string_view name) {
  const Json& value = field(object, name);
  QUANTA_CHECK(value.as_string() != nullptr, "{}: {}: expected a string, got {}", kOp, name,
               value.kind());
  return *value.as_string();
}

const Json::Array& array_field(const Json& object, std::string_view name) {
  const Json& value = field(object, name);
  QUANTA_CHECK(value.as_array() != nullptr, "{}: {}: expected a list, got {}", kOp, name,
               value.kind());
  return *value.as_array();
}

std::int64_t whole(std::string_view name, const Json& value) {
  QUANTA_CHECK(value.as_int() != nullptr, "{}: {}: expected a whole number, got {}", kOp, name,
               value.kind());
  return *value.as_int();
}

std::int64_t integer_field(const Json& object, std::string_view name, std::int64_t least,
                           std::int64_t most) {
  const std::int64_t value = whole(name, field(object, name));
  QUANTA_CHECK(value >= least && value <= most, "{}: {}: expected {}..{}, got {}", kOp, name, least,
               most, value);
  return value;
}

std::int64_t bits_field(const Json& object, std::string_view name) {
  return integer_field(object, name, 1, 32);
}

float positive(std::string_view name, const Json& value) {
  QUANTA_CHECK(value.is_number(), "{}: {}: expected a number, got {}", kOp, name, value.kind());
  const auto single = static_cast<float>(value.as_number());
  QUANTA_CHECK(single > 0.0F && std::isfinite(single),
               "{}: {}: expected a finite float32 number > 0, got {}", kOp, name,
               value.as_number());
  return single;
}

// Numbers in lists within lists, row by row, with their sizes.
struct Nested {
  Dims sizes{};
  std::vector<Json> values{};
};

void collect(std::string_view name, const Json& value, std::size_t depth, Nested& nested) {
  const Json::Array* list = value.as_array();
  if (list == nullptr) {
    QUANTA_CHECK(depth == nested.sizes.size(), "{}: {}: expected lists of equal depth, got {}", kOp,
                 name, value.kind());
    nested.values.push_back(value);
    return;
  }
  const auto length = static_cast<std::int64_t>(list->size());
  if (depth == nested.sizes.size() && nested.values.empty()) {
    QUANTA_CHECK(length > 0 && depth < Dims::kMaxDims, "{}: {}: expected numbers, got {}", kOp,
                 name, "an empty list or too deep a one");
    nested.sizes.push_back(length);
  }
  QUANTA_CHECK(depth < nested.sizes.size() && nested.sizes[depth] == length,
               "{}: {}: expected lists of equal length, got one of {}", kOp, name, length);
  for (const Json& part : *list) collect(name, part, depth + 1, nested);
}

Nested nested_of(std::string_view name, const Json& value) {
  Nested nested;
  collect(name, value, 0, nested);
  return nested;
}

Tensor floats(const std::vector<float>& values, const Dims& sizes) {
  return Tensor::from_values(values, sizes);
}

// The scales, all > 0.
Tensor scales_of(std::string_view name, const std::vector<Json>& values, const Dims& sizes) {
  std::vector<float> numbers;
  for (const Json& value : values) numbers.push_back(positive(name, value));
  return floats(numbers, sizes);
}

// How many times larger than its channel's each scale of a block is.
Tensor block_factors(std::string_view name, const Nested& nested, const Dims& sizes) {
  std::vector<float> numbers;
  for (const Json& value : nested.values) {
    const std::int64_t factor = whole(name, value);
    QUANTA_CHECK(factor >= 1 && factor <= (std::int64_t{1} << 24),
                 "{}: {}: expected 1..2^24, got {}", kOp, name, factor);
    numbers.push_back(static_cast<float>(factor));
  }
  return floats(numbers, sizes);
}

std::int64_t count_of(const Dims& sizes) {
  std::int64_t result = 1;
  for (const std::int64_t size : sizes) result *= size;
  return result;
}

// Grouped blocks ---------------------------------------------------------------------------------

EncodingPtr grouped(const Tensor& factors, const Tensor& channel, const Dims& blocks,
                    const Grid& grid, std::int64_t decompressed_bw) {
  const Dims& sizes = factors.sizes();
  const Dims& groups = channel.sizes();
  QUANTA_CHECK(sizes.size() == groups.size(),
               "{}: per_channel_float_scale: expected as many dimensions as {}, got {}", kOp, sizes,
               groups);
  Dims grouping = sizes;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    QUANTA_CHECK(groups[d] > 0 && sizes[d] % groups[d] == 0,
                 "{}: per_channel_float_scale: expected sizes that divide {}, got {}", kOp, sizes,
                 groups);
    grouping[d] = sizes[d] / groups[d];
  }
  // Each scale of a channel stands for a group of blocks.
  Dims split;
  Dims between;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    split.push_back(groups[d]);
    split.push_back(1);
    between.push_back(groups[d]);
    between.push_back(grouping[d]);
  }
  const Tensor spread = channel.reshape(split).expand(between).contiguous().reshape(sizes);
  return std::make_shared<GroupedBlockEncoding>(
      mul(factors, spread), Tensor::zeros(sizes), grid, blocks,
      GroupedBlockEncoding::Groups{grouping, decompressed_bw, channel, factors});
}

// 0.6.1 and 1.0.0: lists without axes ------------------------------------------------------------

struct Layout {
  Dims sizes{};
  Dims blocks{};
};

Layout channels(std::int64_t count, const std::optional<Dims>& input_shape) {
  if (!input_shape.has_value()) return {{count}, {}};
  for (std::size_t d = 0; d < input_shape->size(); ++d) {
    if ((*input_shape)[d] != count) continue;
    Layout layout{Dims::filled(input_shape->size() - d, 1), {}};
    layout.sizes[0] = count;
    return layout;
  }
  throw ArgumentError(with_module_path(fmt::format(
      "{}: scale: expected as many as an axis of {} has, got {}", kOp, *input_shape, count)));
}

// Without sizes: `rows` scales of a channel axis, if there is one.
Layout block_layout(std::int64_t count, std::int64_t block, std::int64_t rows,
                    const std::optional<Dims>& input_shape) {
  if (!input_shape.has_value()) {
    if (rows == 0) return {{count}, {block}};
    QUANTA_CHECK(count % rows == 0, "{}: per_block_int_scale: expected a multiple of {}, got {}",
                 kOp, rows, count);
    return {{rows, count / rows}, {1, block}};
  }
  for (const std::size_t axis : {std::size_t{1}, std::size_t{0}}) {
    const Dims& shape = *input_shape;
    if (shape.size() < 2 || shape[axis] % block != 0) continue;
    if (shape[1 - axis] * (shape[axis] / block) != count) continue;
    Layout layout{Dims::filled(shape.size(), 1), Dims::filled(shape.size(), -1)};
    layout.sizes[axis] = shape[axis] / block;
    layout.sizes[1 - axis] = shape[1 - axis];
    layout.blocks[axis] = block;
    layout.blocks[1 - axis] = 1;
    return layout;
  }
  throw ArgumentError(with_module_path(fmt::format(
      "{}: block_size: expected {} blocks of {} in one of the first two axes of {}, got "
      "another number",
      kOp, count, block, *input_shape)));
}

// 0.6.1 writes blocks as so many scales: those of the second axis, else of the first.
Layout listed_layout(std::int64_t count, const std::optional<Dims>& input_shape) {
  if (count == 1) return {};
  const bool has_axes =
      input_shape.has_value() && input_shape->size() >= 2 &&
      std::find(input_shape->begin(), input_shape->end(), count) == input_shape->end();
  if (!has_axes) return channels(count, input_shape);
  for (const std::size_t axis : {std::size_t{1}, std::size_t{0}}) {
    const std::int64_t rows = (*input_shape)[1 - axis];
    if (rows == 0 || count % rows != 0 || (*input_shape)[axis] % (count / rows) != 0) continue;
    return block_layout(count, (*input_shape)[axis] / (count / rows), 0, input_shape);
  }
  return channels(count, input_shape);
}

// Offsets count from the lowest code there, and the sign is not written.
Grid listed_grid(std::int64_t bitwidth, bool symmetric) {
  return Grid::from_bitwidth(bitwidth, symmetric);
}

Tensor listed_offsets(const std::vector<Json>& values, const Grid& grid, const Dims& sizes) {
  std::vector<float> numbers;
  for (const Json& value : values) {
    const std::int64_t offset = whole("offset", value);
    QUANTA_CHECK(offset >= -(std::int64_t{1} << 33) && offset <= (std::int64_t{1} << 33),
                 "{}: offset: expected a number within 2^33, got {}", kOp, offset);
    numbers.push_back(static_cast<float>(offset - grid.qmin()));
  }
  return floats(numbers, sizes);
}

double shift_of(const Json& value) {
  QUANTA_CHECK(
      value.is_number() && (value.as_number() == 0.0 || value.as_number() == 0.5),
      "{}: zero_point_shift: expected 0 or 0.5, got {}", kOp,
      value.is_number() ? fmt::format("{}", value.as_number()) : std::string(value.kind()));
  return value.as_number();
}

// The ends that 0.6.1 writes beside scale and offset. Ends of symmetric grids without their lowest
// code are a step away, and float32 rounds.
void check_ends(const Json& one, const Grid& grid) {
  const auto scale = static_cast<double>(positive("scale", field(one, "scale")));
  const auto offset = static_cast<double>(whole("offset", field(one, "offset")));
  const auto steps = static_cast<double>(grid.num_steps());
  const auto check = [&](std::string_view name, double expected) {
    const Json* given = one.find(name);
    if (given == nullptr) return;
    QUANTA_CHECK(given->is_number(), "{}: {}: expected a number, got {}", kOp, name, given->kind());
    const double slack = 1.01 * scale + 1e-5 * scale * (steps + std::fabs(offset));
    QUANTA_CHECK(std::fabs(given->as_number() - expected) <= slack,
                 "{}: {}: expected {}, as scale and offset say, got {}", kOp, name, expected,
                 given->as_number());
  };
  check("min", scale * offset);
  check("max", scale * (offset + steps));
}

EncodingPtr float16_encoding() {
  return std::make_shared<FloatEncoding>(Tensor::scalar(1.0), FloatSpec::from_name("float16"));
}

EncodingPtr v0_6_1(const Json::Array& list, const std::optional<Dims>& input_shape) {
  QUANTA_CHECK(!list.empty(), "{}: encoding: expected an object for each scale, got none", kOp);
  if (string_field(list[0], "dtype") == "float") {
    QUANTA_CHECK(list.size() == 1 && bits_field(list[0], "bitwidth") == 16,
                 "{}: bitwidth: expected one float format of 16 bits, got another", kOp);
    return float16_encoding();
  }
  const std::int64_t bitwidth = bits_field(list[0], "bitwidth");
  const std::string& symmetric = string_field(list[0], "is_symmetric");
  QUANTA_CHECK(symmetric == "True" || symmetric == "False",
               "{}: is_symmetric: expected True or False, got {}", kOp, symmetric);
  const Grid grid = listed_grid(bitwidth, symmetric == "True");
  std::vector<Json> scales;
  std::vector<Json> offsets;
  double shift = 0.0;
  for (const Json& one : list) {
    QUANTA_CHECK(string_field(one, "dtype") == "int", "{}: dtype: expected int, got {}", kOp,
                 string_field(one, "dtype"));
    QUANTA_CHECK(
        bits_field(one, "bitwidth") == bitwidth && string_field(one, "is_symmetric") == symmetric,
        "{}: bitwidth: expected the same grid for all scales, got another one", kOp);
    check_ends(one, grid);
    scales.push_back(field(one, "scale"));
    offsets.push_back(field(one, "offset"));
    const Json* given = one.find("zero_point_shift");
    const double own = given == nullptr ? 0.0 : shift_of(*given);
    QUANTA_CHECK(scales.size() == 1 || own == shift,
                 "{}: zero_point_shift: expected the same for all scales, got {} and {}", kOp,
                 shift, own);
    shift = own;
  }
  const auto count = static_cast<std::int64_t>(scales.size());
  const Layout layout = listed_layout(count, input_shape);
  return std::make_shared<AffineEncoding>(
      scales_of("scale", scales, layout.sizes), listed_offsets(offsets, grid, layout.sizes), grid,
      AffineEncodingOptions{symmetric == "True", layout.blocks, shift});
}

EncodingPtr v1_0_0(const Json& object, const std::optional<Dims>& input_shape) {
  const std::string& dtype = string_field(object, "dtype");
  const std::string& kind = string_field(object, "enc_type");
  if (dtype == "FLOAT") {
    QUANTA_CHECK(kind == "PER_TENSOR" && bits_field(object, "bw") == 16,
                 "{}: bw: expected one float format of 16 bits, got another", kOp);
    return float16_encoding();
  }
  QUANTA_CHECK(dtype == "INT", "{}: dtype: expected INT or FLOAT, got {}", kOp, dtype);
  const Json& is_sym = field(object, "is_sym");
  QUANTA_CHECK(is_sym.as_bool() != nullptr, "{}: is_sym: expected true or false, got {}", kOp,
               is_sym.kind());
  const Json::Array& scales = array_field(object, "scale");
  const Json::Array& offsets = array_field(object, "offset");
  QUANTA_CHECK(!scales.empty() && offsets.size() == scales.size(),
               "{}: offset: expected as many as scales ({}), got {}", kOp, scales.size(),
               offsets.size());
  const auto count = static_cast<std::int64_t>(scales.size());
  const std::int64_t bitwidth = bits_field(object, "bw");
  if (kind == "LPBQ") {
    const Grid grid = listed_grid(bits_field(object, "compressed_bw"), true);
    QUANTA_CHECK(*is_sym.as_bool(), "{}: is_sym: expected true for LPBQ, got false", kOp);
    const std::int64_t lowest = -(std::int64_t{1} << (bitwidth - 1));
    for (const Json& offset : offsets) {
      QUANTA_CHECK(whole("offset", offset) == lowest,
                   "{}: offset: expected {}, the lowest of {} bits, for LPBQ, got {}", kOp, lowest,
                   bitwidth, *offset.as_int());
    }
    const std::int64_t block = integer_field(object, "block_size", 1, std::int64_t{1} << 40);
    const Nested factors = nested_of("per_block_int_scale", field(object, "per_block_int_scale"));
    const auto blocks = static_cast<std::int64_t>(factors.values.size());
    const Layout layout = block_layout(blocks, block, count, input_shape);
    Dims groups = layout.sizes;
    for (std::size_t d = 0; d < groups.size(); ++d) {
      if (layout.blocks[d] == block && groups[d] > 1) groups[d] = 1;
    }
    // Fewer channels than groups: several groups of blocks for each channel.
    const std::int64_t rows = count_of(groups);
    QUANTA_CHECK(rows > 0 && count % rows == 0, "{}: scale: expected a multiple of {}, got {}", kOp,
                 rows, count);
    for (std::size_t d = 0; d < groups.size(); ++d) {
      if (layout.blocks[d] == block && layout.sizes[d] > 1) groups[d] = count / rows;
    }
    return grouped(block_factors("per_block_int_scale", factors, layout.sizes),
                   scales_of("scale", scales, groups), layout.blocks, grid, bitwidth);
  }
  const Grid grid = listed_grid(bitwidth, *is_sym.as_bool());
  double shift = 0.0;
  if (const Json* shifts = object.find("zero_point_shift")) {
    QUANTA_CHECK(shifts->as_array() != nullptr && shifts->as_array()->size() == scales.size(),
                 "{}: zero_point_shift: expected one for each scale, got {}", kOp, shifts->kind());
    for (const Json& value : *shifts->as_array()) {
      QUANTA_CHECK(shift_of(value) == shift_of(shifts->as_array()->front()),
                   "{}: zero_point_shift: expected the same for all scales, got several", kOp);
      shift = shift_of(value);
    }
  }
  Layout layout;
  if (kind == "PER_CHANNEL") {
    layout = channels(count, input_shape);
  } else if (kind == "PER_BLOCK") {
    const std::int64_t block = integer_field(object, "block_size", 1, std::int64_t{1} << 40);
    layout = block_layout(count, block, 0, input_shape);
  } else {
    QUANTA_CHECK(kind == "PER_TENSOR" && count == 1,
                 "{}: enc_type: expected PER_TENSOR of one scale, PER_CHANNEL, PER_BLOCK or LPBQ, "
                 "got {} of {}",
                 kOp, kind, count);
  }
  return std::make_shared<AffineEncoding>(
      scales_of("scale", scales, layout.sizes), listed_offsets(offsets, grid, layout.sizes), grid,
      AffineEncodingOptions{*is_sym.as_bool(), layout.blocks, shift});
}

// 2.0.0 and 2.1.0 --------------------------------------------------------------------------------

// Where scales belong: `axis` counts from the end.
struct Axis {
  std::optional<std::int64_t> axis{};
  std::optional<std::int64_t> block{};
};

Axis axis_of(const Json& object, const std::optional<Dims>& input_shape) {
  const Json* given = object.find("axis");
  const Json* block = object.find("block_size");
  if (given == nullptr) {
    QUANTA_CHECK(block == nullptr, "{}: axis: expected one beside block_size, got nothing", kOp);
    return {};
  }
  Axis axis{whole("axis", *given), {}};
  if (block != nullptr) axis.block = integer_field(object, "block_size", 1, std::int64_t{1} << 40);
  QUANTA_SUPPORTED(
      *axis.axis < 0 || input_shape.has_value(),
      "{}: input_shape: expected the sizes of the tensor, whose axis {} is counted from "
      "the front, got nothing",
      kOp, *axis.axis);
  const auto rank =
      static_cast<std::int64_t>(input_shape.has_value() ? input_shape->size() : Dims::kMaxDims);
  QUANTA_CHECK(*axis.axis >= -rank && *axis.axis < rank, "{}: axis: expected {}..{}, got {}", kOp,
               -rank, rank - 1, *axis.axis);
  if (*axis.axis >= 0) *axis.axis -= rank;
  return axis;
}

// Sizes and blocks of scales that are written in these lists.
Layout layout_of(std::string_view name, const Nested& nested, const Axis& axis) {
  const Dims& sizes = nested.sizes;
  if (!axis.axis.has_value()) {
    QUANTA_CHECK(sizes.empty(), "{}: axis: expected one for a list as {}, got nothing", kOp, name);
    return {};
  }
  if (!axis.block.has_value()) {
    QUANTA_CHECK(sizes.size() == 1,
                 "{}: {}: expected a list with a number for each channel, got {}", kOp, name,
                 sizes);
    Layout layout{Dims::filled(static_cast<std::size_t>(-*axis.axis), 1), {}};
    layout.sizes[0] = sizes[0];
    return layout;
  }
  const auto rank = static_cast<std::int64_t>(sizes.size());
  QUANTA_CHECK(rank >= -*axis.axis, "{}: axis: expected one of {} dimensions, got {}", kOp, rank,
               *axis.axis);
  Layout layout{sizes, Dims::filled(sizes.size(), -1)};
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] > 1) layout.blocks[d] = 1;
  }
  layout.blocks[static_cast<std::size_t>(rank + *axis.axis)] = *axis.block;
  return layout;
}

// The same of NVFP4's codes, which keep the sizes of the scale: without block_size too, where each
// channel is one block, of which nothing tells the length.
Layout code_layout(const Nested& nested, const Axis& axis) {
  const Dims& sizes = nested.sizes;
  if (axis.block.has_value() || sizes.size() < 2) return layout_of("y_scale.x", nested, axis);
  std::size_t channel = sizes.size();
  if (axis.axis.has_value()) {
    QUANTA_CHECK(-*axis.axis <= static_cast<std::int64_t>(sizes.size()),
                 "{}: axis: expected one of {} dimensions, got {}", kOp, sizes.size(), *axis.axis);
    channel -= static_cast<std::size_t>(-*axis.axis);
  }
  Layout layout{sizes, Dims::filled(sizes.size(), -1)};
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    QUANTA_CHECK(sizes[d] == 1 || d == channel,
                 "{}: y_scale.x: expected a number for each channel, got {}", kOp, sizes);
    if (d == channel) layout.blocks[d] = 1;
  }
  return layout;
}

Grid grid_from_name(std::string_view name) {
  std::string_view digits = name;
  const bool is_unsigned = digits.starts_with("uint");
  const bool integer = is_unsigned || digits.starts_with("int");
  digits.remove_prefix(integer ? (is_unsigned ? 4 : 3) : 0);
  std::int64_t bits = 0;
  for (const char digit : digits.substr(0, 3)) {
    bits = digit >= '0' && digit <= '9' && bits >= 0 ? bits * 10 + (digit - '0') : -1;
  }
  QUANTA_CHECK(integer && !digits.empty() && digits.size() <= 2 && bits >= 1 && bits <= 32,
               "{}: output_dtype: expected int1..int32, uint1..uint32 or a float format, got {}",
               kOp, name.substr(0, 40));
  return Grid::from_bitwidth(bits, !is_unsigned);
}

EncodingPtr v2_float(const Json& object, const Axis& axis) {
  const FloatSpec spec = FloatSpec::from_onnx_name(string_field(object, "output_dtype"));
  const Json& scale = field(object, "y_scale");
  if (scale.as_object() == nullptr) {
    const Nested nested = nested_of("y_scale", scale);
    const Layout layout = layout_of("y_scale", nested, axis);
    return std::make_shared<FloatEncoding>(scales_of("y_scale", nested.values, layout.sizes), spec,
                                           layout.blocks);
  }
  QUANTA_CHECK(string_field(scale, "input_dtype") == "float8e4m3fn" &&
                   spec == FloatSpec::from_name("float4_e2m1fn"),
               "{}: y_scale: expected float8e4m3fn scales of float4e2m1 codes, got {} of {}", kOp,
               string_field(scale, "input_dtype"), spec.name());
  const Nested nested = nested_of("y_scale.x", field(scale, "x"));
  const Layout layout = code_layout(nested, axis);
  const auto meta = static_cast<double>(positive("y_scale.x_scale", field(scale, "x_scale")));
  const Tensor codes = scales_of("y_scale.x", nested.values, layout.sizes);
  return FloatEncoding::nvfp4(mul_scalar(codes, meta), Tensor::scalar(meta), layout.blocks);
}

EncodingPtr v2_grouped(const Json& factors, const Json& channel, std::string_view name,
                       const Json& object, const Axis& axis) {
  QUANTA_CHECK(axis.block.has_value(), "{}: block_size: expected one for grouped blocks, got {}",
               kOp, "nothing");
  const Grid grid = grid_from_name(string_field(object, "output_dtype"));
  const Nested nested = nested_of(name, factors);
  const Layout layout = layout_of(name, nested, axis);
  const Tensor steps = block_factors(name, nested, layout.sizes);
  const Nested groups = nested_of("per_channel_float_scale", channel);
  Dims sizes = groups.sizes;
  if (sizes.size() != layout.sizes.size()) {
    // A plain list: one for each channel, or several along the axis of blocks.
    const auto at = layout.sizes.size() - static_cast<std::size_t>(-*axis.axis);
    const auto count = static_cast<std::int64_t>(groups.values.size());
    sizes = layout.sizes;
    sizes[at] = 1;
    if (count == 1) sizes = Dims::filled(layout.sizes.size(), 1);
    QUANTA_CHECK(count % count_of(sizes) == 0,
                 "{}: y_scale.x_scale: expected a multiple of {}, got {}", kOp, count_of(sizes),
                 count);
    sizes[at] = count / count_of(sizes);
  }
  std::int64_t largest = 1;
  for (const Json& value : nested.values) largest = std::max(largest, *value.as_int());
  const auto more =
      static_cast<std::int64_t>(std::bit_width(static_cast<std::uint64_t>(largest - 1)));
  return grouped(steps, scales_of("per_channel_float_scale", groups.values, sizes), layout.blocks,
                 grid, grid.bitwidth() + more);
}

// Zero points, which carry the shift as a fraction.
struct ZeroPoints {
  Tensor offsets;
  double shift = 0.0;
  bool all_zero = true;
};

ZeroPoints read_zero_points(const Json& object, const Nested& scales, const Grid& grid,
                            const Dims& sizes) {
  ZeroPoints result{Tensor::zeros(sizes)};
  const Json* given = object.find("y_zero_point");
  if (given == nullptr) return result;
  const Nested nested = nested_of("y_zero_point", *given);
  QUANTA_CHECK(nested.sizes == scales.sizes,
               "{}: y_zero_point: expected the sizes of y_scale, {}, got {}", kOp, scales.sizes,
               nested.sizes);
  std::vector<float> offsets;
  for (const Json& value : nested.values) {
    QUANTA_CHECK(value.is_number(), "{}: y_zero_point: expected a number, got {}", kOp,
                 value.kind());
    const double number = value.as_number();
    const double shift = std::floor(number) == number ? 0.0 : 0.5;
    QUANTA_CHECK(std::floor(number + shift) == number + shift,
                 "{}: y_zero_point: expected a whole number, or one and a half, got {}", kOp,
                 number);
    QUANTA_CHECK(offsets.empty() || shift == result.shift,
                 "{}: y_zero_point: expected one shift for all, got {}", kOp, number);
    const double zero_point = number + shift;
    QUANTA_CHECK(zero_point >= static_cast<double>(grid.qmin()) &&
                     zero_point <= static_cast<double>(grid.qmax()),
                 "{}: y_zero_point: expected {}..{}, got {}", kOp, grid.qmin(), grid.qmax(),
                 number);
    result.shift = shift;
    result.all_zero = result.all_zero && zero_point == 0.0;
    offsets.push_back(static_cast<float>(-zero_point));
  }
  result.offsets = floats(offsets, sizes);
  return result;
}

EncodingPtr v2(const Json& object, const std::optional<Dims>& input_shape) {
  const Axis axis = axis_of(object, input_shape);
  if (const Json* factors = object.find("per_block_int_scale")) {
    return v2_grouped(*factors, field(object, "per_channel_float_scale"), "per_block_int_scale",
                      object, axis);
  }
  // Nothing is quantized.
  if (object.find("output_dtype") == nullptr && object.find("y_scale") == nullptr &&
      object.as_object()->size() == (object.find("name") == nullptr ? 0U : 1U)) {
    return float16_encoding();
  }
  const Json& scale = field(object, "y_scale");
  const std::string& dtype = string_field(object, "output_dtype");
  if (dtype.starts_with("float") || dtype.starts_with("bfloat")) return v2_float(object, axis);
  if (scale.as_object() != nullptr) {
    return v2_grouped(field(scale, "x"), field(scale, "x_scale"), "y_scale.x", object, axis);
  }
  const Grid grid = grid_from_name(dtype);
  const Nested nested = nested_of("y_scale", scale);
  const Layout layout = layout_of("y_scale", nested, axis);
  const Tensor scales = scales_of("y_scale", nested.values, layout.sizes);
  const ZeroPoints zero = read_zero_points(object, nested, grid, layout.sizes);
  const bool symmetric = grid.qmin() < 0 && zero.all_zero;
  return std::make_shared<AffineEncoding>(
      scales, zero.offsets, grid, AffineEncodingOptions{symmetric, layout.blocks, zero.shift});
}

EncodingPtr from_json(const Json& json, const std::optional<Dims>& input_shape) {
  if (const Json::Array* list = json.as_array()) return v0_6_1(*list, input_shape);
  QUANTA_CHECK(json.as_object() != nullptr, "{}: encoding: expected an object or a list, got {}",
               kOp, json.kind());
  return json.find("enc_type") != nullptr ? v1_0_0(json, input_shape) : v2(json, input_shape);
}

// Files ------------------------------------------------------------------------------------------

// Sizes of a tensor with such scales, for writing the encoding again.
std::optional<Dims> shape_for(const Encoding& encoding) {
  Dims sizes = encoding.scale().sizes();
  if (sizes.empty()) return std::nullopt;
  // One list of all blocks, of which nobody knows how they lie.
  if (sizes.size() == 1 && !encoding.block_size().empty()) return std::nullopt;
  for (std::size_t d = 0; d < encoding.block_size().size(); ++d) {
    const std::int64_t block = std::max<std::int64_t>(encoding.block_size()[d], 1);
    QUANTA_CHECK(!__builtin_mul_overflow(sizes[d], block, &sizes[d]),
                 "{}: block_size: expected sizes of a tensor that can be, got blocks of {}", kOp,
                 block);
  }
  return sizes;
}

NamedEncoding named(const std::string& name, const Json& json,
                    const std::map<std::string, Dims>& input_shapes) {
  const auto found = input_shapes.find(name);
  const std::optional<Dims> shape =
      found == input_shapes.end() ? std::nullopt : std::optional(found->second);
  try {
    EncodingPtr encoding = from_json(json, shape);
    return {name, encoding, shape.has_value() ? shape : shape_for(*encoding)};
  } catch (const UnsupportedError& error) {
    throw UnsupportedError(fmt::format("{} ({})", error.what(), name));
  } catch (const ArgumentError& error) {
    throw ArgumentError(fmt::format("{} ({})", error.what(), name));
  }
}

std::vector<NamedEncoding> named_list(const Json& json, std::string_view key,
                                      EncodingVersion version,
                                      const std::map<std::string, Dims>& input_shapes) {
  std::vector<NamedEncoding> result;
  const Json& entries = field(json, key);
  if (version == EncodingVersion::V0_6_1) {
    QUANTA_CHECK(entries.as_object() != nullptr, "{}: {}: expected an object, got {}", kOp, key,
                 entries.kind());
    for (const auto& [name, entry] : *entries.as_object()) {
      result.push_back(named(name, entry, input_shapes));
    }
    return result;
  }
  for (const Json& entry : array_field(json, key)) {
    result.push_back(named(string_field(entry, "name"), entry, input_shapes));
  }
  return result;
}

EncodingFile parse_file(std::string_view text, const std::map<std::string, Dims>& input_shapes) {
  const Json json = quanta::detail::parse_json(text, kOp);
  QUANTA_CHECK(json.as_object() != nullptr, "{}: file: expected an object, got {}", kOp,
               json.kind());
  EncodingFile file;
  file.version = encoding_version(string_field(json, "version"));
  if (file.version < EncodingVersion::V2_0_0) {
    file.activations = named_list(json, "activation_encodings", file.version, input_shapes);
    file.params = named_list(json, "param_encodings", file.version, input_shapes);
    // Older files of 0.6.1 and those of AIMET's ONNX side have none.
    if (json.find("excluded_layers") == nullptr) return file;
    for (const Json& layer : array_field(json, "excluded_layers")) {
      QUANTA_CHECK(layer.as_string() != nullptr, "{}: excluded_layers: expected names, got {}", kOp,
                   layer.kind());
      file.excluded_layers.push_back(*layer.as_string());
    }
    return file;
  }
  bool is_param = false;
  for (const Json& entry : array_field(json, "encodings")) {
    const Json* axis = entry.find("axis");
    is_param = is_param || (axis != nullptr && axis->as_int() != nullptr && *axis->as_int() >= 0);
    (is_param ? file.params : file.activations)
        .push_back(named(string_field(entry, "name"), entry, input_shapes));
  }
  return file;
}

}  // namespace

EncodingPtr encoding_from_json(std::string_view text, const std::optional<Dims>& input_shape) {
  return quanta::detail::reading(
      kOp, [&] { return from_json(quanta::detail::parse_json(text, kOp), input_shape); });
}

EncodingFile encoding_file_from_json(std::string_view text,
                                     const std::map<std::string, Dims>& input_shapes) {
  return quanta::detail::reading(kOp, [&] { return parse_file(text, input_shapes); });
}

}  // namespace quanta::aimet
