#include <memory>
#include <optional>
#include <string>

#include "aimet_values.h"
#include "expected_error.h"
#include "quanta/nn/aimet/float_quantizer.h"
#include "quanta/observers/aimet/encoding_json.h"
#include "quanta/ops/quantize_affine.h"
#include "registry.h"

namespace quanta::conform {
namespace {

Value as_value(const Json& json) {
  if (json.is_array()) {
    List list;
    for (const Json& item : json) list.push_back(as_value(item));
    return list;
  }
  if (json.is_object()) {
    Object object;
    for (const auto& [key, item] : json.items()) object.set(key, as_value(item));
    return object;
  }
  if (json.is_string()) return json.get<std::string>();
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) return json.get<std::int64_t>();
  if (json.is_number()) return json.get<double>();
  return Value();
}

std::shared_ptr<const aimet::Encoding> grouped_encoding(const Case& test) {
  const Tensor scale = test.tensor("scale");
  const Tensor per_channel = test.tensor("per_channel_scale");
  const std::int64_t decompressed_bw = test.integer("decompressed_bw");
  // The scales in units of those of their groups.
  AffineOptions options;
  options.qmin = 1;
  options.qmax = std::int64_t{1} << (decompressed_bw - test.integer("bitwidth"));
  options.block_size = test.dims("block_grouping");
  const Tensor whole =
      quantize_affine(scale, per_channel, Tensor::zeros(per_channel.sizes()), options);
  return std::make_shared<aimet::GroupedBlockEncoding>(
      scale, test.tensor("offset"), grid_of(test), test.dims("block_size"),
      aimet::GroupedBlockEncoding::Groups{test.dims("block_grouping"), decompressed_bw, per_channel,
                                          whole});
}

std::shared_ptr<const aimet::Encoding> make_encoding(const Case& test) {
  const std::string kind = test.has_attr("kind") ? test.text("kind") : "affine";
  const Dims block_size = test.dims("block_size", {});
  const Tensor scale = test.tensor("scale");
  if (kind == "grouped_block") return grouped_encoding(test);
  if (kind == "float") {
    return std::make_shared<aimet::FloatEncoding>(
        scale, aimet::FloatSpec::from_name(test.text("dtype")), block_size);
  }
  if (kind == "mxfp4") {
    return std::make_shared<aimet::FloatEncoding>(
        scale, aimet::FloatSpec::from_name("float4_e2m1fn"), block_size);
  }
  if (kind == "nvfp4") {
    return aimet::FloatEncoding::nvfp4(scale, test.tensor("meta_scale"), block_size);
  }
  if (kind != "affine") throw FormatError("kind: unknown encoding " + kind);
  const aimet::AffineQuantizerOptions options = affine_options_of(test);
  return std::make_shared<aimet::AffineEncoding>(
      scale, test.tensor("offset"), grid_of(test),
      aimet::AffineEncodingOptions{options.symmetric.value_or(false), block_size,
                                   options.zero_point_shift});
}

Outputs run_to_json(const Case& test) {
  const std::shared_ptr<const aimet::Encoding> encoding = make_encoding(test);
  const std::optional<Dims> input_shape =
      test.has_attr("input_shape") ? std::optional(test.dims("input_shape")) : std::nullopt;
  const std::string text =
      aimet::to_json(*encoding, aimet::encoding_version(test.text("version")), input_shape);
  Outputs outputs;
  outputs.set("encoding", as_value(Json::parse(text)));
  return outputs;
}

Outputs run_from_json(const Case& test) {
  const aimet::EncodingPtr read = aimet::encoding_from_json(test.attr("encoding").dump());
  const auto& encoding = std::dynamic_pointer_cast<const aimet::AffineEncoding>(read);
  Outputs outputs;
  outputs.set("scale", encoding->scale());
  outputs.set("offset", encoding->offset());
  outputs.set("qmin", encoding->grid().qmin());
  outputs.set("qmax", encoding->grid().qmax());
  outputs.set("symmetric", encoding->symmetric());
  return outputs;
}

const Registration kOps{
    {"aimet.encoding_to_json", expecting_errors(run_to_json)},
    {"aimet.encoding_from_json", expecting_errors(run_from_json)},
};

}  // namespace
}  // namespace quanta::conform
