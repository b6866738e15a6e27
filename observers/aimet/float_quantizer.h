#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "quanta/observers/aimet/float_format.h"
#include "quanta/observers/aimet/quantizer.h"

namespace quanta::aimet {

/// The gradient that reaches x.
enum class FloatGradient : std::uint8_t {
  /// AIMET's. For formats that are a dtype of torch the gradient takes the way of the values,
  /// cast(g * scale) / scale where |x / scale| <= max. For others it is 0: rounding has none.
  Aimet,
  StraightThrough,  ///< the incoming one where |x / scale| <= max, for all formats
};

/// y = cast(clamp(x / scale, -max, max)) * scale, with scales that are broadcast or belong to
/// blocks. `x` is Float32, Float16 or BFloat16 (calculated in float32); NaN stays NaN. Throws
/// ArgumentError for scales that do not fit x, and formats whose maximum is not known.
Tensor float_quantize_dequantize(const Tensor& x, const Tensor& scale, const FloatSpec& spec,
                                 const Dims& block_size = {},
                                 FloatGradient gradient = FloatGradient::Aimet);

/// real value = code * scale, with codes that are numbers of a floating format.
class FloatEncoding final : public Encoding {
 public:
  /// Throws ArgumentError for a format whose maximum is not known.
  FloatEncoding(Tensor scale, const FloatSpec& spec, Dims block_size = {});
  /// NVFP4: float4_e2m1fn whose scales are float8_e4m3fn numbers times `meta_scale` (one element).
  static std::shared_ptr<const FloatEncoding> nvfp4(Tensor scale, Tensor meta_scale,
                                                    Dims block_size);

  std::string_view mapping() const noexcept override { return "float"; }
  const FloatSpec& spec() const noexcept { return spec_; }
  std::int64_t bitwidth() const noexcept { return spec_.bitwidth(); }
  /// scale * max.
  Tensor maxval() const;
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

struct FloatQuantizerOptions {
  /// Either dtype, a name that FloatSpec::from_name knows, or both bit counts.
  std::optional<std::string> dtype{};
  std::optional<std::int64_t> exponent_bits{};
  std::optional<std::int64_t> mantissa_bits{};
  std::optional<bool> finite{};         ///< false
  std::optional<bool> unsigned_zero{};  ///< false
  Dims shape{};                         ///< the scale's sizes
  Dims block_size{};                    ///< see AffineOptions
  /// Null: MinMaxAnalyzer below 16 bits; with 16 bits or more none, and calibration does nothing.
  std::shared_ptr<EncodingAnalyzer> analyzer{};
  /// Scales become powers of two, 2^round_half_even(log2(maxval) - log2(max)): with float4_e2m1fn
  /// and blocks of 32 that is MXFP4.
  bool power_of_two_scale = false;
  FloatGradient gradient = FloatGradient::Aimet;
};

/// Quantizes to a floating format and back. Its state is `maxval`, of `shape`: the largest number
/// that is not clipped, at first the format's own (hence initialized from the start), from which
///
///   scale = exp2(log2(|maxval|) - log2(max))          in float32
///
/// Calibration sets maxval to max(|min|, |max|). maxval gets no gradient. For threads see
/// Quantizer.
class FloatQuantizeDequantize final : public Quantizer {
 public:
  using Options = FloatQuantizerOptions;
  /// Throws ArgumentError: neither dtype nor both bit counts, dtype beside any of the four other
  /// fields, an unknown dtype, a format whose maximum is not known.
  explicit FloatQuantizeDequantize(const Options& options);

  const FloatSpec& spec() const noexcept { return spec_; }
  std::int64_t bitwidth() const noexcept { return spec_.bitwidth(); }
  /// Undefined after loading a state without it; then the scale is 1.
  const Tensor& maxval() const noexcept { return maxval_; }
  /// Throws ArgumentError for sizes that do not broadcast to the shape, and for values that are not
  /// greater than 0.
  void set_maxval(const Tensor& maxval);
  Tensor get_scale() const;

  bool is_initialized() const override { return true; }
  EncodingPtr encoding() const override;
  std::string to_string() const override;
  void save_state(StateDict& state, const std::string& prefix) const override;
  void load_state(const StateDict& state, const std::string& prefix) override;
  std::shared_ptr<Quantizer> clone() const override;

 protected:
  std::string_view name() const override { return "FloatQuantizeDequantize"; }
  Range range_of_batch(const Tensor& x) const override;
  Range range_of_all() const override;
  EncodingPtr encoding_of(const Range& range) const override;
  void take_range(const Range& range) override;
  EncodedTensor apply(const Tensor& x, const EncodingPtr& encoding) const override;

 private:
  Tensor scale_of(const Tensor& maxval) const;

  FloatSpec spec_;
  bool power_of_two_scale_;
  FloatGradient gradient_;
  Tensor maxval_;
};

}  // namespace quanta::aimet
