#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "quanta/observers/aimet/encoding.h"
#include "quanta/observers/aimet/float_format.h"

// What throws says so. Encodings are immutable values that threads share.

namespace quanta::aimet {

/// The gradient that reaches x.
enum class FloatGradient : std::uint8_t {
  StraightThrough,  ///< the incoming one where |x / scale| <= max, for all formats
  /// That of AIMET's release. For formats that are a dtype of torch the gradient takes the way of
  /// the values, cast(g * scale) / scale where |x / scale| <= max. For others it is 0: rounding has
  /// none.
  Aimet,
};

/// y = cast(clamp(x / scale, -max, max)) * scale, with scales that are broadcast or belong to
/// blocks. `x` is Float32, Float16 or BFloat16 (calculated in float32) or Float64 (calculated in
/// float64, but for the cast, which takes a float32); NaN stays NaN. Throws ArgumentError for scales
/// that do not fit x, and bits that FloatSpec::max refuses.
Tensor float_quantize_dequantize(const Tensor& x, const Tensor& scale, const FloatSpec& spec,
                                 const Dims& block_size = {},
                                 FloatGradient gradient = FloatGradient::StraightThrough);

/// real value = code * scale, with codes that are numbers of a floating format.
class FloatEncoding final : public Encoding {
 public:
  /// Throws ArgumentError for bits that FloatSpec::max refuses.
  FloatEncoding(Tensor scale, const FloatSpec& spec, Dims block_size = {});
  /// NVFP4: float4_e2m1fn whose scales are float8_e4m3fn numbers times `meta_scale` (one element).
  static std::shared_ptr<const FloatEncoding> nvfp4(Tensor scale, Tensor meta_scale,
                                                    Dims block_size);

  std::string_view mapping() const noexcept override { return "float"; }
  const FloatSpec& spec() const noexcept { return spec_; }
  Tensor offset() const override;
  std::int64_t bitwidth() const override { return spec_.bitwidth(); }
  bool is_signed() const override { return true; }
  /// scale * max.
  Tensor maxval() const;
  /// -maxval and maxval.
  Tensor min() const override;
  Tensor max() const override { return maxval(); }
  /// Undefined but for NVFP4.
  const Tensor& meta_scale() const noexcept { return meta_scale_; }
  /// float4_e2m1fn with scales that all are powers of two, 2^-127..2^127.
  bool is_mxfp4() const;

  /// cast(clamp(x / scale, -max, max)). Throws UnsupportedError when x asks for a gradient.
  Tensor quantize(const Tensor& x) const override;
  Tensor dequantize(const Tensor& codes) const override;
  /// Throws ArgumentError: the codes are no integers.
  DType integer_dtype() const override;
  EncodingPtr scaled_by(double factor) const override;
  EncodingPtr to(DType dtype) const override;

 private:
  FloatSpec spec_;
  Tensor meta_scale_;
};

}  // namespace quanta::aimet
