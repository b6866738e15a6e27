#include "quanta/observers/aimet/encoding_json.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "quanta/observers/aimet/float_encoding.h"
#include "quanta/ops/detail/affine_layout.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/json.h"
#include "quanta/runtime/detail/whole_number.h"

namespace quanta::aimet {
namespace {

using quanta::detail::Json;

constexpr std::string_view kOp = "to_json";

// Numbers ----------------------------------------------------------------------------------------

Json number(float value) { return static_cast<double>(value); }

Json whole(float value) {
  QUANTA_CHECK(quanta::detail::is_whole_number(static_cast<double>(value)),
               "{}: offset: expected whole numbers, got {}", kOp, value);
  return static_cast<std::int64_t>(value);
}

template <typename ToJson>
Json::Array flat(const Tensor& x, ToJson&& to_json) {
  Json::Array list;
  for (const float value : x.detach().to_float_vector()) list.push_back(to_json(value));
  return list;
}

// Lists in lists, one level for each dimension.
Json nested(const Json::Array& values, const Dims& sizes, std::size_t dim, std::size_t& next) {
  if (dim == sizes.size()) return values[next++];
  Json::Array list;
  for (std::int64_t i = 0; i < sizes[dim]; ++i) {
    list.push_back(nested(values, sizes, dim + 1, next));
  }
  return list;
}

Json nested(const Json::Array& values, const Dims& sizes) {
  std::size_t next = 0;
  return nested(values, sizes, 0, next);
}

// Offsets as the lists of 0.6.1 and 1.0.0 count them: from the lowest code.
Json::Array offsets_from(const AffineEncoding& encoding, std::int64_t lowest) {
  return flat(encoding.offset(),
              [lowest](float offset) { return whole(offset + static_cast<float>(lowest)); });
}

const GroupedBlockEncoding* grouped(const Encoding& encoding) {
  const auto* groups = dynamic_cast<const GroupedBlockEncoding*>(&encoding);
  if (groups == nullptr) return nullptr;
  const Dims& grouping = groups->groups().block_grouping;
  const bool any = std::any_of(grouping.begin(), grouping.end(), [](auto n) { return n != 1; });
  return any ? groups : nullptr;
}

void require_plain_16_bits(const FloatEncoding& encoding, EncodingVersion version) {
  const std::vector<float> scales = encoding.scale().detach().to_float_vector();
  const bool plain = std::all_of(scales.begin(), scales.end(), [](float s) { return s == 1.0F; });
  QUANTA_CHECK(encoding.bitwidth() == 16 && plain,
               "{}: version: expected 2.0.0 or later for a float format other than 16 bits with "
               "scale 1, got {} for {}",
               kOp, to_string(version), encoding.spec().name());
}

// 0.6.1 ------------------------------------------------------------------------------------------

Json v0_6_1(const AffineEncoding& encoding) {
  const std::vector<float> min = encoding.min().detach().to_float_vector();
  const std::vector<float> max = encoding.max().detach().to_float_vector();
  const std::vector<float> scale = encoding.scale().detach().to_float_vector();
  const Json::Array offsets = offsets_from(encoding, encoding.grid().qmin());
  Json::Array list;
  for (std::size_t i = 0; i < scale.size(); ++i) {
    Json::Object object{{"min", number(min[i])},
                        {"max", number(max[i])},
                        {"scale", number(scale[i])},
                        {"offset", offsets[i]},
                        {"bitwidth", encoding.grid().bitwidth()},
                        {"dtype", "int"},
                        {"is_symmetric", encoding.symmetric() ? "True" : "False"}};
    if (encoding.zero_point_shift() != 0.0) {
      object.emplace_back("zero_point_shift", encoding.zero_point_shift());
    }
    list.emplace_back(std::move(object));
  }
  return list;
}

// 1.0.0 ------------------------------------------------------------------------------------------

// Axes are counted from the end.
struct Axes {
  std::optional<std::int64_t> channel;
  std::optional<std::int64_t> block;
  std::int64_t block_size = 1;
  bool is_wildcard = false;  ///< the encoding leaves the block size to the input
};

Axes find_axes(const Encoding& encoding, const std::optional<Dims>& input_shape) {
  Axes axes;
  const Dims& sizes = encoding.scale().sizes();
  if (encoding.scale().numel() == 1 && !input_shape.has_value()) return axes;
  QUANTA_CHECK(input_shape.has_value(), "{}: input_shape: expected the sizes of the tensor, got {}",
               kOp, "nothing");
  const Dims blocks =
      quanta::detail::resolve_blocks(kOp, "scale", *input_shape, sizes, encoding.block_size());
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] <= 1) continue;
    std::optional<std::int64_t>& axis = blocks[d] == 1 ? axes.channel : axes.block;
    QUANTA_CHECK(!axis.has_value(), "{}: scale: expected one {} axis at most, got {}", kOp,
                 blocks[d] == 1 ? "channel" : "block", sizes);
    axis = static_cast<std::int64_t>(d) - static_cast<std::int64_t>(sizes.size());
    if (blocks[d] == 1) continue;
    axes.block_size = blocks[d];
    axes.is_wildcard = encoding.block_size()[d] == -1;
  }
  QUANTA_CHECK(!axes.block.has_value() || axes.channel.has_value(),
               "{}: scale: expected a channel axis beside the block axis, got {}", kOp, sizes);
  return axes;
}

