#include "quanta/ops/embedding.h"

#include <string>

#include "calls.h"
#include "options.h"

namespace quanta::conform {

using quantized::EmbeddingPackedParams;

static quantized::EmbeddingBagOptions made_from(const Case& test,
                                                Type<quantized::EmbeddingBagOptions> /*type*/) {
  const Arguments given(test.attrs);
  quantized::EmbeddingBagOptions options;
  options.offsets = test.optional_tensor("offsets");
  options.per_sample_weights = test.optional_tensor("per_sample_weights");
  given("include_last_offset", options.include_last_offset);
  given("mode", options.mode);
  return options;
}

/// The table comes as its codes (packed below 8 bits), scales and zero points.
static EmbeddingPackedParams made_from(const Case& test, Type<EmbeddingPackedParams> /*type*/) {
  const bool is_4bit = test.op.find("4bit") != std::string::npos;
  const DType dtype = is_4bit ? DType::QUInt4x2 : DType::QUInt8;
  const Object& weight = test.object("weight");
  const auto part = [&](std::string_view name) {
    const Value* value = weight.find(name);
    const Tensor* tensor = value == nullptr ? nullptr : value->get_if<Tensor>();
    if (tensor == nullptr) {
      throw FormatError("inputs: weight has no tensor '" + std::string(name) + "'");
    }
    return *tensor;
  };
  const Quantizer quantizer = Quantizer::per_channel_float_qparams(
      part("scales").to_float_vector(), part("zero_points").to_float_vector(), 0);
  const Tensor codes = part("int_repr");
  const Dims sizes = test.dims("shape", codes.sizes());
  return quantized::embedding_bag_prepack(
      is_sub_byte(dtype) ? QTensor::from_packed_bytes(codes, sizes, dtype, quantizer)
                         : QTensor::from_int_repr(codes.view(sizes), quantizer));
}

namespace {

const Registration kOps{
    {"embedding_byte", calls(quantized::embedding_byte, {"indices"})},
    {"embedding_4bit", calls(quantized::embedding_4bit, {"indices"})},
    {"embedding_bag_byte", calls(quantized::embedding_bag_byte, {"indices"})},
    {"embedding_bag_4bit", calls(quantized::embedding_bag_4bit, {"indices"})},
    {"embedding_bag_byte_rowwise_offsets",
     calls(quantized::embedding_bag_byte_rowwise_offsets, {"weight", "indices"})},
    {"embedding_bag_4bit_rowwise_offsets",
     calls(quantized::embedding_bag_4bit_rowwise_offsets, {"weight", "indices"})},
    {"embedding_bag_2bit_rowwise_offsets",
     calls(quantized::embedding_bag_2bit_rowwise_offsets, {"weight", "indices"})},
    {"embedding_bag_byte_prepack", calls(quantized::embedding_bag_byte_prepack, {"weight"})},
    {"embedding_bag_4bit_prepack", calls(quantized::embedding_bag_4bit_prepack, {"weight"})},
    {"embedding_bag_2bit_prepack", calls(quantized::embedding_bag_2bit_prepack, {"weight"})},
    {"embedding_bag_byte_unpack", calls(quantized::embedding_bag_byte_unpack, {"packed_weight"})},
    {"embedding_bag_4bit_unpack", calls(quantized::embedding_bag_4bit_unpack, {"packed_weight"})},
    {"embedding_bag_2bit_unpack", calls(quantized::embedding_bag_2bit_unpack, {"packed_weight"})},
};

}  // namespace
}  // namespace quanta::conform
