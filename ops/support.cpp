#include "quanta/ops/support.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <vector>

#include "quanta/ops/catalogue.h"

namespace quanta {
namespace {

using Types = std::initializer_list<DType>;

constexpr Types kFloat{DType::Float32};
constexpr Types kQUInt8{DType::QUInt8};
constexpr Types kQ8{DType::QUInt8, DType::QInt8};
constexpr Types kQuantized{DType::QUInt8, DType::QInt8, DType::QInt32, DType::QUInt4x2,
                           DType::QUInt2x4};
// Anything whose elements are whole bytes is only moved.
constexpr Types kWholeBytes{DType::Float32,      DType::Float64,    DType::Float16, DType::BFloat16,
                            DType::Float8E4M3FN, DType::Float8E5M2, DType::UInt8,   DType::Int8,
                            DType::Int16,        DType::UInt16,     DType::Int32,   DType::Int64,
                            DType::Bool,         DType::QUInt8,     DType::QInt8,   DType::QInt32};
constexpr Types kOrderedPlain{DType::Float32, DType::Float64, DType::UInt8,
                              DType::Int8,    DType::Int16,   DType::UInt16,
                              DType::Int32,   DType::Int64,   DType::Bool};
constexpr Types kFloats{DType::Float32, DType::Float64};
constexpr Types kFloating{DType::Float32, DType::Float64, DType::Float16, DType::BFloat16};
constexpr Types kFloatsQ8{DType::Float32, DType::Float64, DType::QUInt8, DType::QInt8};
constexpr Types kCodes{DType::UInt8, DType::Int8, DType::Int32};
constexpr Types kUInt8{DType::UInt8};
constexpr Types kQUInt4x2{DType::QUInt4x2};

struct Family {
  std::string_view header;
  Types types;  ///< of the op's first tensor; of embeddings: of the table
  std::vector<std::string_view> ops;
};

constexpr std::string_view kBlockQuant = "quanta/ops/block_quant.h";
constexpr std::string_view kEmbedding = "quanta/ops/embedding.h";
constexpr std::string_view kFakeQuantize = "quanta/ops/fake_quantize.h";
constexpr std::string_view kLoss = "quanta/ops/loss.h";
constexpr std::string_view kQuantizeAffine = "quanta/ops/quantize_affine.h";
constexpr std::string_view kRnn = "quanta/ops/rnn.h";
constexpr std::string_view kTensorQuant = "quanta/ops/tensor_quant.h";

const std::vector<Family>& families() {
  static const std::vector<Family> all{
      // Of the table, where the operation's first argument is the indices.
      {kEmbedding, kQUInt8, {"embedding_byte", "embedding_bag_byte"}},
      {kEmbedding, kQUInt4x2, {"embedding_4bit", "embedding_bag_4bit"}},
      {kBlockQuant, kFloating, {"dynamic_block_quant"}},
      {kFakeQuantize,
       kFloating,
       {"fake_quantize_per_tensor_affine", "fake_quantize_per_channel_affine",
        "fake_quantize_learnable_per_tensor_affine", "fake_quantize_learnable_per_channel_affine"}},
      {kQuantizeAffine,
       kFloating,
       {"quantize_affine", "dequantize_affine", "quantize_dequantize_affine"}},
      {kLoss,
       kFloats,
       {"mse_loss", "l1_loss", "smooth_l1_loss", "binary_cross_entropy_with_logits", "nll_loss",
        "cross_entropy"}},
      {kRnn, kFloats, {"recurrent_steps"}},
      {kTensorQuant,
       kFloating,
       {"tensor_quant", "legacy_fake_tensor_quant", "fake_tensor_quant", "fake_affine_tensor_quant",
        "int_cast_ste", "scaled_e4m3", "fp4_cast_ste", "static_fp4"}},
      {kTensorQuant, kFloats, {"clip"}},
  };
  return all;
}

// An operation on codes with parameters of their own is torch's op of that name.
constexpr std::string_view kQuantizedPrefix = "quantized::";

// torch's names of what is one operation here, whatever the rank.
struct Alias {
  std::string_view name;
  std::string_view operation;
};
constexpr std::array kAliases{
    Alias{"batch_norm1d", "batch_norm"},           Alias{"batch_norm2d", "batch_norm"},
    Alias{"batch_norm3d", "batch_norm"},           Alias{"batch_norm1d_relu", "batch_norm_relu"},
    Alias{"batch_norm2d_relu", "batch_norm_relu"}, Alias{"batch_norm3d_relu", "batch_norm_relu"}};

std::vector<OpSupport> make_table() {
  std::vector<OpSupport> table;
  for (const OperationEntry& row : operations().entries()) {
    std::string_view name = row.name;
    if (name.starts_with(kQuantizedPrefix)) name.remove_prefix(kQuantizedPrefix.size());
    for (const DType dtype : row.dtypes) {
      table.push_back({name, row.header, DeviceType::CPU, dtype});
      if (row.cuda) table.push_back({name, row.header, DeviceType::CUDA, dtype});
      for (const Alias& alias : kAliases) {
        if (alias.operation != name) continue;
        table.push_back({alias.name, row.header, DeviceType::CPU, dtype});
      }
    }
  }
  for (const Family& family : families()) {
    for (const std::string_view op : family.ops) {
      for (const DType dtype : family.types) {
        table.push_back({op, family.header, DeviceType::CPU, dtype});
      }
    }
  }
  return table;
}

}  // namespace

std::span<const OpSupport> op_table() {
  static const std::vector<OpSupport> table = make_table();
  return table;
}

bool supports(std::string_view op, Device device, DType dtype) {
  return std::ranges::any_of(op_table(), [&](const OpSupport& row) {
    return row.op == op && row.device == device.type && row.dtype == dtype;
  });
}

}  // namespace quanta
