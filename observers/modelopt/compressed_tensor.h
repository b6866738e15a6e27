#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "quanta/observers/modelopt/reduce.h"
#include "quanta/runtime/tensor.h"

namespace quanta::modelopt {

/// Real quantized storage: small codes, and the scales that give the values back.
enum class CompressedKind : std::uint8_t { Int8, Fp8, Int4, Nf4, NvFp4, MxFp4, MxFp8 };
std::string_view to_string(CompressedKind kind);

/// A tensor in few bits, as ModelOpt's INT8QTensor, FP8QTensor, INT4QTensor, NF4QTensor,
/// NVFP4QTensor, MXFP4QTensor and MXFP8QTensor keep it.
struct CompressedTensor {
  CompressedKind kind = CompressedKind::Int8;
  /// Sizes and dtype of the original tensor.
  Dims sizes{};
  DType dtype = DType::Float32;

  /// The codes. Int8 has Int8, Fp8 and MxFp8 have Float8E4M3FN, all of `sizes`; Int4, NvFp4 and
  /// MxFp4 have UInt8 with two codes a byte (the last size halved), Nf4 too, in one dimension.
  Tensor data{};
  /// Int8, Fp8: Float32, scalar, one for each index along the axis, or one for each block.
  /// Int4: Float32 [blocks, 1], what values were multiplied with. Nf4: Int8 [groups, scale block].
  /// NvFp4: Float8E4M3FN for each block. MxFp4: UInt8 [blocks, 1], MxFp8: UInt8 for each block,
  /// both exponents plus 127.
  Tensor scale{};
  /// NvFp4: Float32 scalar. Nf4: Float32 [groups].
  Tensor double_scale{};
  /// Nf4: the scales' mean, a scalar, and the scales before they were quantized.
  Tensor scale_zeros{};
  Tensor raw_scale{};
  /// Int8, Fp8: blocks by axis. Int4, Nf4, NvFp4, MxFp4, MxFp8: of the last axis, or of all
  /// elements in a row.
  BlockSizes block_sizes{};
  std::int64_t block_size = 0;

  /// The values in the original's dtype, up to what rounding took. Throws ArgumentError, naming the
  /// field, when the fields do not fit together.
  Tensor dequantize() const;
};

// All of these functions take Float32, Float64, Float16 or BFloat16 tensors with at least one
// element and finite values only. They throw ArgumentError, naming the size that does not suit. A
// tensor or block of zeros becomes zeros with scale 1 (Int8, Fp8, Int4, Nf4). A block is at most as
// long as what it is a block of, or kLongestPaddedBlock: the rest is padding. Threads may share
// tensors and compressed tensors that none of them changes.

/// Codes -128..127 with scale amax / 127, per tensor or for each index along the kept axes.
CompressedTensor quantize_int8(const Tensor& x, const Dims& axis = {});
/// Codes -128..127 with a scale for each block; data are cropped where blocks overlap the end.
CompressedTensor quantize_int8(const Tensor& x, const BlockSizes& block_sizes);
/// Float8 E4M3FN with scale amax / 448.
CompressedTensor quantize_fp8(const Tensor& x, const Dims& axis = {});
CompressedTensor quantize_fp8(const Tensor& x, const BlockSizes& block_sizes);
/// Codes -8..7 in blocks of the flattened tensor, the first of two in the high half of a byte. The
/// last size is even.
CompressedTensor quantize_int4(const Tensor& x, std::int64_t block_size);
/// Codes of the 16 NF4 values in blocks of the flattened tensor. Scales are quantized to
/// `scale_bits` bits (2..8) around their mean, in groups of `scale_block_size`. The number of
/// elements is even.
CompressedTensor quantize_nf4(const Tensor& x, std::int64_t block_size,
                              std::int64_t scale_block_size, std::int64_t scale_bits = 8);
/// E2M1 in blocks along the last axis, which they divide, with E4M3 scales and one factor for all:
/// amax / (6 * 448), of the tensor or given. The first of two codes is in the low half of a byte.
CompressedTensor quantize_nvfp4(const Tensor& x, std::int64_t block_size = 16,
                                std::optional<double> global_amax = std::nullopt);
/// E2M1 in blocks along the last axis, which they divide, with powers of two as scales. Ties go
/// down and zeros have the sign bit set, unlike NVFP4: so does the original.
CompressedTensor quantize_mxfp4(const Tensor& x, std::int64_t block_size = 32);
/// E4M3 in blocks of 32 along the last axis with powers of two as scales.
CompressedTensor quantize_mxfp8(const Tensor& x);
/// MXFP8 with given scales (UInt8, one for each block); 32 divides the last size.
CompressedTensor quantize_mxfp8_with_scale(const Tensor& x, const Tensor& scale);

/// The E2M1 codes of values: sign << 3 | index, ties to the even index; -0 is 0. UInt8.
Tensor cast_fp4(const Tensor& x);

enum class FirstNibble : bool { Low, High };
/// Two UInt8 codes below 16 in a byte, and back. The last size is even; throws ArgumentError
/// otherwise.
Tensor pack_nibbles(const Tensor& codes, FirstNibble first);
Tensor unpack_nibbles(const Tensor& bytes, FirstNibble first);

/// Says how MXFP4 blocks of 32 are kept as NVFP4 blocks of 16, without loss where that is possible.
struct NvFp4Conversion {
  double global_amax = 0.0;
  Tensor block_amax{};                ///< Float32, twice as many along the last axis as scales
  std::int64_t k_min = 0, k_max = 0;  ///< exponents of the scales that are not zero
  std::int64_t m = 0;                 ///< exponent of the factor
  std::int64_t n_total_blocks = 0, n_lossless_blocks = 0, n_zero_blocks = 0;
  double pct_lossless = 0.0;
};
/// `blocks`: UInt8 [..., 16], packed codes; `e8m0`: UInt8 [...]. Throws ArgumentError.
NvFp4Conversion mxfp4_to_nvfp4(const Tensor& blocks, const Tensor& e8m0);

}  // namespace quanta::modelopt