// What was read from version 1.0.0 without the sizes of its tensor has guessed ones.
bool fits(const Encoding& encoding, const Dims& input_shape) {
  const Dims& sizes = encoding.scale().sizes();
  const Dims& blocks = encoding.block_size();
  if (input_shape.size() < sizes.size() || blocks.size() != sizes.size()) return false;
  const std::size_t leading = input_shape.size() - sizes.size();
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    const std::int64_t size = input_shape[leading + d];
    const std::int64_t block = blocks[d];
    if (sizes[d] <= 0 || size % sizes[d] != 0) return false;
    if (block != -1 && size / sizes[d] != block) return false;
  }
  return true;
}

// The block along the axis that is cut into blocks.
std::int64_t find_block(const Encoding& encoding, const std::optional<Dims>& input_shape) {
  std::int64_t block = 1;
  if (input_shape.has_value() && fits(encoding, *input_shape)) {
    const Axes axes = find_axes(encoding, input_shape);
    QUANTA_CHECK(axes.block.has_value(),
                 "{}: scale: expected an axis of several blocks for version 1.0.0, got {} with the "
                 "block size {}",
                 kOp, encoding.scale().sizes(), encoding.block_size());
    block = axes.is_wildcard ? -1 : axes.block_size;
  } else {
    const Dims& sizes = encoding.scale().sizes();
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      const std::int64_t one = encoding.block_size()[d];
      if (one != 1 && (sizes[d] > 1 || block == 1)) block = one;
    }
  }
  QUANTA_SUPPORTED(block != -1,
                   "{}: block_size: expected a length on the block axis for version 1.0.0, got {}",
                   kOp, encoding.block_size());
  return block;
}

