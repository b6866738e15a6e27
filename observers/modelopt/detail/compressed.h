#pragma once

// Private: what compressed tensors share.

#include <cstdint>
#include <string_view>

#include "quanta/observers/modelopt/compressed_tensor.h"

namespace quanta::modelopt::detail {

/// `x` as contiguous Float32. Throws ArgumentError `op: x: ...` for a dtype that is not floating,
/// no elements, or values that are not finite.
Tensor compressible(std::string_view op, const Tensor& x);

/// Throws ArgumentError `op: block_size: ...` below 1, and for a block that is longer than the
/// numbers there are and than kLongestPaddedBlock.
void check_block_size(std::string_view op, std::int64_t block_size, std::int64_t elements);

/// `x` with contiguous tensors. Its fields are public: throws ArgumentError `dequantize: FIELD: ...`
/// for those that do not fit its kind and sizes.
CompressedTensor checked(const CompressedTensor& x);

/// The first `sizes` of every axis.
Tensor crop(const Tensor& x, const Dims& sizes);

/// The elements in one row of blocks [blocks, block_size], zeros at the end.
Tensor flat_blocks(std::string_view op, const Tensor& x, std::int64_t block_size);

/// Rows of blocks [..., blocks, block_size]. Throws ArgumentError unless the last size is
/// divisible.
Tensor last_axis_blocks(std::string_view op, const Tensor& x, std::int64_t block_size);

/// The largest magnitude of every row of the last axis, which it loses.
Tensor row_amax(const Tensor& blocks);

/// Double quantization: scales as integers around their mean, in groups of a row.
struct ScaleCodes {
  Tensor raw;      ///< the scales, zeros behind the last one so that groups are whole
  Tensor zeros;    ///< their mean
  Tensor factors;  ///< [groups], what a scale's distance from the mean is multiplied with
  Tensor codes;    ///< Int8 [groups, scales of a group]
};
/// Throws ArgumentError `op: ...` unless bits is 2..8 and `group` at least 1.
ScaleCodes encode_scales(std::string_view op, const Tensor& scales, std::int64_t group,
                         std::int64_t bits);
/// Float32 [groups, scales of a group].
Tensor decode_scales(const Tensor& codes, const Tensor& factors, const Tensor& zeros);

Tensor dequantize_int8(const CompressedTensor& x);
Tensor dequantize_fp8(const CompressedTensor& x);
Tensor dequantize_int4(const CompressedTensor& x);
Tensor dequantize_nf4(const CompressedTensor& x);
Tensor dequantize_nvfp4(const CompressedTensor& x);
Tensor dequantize_mxfp4(const CompressedTensor& x);
Tensor dequantize_mxfp8(const CompressedTensor& x);

}  // namespace quanta::modelopt::detail
