#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "quanta/nn/aimet/quantizer.h"
#include "quanta/observers/aimet/float_encoding.h"

namespace quanta::aimet {

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
  /// With float4_e2m1fn: one number > 0. Scales become float8_e4m3fn numbers times it: NVFP4.
  /// Undefined: they do not.
  Tensor meta_scale{};
  FloatGradient gradient = FloatGradient::StraightThrough;
};

/// Quantizes to a floating format and back. Its buffer is `maxval`, of `shape`: the largest number
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
  /// fields, an unknown dtype, bits that FloatSpec::max refuses.
  explicit FloatQuantizeDequantize(const Options& options);
  FloatQuantizeDequantize(const FloatQuantizeDequantize& other) = default;
  /// A quantizer with the format and the scale of a float encoding, the latter as closely as
  /// maxval's logarithm in float32 gives it (exact for powers of two of float4_e2m1fn, and for
  /// NVFP4, whose meta scale it keeps). Throws ArgumentError for an encoding that is not float.
  static std::shared_ptr<FloatQuantizeDequantize> from_encodings(const Encoding& encoding);

  const FloatSpec& spec() const noexcept { return spec_; }
  std::int64_t bitwidth() const noexcept { return spec_.bitwidth(); }
  /// Undefined after loading a state without it; then the scale is 1.
  const Tensor& maxval() const noexcept { return maxval_; }
  /// Throws ArgumentError for sizes that do not broadcast to the shape, and for values that are not
  /// greater than 0.
  void set_maxval(const Tensor& maxval);
  Tensor get_scale() const;

  bool is_initialized() const override { return true; }
  /// maxval becomes the format's own again.
  void forget_range() override;
  EncodingPtr encoding() const override;
  std::string extra_repr() const override;
  using Quantizer::operator();
  /// An empty x has no encoding. Throws ArgumentError for an x that is not floating, which forward
  /// returns as it is.
  DequantizedTensor operator()(const Tensor& x) const;
  std::shared_ptr<Quantizer> clone() const override;

 protected:
  void save_state(StateDict& state, const std::string& prefix) const override;
  void load_state(nn::StateReader& reader) override;
  void make_room_for(const StateDict& state) override;
  std::string_view name() const override { return "FloatQuantizeDequantize"; }
  Range range_of_batch(const Tensor& x) const override;
  Range range_of_all() const override;
  EncodingPtr encoding_of(const Range& range) const override;
  void take_range(const Range& range) override;
  EncodedTensor apply(const Tensor& x, const EncodingPtr& encoding) const override;

 private:
  Tensor scale_of(const Tensor& maxval) const;
  void put_maxval(const Tensor& maxval);
  EncodingPtr encoding_with(const Tensor& scale) const;

  FloatSpec spec_;
  bool power_of_two_scale_;
  std::optional<float> meta_scale_;
  FloatGradient gradient_;
  Tensor maxval_;
};

/// A quantizer of the kind that an encoding is of, which gives values: QuantizeDequantize,
/// GroupedBlockQuantizeDequantize or FloatQuantizeDequantize. Throws as their from_encodings.
std::shared_ptr<Quantizer> quantizer_from(const Encoding& encoding);

}  // namespace quanta::aimet