Json v1_0_0(const AffineEncoding& encoding, const std::optional<Dims>& input_shape) {
  const std::int64_t bitwidth = encoding.grid().bitwidth();
  const GroupedBlockEncoding* groups = grouped(encoding);
  Json::Object object{{"dtype", "INT"}};
  if (groups != nullptr) {
    const GroupedBlockEncoding::Groups& parts = groups->groups();
    const std::int64_t lowest = -(std::int64_t{1} << (parts.decompressed_bw - 1));
    object.emplace_back("bw", parts.decompressed_bw);
    object.emplace_back("is_sym", encoding.symmetric());
    object.emplace_back("scale", flat(parts.per_channel_scale, number));
    object.emplace_back("offset",
                        flat(parts.per_channel_scale, [lowest](float) { return Json(lowest); }));
    object.emplace_back("enc_type", "LPBQ");
    object.emplace_back("block_size", find_block(encoding, input_shape));
    object.emplace_back("compressed_bw", bitwidth);
    object.emplace_back("per_block_int_scale", flat(parts.per_block_int_scale, whole));
    return object;
  }
  const std::int64_t lowest =
      encoding.grid().is_signed() ? -(std::int64_t{1} << (bitwidth - 1)) : std::int64_t{0};
  object.emplace_back("bw", bitwidth);
  object.emplace_back("is_sym", encoding.symmetric());
  object.emplace_back("scale", flat(encoding.scale(), number));
  object.emplace_back("offset", offsets_from(encoding, lowest));
  if (encoding.zero_point_shift() != 0.0) {
    const double shift = encoding.zero_point_shift();
    QUANTA_CHECK(encoding.symmetric(),
                 "{}: zero_point_shift: expected a symmetric encoding for version 1.0.0, got {} "
                 "for another",
                 kOp, shift);
    object.emplace_back("zero_point_shift",
                        flat(encoding.scale(), [shift](float) { return Json(shift); }));
  }
  const std::string_view granularity = encoding.granularity();
  if (granularity == "blockwise") {
    object.emplace_back("enc_type", "PER_BLOCK");
    object.emplace_back("block_size", find_block(encoding, input_shape));
  } else {
    QUANTA_CHECK(granularity != "unknown", "{}: scale: expected at most one channel axis, got {}",
                 kOp, encoding.scale().sizes());
    object.emplace_back("enc_type", granularity == "pertensor" ? "PER_TENSOR" : "PER_CHANNEL");
  }
  return object;
}

// 2.0.0 and 2.1.0 --------------------------------------------------------------------------------

// The values of all scales in the form that the axes ask for.
template <typename ToJson>
Json shaped(const Tensor& x, const Axes& axes, ToJson&& to_json) {
  const Json::Array values = flat(x, to_json);
  if (axes.block.has_value()) return nested(values, x.sizes());
  if (axes.channel.has_value()) return values;
  return values.at(0);
}

void add_axes(Json::Object& object, const Axes& axes) {
  if (axes.block.has_value()) {
    object.emplace_back("axis", *axes.block);
    object.emplace_back("block_size", axes.block_size);
  } else if (axes.channel.has_value()) {
    object.emplace_back("axis", *axes.channel);
  }
}

std::string integer_name(const Grid& grid) {
  const auto bits = std::bit_width(static_cast<std::uint64_t>(grid.num_steps()));
  return fmt::format("{}int{}", grid.qmin() < 0 ? "" : "u", bits);
}

Json grouped_json(const GroupedBlockEncoding& encoding, const Axes& axes, EncodingVersion version) {
  const GroupedBlockEncoding::Groups& parts = encoding.groups();
  const Json ints = nested(flat(parts.per_block_int_scale, whole), encoding.scale().sizes());
  Json::Object object;
  if (version == EncodingVersion::V2_0_0) {
    add_axes(object, axes);
    object.emplace_back("per_block_int_scale", ints);
    object.emplace_back("per_channel_float_scale", nested(flat(parts.per_channel_scale, number),
                                                          parts.per_channel_scale.sizes()));
    object.emplace_back("output_dtype", integer_name(encoding.grid()));
    return object;
  }
  Json::Object scale{{"x", ints}, {"x_scale", flat(parts.per_channel_scale, number)}};
  scale.emplace_back("axis", axes.channel.has_value() ? Json(*axes.channel) : Json());
  object.emplace_back("output_dtype", integer_name(encoding.grid()));
  object.emplace_back("y_scale", std::move(scale));
  add_axes(object, axes);
  return object;
}

