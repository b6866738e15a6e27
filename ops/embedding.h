#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "quanta/runtime/tensor.h"

/// Embedding tables in float, and in 8, 4 and 2 bits.
///
/// A packed table is a UInt8 tensor [rows, bytes]: each row holds its codes (below 8 bits the
/// lowest column in the lowest bits) and then scale and bias, float32 for 8 bits and float16 below.
/// The values of a row are scale * code + bias.
///
/// All functions throw ArgumentError for tables, indices and offsets that do not fit, and for an
/// index outside the table, UnsupportedError for float tables of other dtypes. Many threads may
/// call them at once while nobody writes to the arguments.
namespace quanta::quantized {

/// A quantized table ready for lookups; made by embedding_bag_prepack. Immutable; copies share the
/// rows.
class EmbeddingPackedParams {
 public:
  EmbeddingPackedParams() = default;

  /// The weight as it was packed, scales and zero points included. Throws ArgumentError if empty.
  QTensor unpack() const;
  /// The rows, [num_embeddings, bytes].
  const Tensor& packed_weight() const noexcept { return packed_; }
  /// The same on that device, copied there when it is first asked for and kept.
  Tensor packed_weight(Device device) const;
  std::int64_t num_embeddings() const noexcept { return sizes_.empty() ? 0 : sizes_[0]; }
  std::int64_t embedding_dim() const noexcept { return sizes_.empty() ? 0 : sizes_[1]; }
  /// QUInt8 or QUInt4x2.
  DType dtype() const noexcept { return dtype_; }

 private:
  friend EmbeddingPackedParams embedding_bag_prepack(const QTensor& weight);

  struct Copies;

  Tensor packed_;
  std::shared_ptr<Copies> copies_;  // on other devices
  Dims sizes_;
  DType dtype_ = DType::QUInt8;
  Quantizer quantizer_;
};

/// Packs a table [rows, columns] of QUInt8 or QUInt4x2 that is quantized along axis 0 with float
/// zero points. The bias of a row is -zero_point * scale; 4-bit rows keep scale and bias in
/// float16.
EmbeddingPackedParams embedding_bag_prepack(const QTensor& weight);

/// The rows that `indices` (Int32 or Int64, any shape) name, dequantized: [...indices, columns].
/// Throws ArgumentError for an index outside the table.
Tensor embedding_byte(const EmbeddingPackedParams& weight, const Tensor& indices);
Tensor embedding_4bit(const EmbeddingPackedParams& weight, const Tensor& indices);

enum class EmbeddingBagMode : std::uint8_t { Sum, Mean, Max };

struct EmbeddingBagOptions {
  /// Where each bag starts in 1-d indices (Int32 or Int64, first 0, not decreasing). Left
  /// undefined for 2-d indices, of which each row is a bag.
  Tensor offsets{};
  /// Quantized tables have Sum only; torch ignores the other modes there.
  EmbeddingBagMode mode = EmbeddingBagMode::Sum;
  /// Factors of the rows, one for each index, in the table's float type (Float32 for quantized
  /// ones); undefined: 1. With Sum only.
  Tensor per_sample_weights{};
  bool include_last_offset = false;           ///< the last offset only ends the last bag
  std::optional<std::int64_t> padding_idx{};  ///< a row that no bag counts
};

/// One sum of rows for each bag, float32 in the order of the indices: Float32 [bags, columns].
Tensor embedding_bag_byte(const EmbeddingPackedParams& weight, const Tensor& indices,
                          const EmbeddingBagOptions& options = {});
Tensor embedding_bag_4bit(const EmbeddingPackedParams& weight, const Tensor& indices,
                          const EmbeddingBagOptions& options = {});

/// The same from packed rows.
Tensor embedding_bag_byte_rowwise_offsets(const Tensor& weight, const Tensor& indices,
                                          const EmbeddingBagOptions& options = {});
Tensor embedding_bag_4bit_rowwise_offsets(const Tensor& weight, const Tensor& indices,
                                          const EmbeddingBagOptions& options = {});
Tensor embedding_bag_2bit_rowwise_offsets(const Tensor& weight, const Tensor& indices,
                                          const EmbeddingBagOptions& options = {});

/// Quantizes the rows of a Float32 table [rows, columns] by their range and packs them:
///
///   scale = (max - min) / 255, q = round_half_even((x - min) * (255 / (max - min + 1e-8))),
///   bias = min
Tensor embedding_bag_byte_prepack(const Tensor& weight);

/// With `optimized_qparams` the range of a row is narrowed step by step (range / nbins) from the
/// side that costs less L2 error, down to (1 - ratio) of it, and the best one found is used.
struct NBitPrepackOptions {
  bool optimized_qparams = false;
  std::int64_t nbins = 200;
  double ratio = 0.16;
};

/// The same with 15 (or 3) steps, min and scale rounded to float16 first. The columns have to fill
/// whole bytes.
Tensor embedding_bag_4bit_prepack(const Tensor& weight, const NBitPrepackOptions& options = {});
Tensor embedding_bag_2bit_prepack(const Tensor& weight, const NBitPrepackOptions& options = {});

/// Packed rows back to Float32 [rows, columns].
Tensor embedding_bag_byte_unpack(const Tensor& packed_weight);
Tensor embedding_bag_4bit_unpack(const Tensor& packed_weight);
Tensor embedding_bag_2bit_unpack(const Tensor& packed_weight);

}  // namespace quanta::quantized

namespace quanta {

/// The rows of a Float32 or Float64 table [rows, columns] that `indices` (Int32 or Int64, any
/// shape) name: [...indices, columns]. The row `padding_idx` gets no gradient. Same as
/// torch.nn.functional.embedding. Throws ArgumentError for an index outside the table.
Tensor embedding(const Tensor& weight, const Tensor& indices,
                 std::optional<std::int64_t> padding_idx = std::nullopt);

/// The sum, mean or maximum of the rows of each bag, [bags, columns]; zeros for a bag without any.
/// Same as torch.nn.functional.embedding_bag. Throws ArgumentError as embedding does, and for
/// offsets that do not fit.
Tensor embedding_bag(const Tensor& weight, const Tensor& indices,
                     const quantized::EmbeddingBagOptions& options);

}  // namespace quanta
