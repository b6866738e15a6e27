#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "quanta/observers/aimet/grid.h"
#include "quanta/runtime/dims.h"
#include "quanta/runtime/tensor.h"

namespace quanta::aimet {

class Encoding;
using EncodingPtr = std::shared_ptr<const Encoding>;

/// Maps the values of a tensor to codes and back: an immutable value, shared by the tensors that
/// carry it, and by threads. AffineEncoding, GroupedBlockEncoding and FloatEncoding.
class Encoding {
 public:
  virtual ~Encoding() = default;
  Encoding& operator=(const Encoding&) = delete;

  /// "affine" or "float".
  virtual std::string_view mapping() const noexcept = 0;
  /// "pertensor", "perchannel", "blockwise", or "unknown".
  std::string_view granularity() const noexcept;
  const Tensor& scale() const noexcept { return scale_; }
  /// real value = (code + offset) * scale, of the sizes of scale; 0 for float encodings.
  virtual Tensor offset() const = 0;
  /// The bits of a code. Throws ArgumentError for a grid that has none (-127..127).
  virtual std::int64_t bitwidth() const = 0;
  /// Whether codes can be negative: AIMET's `signed`. Throws ArgumentError as bitwidth().
  virtual bool is_signed() const = 0;
  /// The least and the largest value that has a code, of the sizes of scale.
  virtual Tensor min() const = 0;
  virtual Tensor max() const = 0;
  /// Empty: none. See AffineOptions.
  const Dims& block_size() const noexcept { return block_size_; }

  /// To codes and back, in the dtype of x; scales are converted to it first. Differentiable, but
  /// for the codes of float encodings (UnsupportedError).
  virtual Tensor quantize(const Tensor& x) const = 0;
  virtual Tensor dequantize(const Tensor& codes) const = 0;
  /// The dtype that holds the codes. Throws ArgumentError for float encodings.
  virtual DType integer_dtype() const = 0;
  /// The encoding of values that are `factor` times as large with the same codes; null if none is.
  virtual EncodingPtr scaled_by(double factor) const = 0;
  /// The encoding with scales of another dtype. Throws ArgumentError unless that is floating.
  virtual EncodingPtr to(DType dtype) const = 0;

 protected:
  /// Throws ArgumentError for a scale that is undefined or not floating.
  Encoding(std::string_view name, Tensor scale, Dims block_size);
  Encoding(const Encoding&) = default;

  Tensor scale_;
  Dims block_size_;
};

struct AffineEncodingOptions {
  bool symmetric = false;
  Dims block_size{};
  double zero_point_shift = 0.0;  ///< 0 or 0.5
  std::string producer{};         ///< who made it; only kept
};

/// real value = (code + offset) * scale, with codes on an integer grid; the offset is the negated
/// zero point.
class AffineEncoding : public Encoding {
 public:
  using Options = AffineEncodingOptions;
  /// `offset` has the sizes of `scale`. Throws ArgumentError for anything else.
  AffineEncoding(Tensor scale, Tensor offset, const Grid& grid, Options options = {});

  /// The parameters of `x`: per tensor, or per channel (scale of [C, 1, ..., 1]).
  static std::shared_ptr<const AffineEncoding> from_quantizer(const QTensor& x);

  std::string_view mapping() const noexcept override { return "affine"; }
  Tensor offset() const override { return offset_; }
  std::int64_t bitwidth() const override { return grid_.bitwidth(); }
  bool is_signed() const override { return grid_.is_signed(); }
  const Grid& grid() const noexcept { return grid_; }
  std::int64_t num_steps() const noexcept { return grid_.num_steps(); }
  bool symmetric() const noexcept { return options_.symmetric; }
  double zero_point_shift() const noexcept { return options_.zero_point_shift; }
  const std::string& producer() const noexcept { return options_.producer; }
  /// (offset + qmin) * scale and (offset + qmax) * scale.
  Tensor min() const override;
  Tensor max() const override;

  Tensor quantize(const Tensor& x) const override;
  Tensor dequantize(const Tensor& codes) const override;
  DType integer_dtype() const override { return grid_.integer_dtype(); }
  /// scale * |factor|; for a negative factor the offset becomes -qmax - qmin - offset. Null for a
  /// negative factor on a symmetric encoding whose qmin + qmax is odd, and for 0.
  EncodingPtr scaled_by(double factor) const override;
  EncodingPtr to(DType dtype) const override;

 protected:
  const Options& options() const noexcept { return options_; }

 private:
  Tensor offset_;
  Grid grid_;
  Options options_;
};

/// An affine encoding whose scales are whole multiples (1..2^(decompressed - stored bitwidth)) of a
/// scale for each group of blocks: LPBQ.
class GroupedBlockEncoding final : public AffineEncoding {
 public:
  struct Groups {
    Dims block_grouping;
    std::int64_t decompressed_bw = 8;
    Tensor per_channel_scale;
    Tensor per_block_int_scale;  ///< whole numbers, of the sizes of scale
  };
  /// The scale is per_block_int_scale * per_channel_scale. Symmetric only.
  GroupedBlockEncoding(Tensor scale, Tensor offset, const Grid& grid, Dims block_size,
                       Groups groups);

  const Groups& groups() const noexcept { return groups_; }
  EncodingPtr scaled_by(double factor) const override;
  EncodingPtr to(DType dtype) const override;

 private:
  Groups groups_;
};

/// The codes of `x` with affine parameters on the integer grid of `dtype` (QUInt8, QInt8, QInt32)
/// as a QTensor, without loss. Throws ArgumentError where QTensor cannot hold it: blocks, a shift,
/// codes beyond the dtype, offsets that are no whole numbers of its range.
QTensor to_qtensor(const Tensor& codes, const AffineEncoding& encoding);

}  // namespace quanta::aimet