Json v2(const AffineEncoding& encoding, EncodingVersion version,
        const std::optional<Dims>& input_shape) {
  const Axes axes = find_axes(encoding, input_shape);
  if (const GroupedBlockEncoding* groups = grouped(encoding)) {
    return grouped_json(*groups, axes, version);
  }
  Json::Object object{{"output_dtype", integer_name(encoding.grid())},
                      {"y_scale", shaped(encoding.scale(), axes, number)}};
  const double shift = encoding.zero_point_shift();
  const auto centroid = static_cast<float>(encoding.grid().centroid());
  const auto zero_point = [&](float offset) {
    const float zero = encoding.symmetric() ? centroid : -offset;
    return shift == 0.0 ? whole(zero) : Json(static_cast<double>(zero) - shift);
  };
  const Json::Array zero_points = flat(encoding.offset(), zero_point);
  const bool any = std::any_of(zero_points.begin(), zero_points.end(),
                               [](const Json& value) { return value.as_number() != 0.0; });
  if (any) object.emplace_back("y_zero_point", shaped(encoding.offset(), axes, zero_point));
  add_axes(object, axes);
  return object;
}

Json v2(const FloatEncoding& encoding, EncodingVersion version,
        const std::optional<Dims>& input_shape) {
  // These two count as not quantized.
  if (encoding.spec() == FloatSpec::from_name("float16") ||
      encoding.spec() == FloatSpec::from_name("bfloat16")) {
    return Json::Object{};
  }
  const Axes axes = find_axes(encoding, input_shape);
  Json::Object object{{"output_dtype", encoding.spec().onnx_name()}};
  if (encoding.meta_scale().defined()) {
    QUANTA_CHECK(version == EncodingVersion::V2_1_0,
                 "{}: version: expected 2.1.0 for NVFP4 encodings, got {}", kOp,
                 to_string(version));
    const auto meta = static_cast<float>(encoding.meta_scale().item());
    const auto code = [meta](float scale) {
      return number(math::round_to_format(scale / meta, math::kE4M3FN));
    };
    const Json codes = nested(flat(encoding.scale(), code), encoding.scale().sizes());
    object.emplace_back(
        "y_scale",
        Json::Object{{"x", codes}, {"x_scale", number(meta)}, {"input_dtype", "float8e4m3fn"}});
  } else {
    object.emplace_back("y_scale", shaped(encoding.scale(), axes, number));
  }
  add_axes(object, axes);
  return object;
}

Json as_json(const Encoding& encoding, EncodingVersion version,
             const std::optional<Dims>& input_shape) {
  QUANTA_CHECK(!encoding.scale().defined() || encoding.scale().numel() > 0,
               "{}: scale: expected at least one number, got {}", kOp, encoding.scale().sizes());
  if (const auto* floating = dynamic_cast<const FloatEncoding*>(&encoding)) {
    if (version >= EncodingVersion::V2_0_0) return v2(*floating, version, input_shape);
    require_plain_16_bits(*floating, version);
    if (version == EncodingVersion::V0_6_1) {
      return Json::Array{Json::Object{{"bitwidth", 16}, {"dtype", "float"}}};
    }
    return Json::Object{{"dtype", "FLOAT"}, {"bw", 16}, {"enc_type", "PER_TENSOR"}};
  }
  const auto& affine = dynamic_cast<const AffineEncoding&>(encoding);
  switch (version) {
    case EncodingVersion::V0_6_1:
      return v0_6_1(affine);
    case EncodingVersion::V1_0_0:
      return v1_0_0(affine, input_shape);
    case EncodingVersion::V2_0_0:
    case EncodingVersion::V2_1_0:
      break;
  }
  return v2(affine, version, input_shape);
}

}  // namespace

EncodingVersion encoding_version(std::string_view text) {
  for (const EncodingVersion version : {EncodingVersion::V0_6_1, EncodingVersion::V1_0_0,
                                        EncodingVersion::V2_0_0, EncodingVersion::V2_1_0}) {
    if (to_string(version) == text) return version;
  }
  throw ArgumentError(with_module_path(fmt::format(
      "encoding_version: version: expected 0.6.1, 1.0.0, 2.0.0 or 2.1.0, got {}", text)));
}

std::string_view to_string(EncodingVersion version) noexcept {
  switch (version) {
    case EncodingVersion::V0_6_1:
      return "0.6.1";
    case EncodingVersion::V1_0_0:
      return "1.0.0";
    case EncodingVersion::V2_0_0:
      return "2.0.0";
    case EncodingVersion::V2_1_0:
      break;
  }
  return "2.1.0";
}

std::string to_json(const Encoding& encoding, EncodingVersion version,
                    const std::optional<Dims>& input_shape) {
  return to_json_text(as_json(encoding, version, input_shape));
}

// Files ------------------------------------------------------------------------------------------

namespace {

// 0.6.1: a map from names; 1.0.0: a list of objects with names.
Json named_list(const std::vector<NamedEncoding>& entries, EncodingVersion version) {
  if (version == EncodingVersion::V0_6_1) {
    Json::Object map;
    for (const NamedEncoding& entry : entries) {
      map.emplace_back(entry.name, as_json(*entry.encoding, version, entry.input_shape));
    }
    return map;
  }
  Json::Array list;
  for (const NamedEncoding& entry : entries) {
    Json::Object object{{"name", entry.name}};
    const Json encoding = as_json(*entry.encoding, version, entry.input_shape);
    for (const Json::Member& member : *encoding.as_object()) object.push_back(member);
    list.emplace_back(std::move(object));
  }
  return list;
}

enum class AxisCount : bool { FromEnd, FromFront };

void count_from_front(Json::Object& object, std::int64_t rank) {
  for (Json::Member& member : object) {
    // Grouped blocks without a channel axis have null.
    const std::int64_t* axis = member.first == "axis" ? member.second.as_int() : nullptr;
    if (axis != nullptr && *axis < 0) {
      member.second = Json(*axis + rank);
    }
    if (member.second.as_object() == nullptr) continue;
    Json::Object inner = *member.second.as_object();
    count_from_front(inner, rank);
    member.second = Json(std::move(inner));
  }
}

void add_to_list(Json::Array& list, const std::vector<NamedEncoding>& entries,
                 EncodingVersion version, AxisCount count) {
  for (const NamedEncoding& entry : entries) {
    const Json encoding = as_json(*entry.encoding, version, entry.input_shape);
    Json::Object object{{"name", entry.name}};
    for (const Json::Member& member : *encoding.as_object()) object.push_back(member);
    if (count == AxisCount::FromFront && entry.input_shape.has_value()) {
      count_from_front(object, static_cast<std::int64_t>(entry.input_shape->size()));
    }
    list.emplace_back(std::move(object));
  }
}

}  // namespace

std::string to_json(const EncodingFile& file) {
  for (const auto* entries : {&file.activations, &file.params}) {
    for (const NamedEncoding& entry : *entries) {
      QUANTA_CHECK(entry.encoding != nullptr, "{}: {}: expected an encoding, got {}", kOp,
                   entry.name, "none");
    }
  }
  Json::Object object{{"producer", Json::Object{{"package", "quanta"}, {"version", "1"}}},
                      {"version", to_string(file.version)}};
  if (file.version >= EncodingVersion::V2_0_0) {
    Json::Array list;
    add_to_list(list, file.activations, file.version, AxisCount::FromEnd);
    add_to_list(list, file.params, file.version, AxisCount::FromFront);
    object.emplace_back("encodings", std::move(list));
    return to_json_text(Json(std::move(object)));
  }
  Json::Array excluded(file.excluded_layers.begin(), file.excluded_layers.end());
  object.emplace_back("activation_encodings", named_list(file.activations, file.version));
  object.emplace_back("param_encodings", named_list(file.params, file.version));
  object.emplace_back("excluded_layers", std::move(excluded));
  object.emplace_back("quantizer_args", Json::Object{});
  return to_json_text(Json(std::move(object)));
}

}  // namespace quanta::aimet
