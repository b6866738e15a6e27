#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "quanta/nn/aimet/quantizer.h"
#include "quanta/observers/aimet/grid.h"
#include "quanta/ops/quantize_affine.h"

namespace quanta::aimet {

struct AffineQuantizerOptions {
  /// The shape of scale and offset: empty for one of each, [C, 1, 1] for a channel axis, ...
  Dims shape{};
  /// Either bitwidth, or qmin and qmax. A grid from a bitwidth is signed if symmetric.
  std::optional<std::int64_t> bitwidth{};
  std::optional<std::int64_t> qmin{};
  std::optional<std::int64_t> qmax{};
  /// Has to be given.
  std::optional<bool> symmetric{};
  /// Null: MinMaxAnalyzer of the same shape and blocks.
  std::shared_ptr<EncodingAnalyzer> analyzer{};
  Dims block_size{};              ///< see AffineOptions
  double zero_point_shift = 0.0;  ///< 0 or 0.5
  AffineKernel kernel = AffineKernel::Automatic;
  AffineRounding rounding = AffineRounding::HalfEven;
};

/// Base of the affine quantizers. Its parameters are the ends of the range, `min` and `max`, from
/// which scale and offset follow (n = num_steps, z = zero_point_shift):
///
///   scale  = max(|(max - min) / n|, minimum_scale(n))
///   offset = symmetric: -round_half_even((qmin + qmax) / 2)
///            else: clamp(round_half_even(min / scale) - qmin, -qmax, -qmin)
///
/// All of it has gradients (rounding passes straight through); use_scale_offset() makes scale and
/// offset the parameters instead. As all parameters of modules these Float32 ones ask for gradients
/// once requires_grad_() was called. For threads see Quantizer.
class AffineQuantizer : public Quantizer {
 public:
  using Options = AffineQuantizerOptions;
  enum class Parametrization : std::uint8_t { MinMax, ScaleOffset };

  const Grid& grid() const noexcept { return grid_; }
  std::int64_t bitwidth() const { return grid_.bitwidth(); }
  /// Throws ArgumentError for a bitwidth outside 1..52, and for a grid that has none.
  void set_bitwidth(std::int64_t bitwidth);
  bool is_signed() const { return grid_.is_signed(); }
  void set_signed(bool is_signed) { grid_ = grid_.with_signed(is_signed); }
  bool symmetric() const noexcept { return symmetric_; }
  void set_symmetric(bool symmetric);
  double zero_point_shift() const noexcept { return zero_point_shift_; }

  /// Both parameters were written since the quantizer was made: by set_range, calibration,
  /// load_state_dict, or in place.
  bool is_initialized() const override;
  /// Calculated on the tape of the parameters; nothing before the quantizer is initialized.
  std::optional<Tensor> get_scale() const;
  std::optional<Tensor> get_offset() const;
  /// scale * (offset + qmin + z) and scale * (offset + qmax + z): the range on the grid.
  std::optional<Tensor> get_min() const;
  std::optional<Tensor> get_max() const;
  EncodingPtr encoding() const override;

  /// Writes one or both ends (broadcast to the shape). Throws ArgumentError for ends that do not
  /// broadcast, and for one end alone of an uninitialized quantizer by scale and offset.
  void set_range(const std::optional<Tensor>& min, const std::optional<Tensor>& max);
  void set_range(double min, double max);
  /// Whether calibration may change these ends (it may at first).
  void allow_overwrite(bool min, bool max) noexcept;

  void forget_range() override { reset_parameters(shape_, parametrization_); }

  Parametrization parametrization() const noexcept { return parametrization_; }
  /// Scale and (asymmetric) offset become the parameters, the range stays as it is:
  /// scale = max(|scale|, minimum_scale(n)), offset = round_half_even(offset).
  void use_scale_offset();

  std::string extra_repr() const override;

 protected:
  /// Throws ArgumentError: symmetric or the grid missing, bitwidth and qmin/qmax both given, a
  /// zero_point_shift other than 0 and 0.5, an analyzer whose shape cannot be expanded to `shape`.
  AffineQuantizer(std::string_view name, const Options& options);
  AffineQuantizer(const AffineQuantizer& other);

  void save_state(StateDict& state, const std::string& prefix) const override;
  void load_state(nn::StateReader& reader) override;
  void put_parameters(std::span<const Tensor> parameters) override;
  void make_room_for(const StateDict& state) override;
  bool can_calibrate() const override;
  Range range_of_batch(const Tensor& x) const override;
  Range range_of_all() const override;
  EncodingPtr encoding_of(const Range& range) const override;
  void take_range(const Range& range) override;
  void require_writable() const override;

  AffineOptions op_options() const;
  /// The scales as the range alone gives them; the hook for grouped blocks.
  virtual Tensor final_scale(const Tensor& raw) const { return raw; }
  /// Throws for a grid or symmetry that a subclass cannot have.
  virtual void require_settings(const Grid& grid, bool symmetric) const;
  virtual EncodingPtr make_encoding(const Tensor& raw_scale, const Tensor& offset) const;

 private:
  // What is known of a parameter: whether it was written by a function of the quantizer, and the
  // tensor and version that were not.
  struct Mark {
    bool written = false;
    Tensor tensor{};
    std::uint32_t version = 0;
  };
  static Mark mark_of(const Tensor& parameter, bool written);
  static bool is_written(const Tensor& parameter, const Mark& mark, double initial);
  bool first_written() const;
  bool second_written() const;
  bool by_range() const noexcept { return parametrization_ == Parametrization::MinMax; }
  // min or scale; max or offset, which is undefined for the offset of symmetric quantizers.
  const Tensor& first() const noexcept { return by_range() ? min_ : scale_; }
  const Tensor& second() const noexcept { return by_range() ? max_ : offset_; }
  void register_parameters();
  Tensor raw_scale() const;
  Tensor raw_offset(const Tensor& scale) const;
  Tensor symmetric_offset() const;
  std::int64_t analyzer_steps() const noexcept;
  void reset_parameters(const Dims& shape, Parametrization parametrization);
  enum class End : std::uint8_t { First, Second };
  void write(End end, const Tensor& value, std::string_view argument);

  Grid grid_;
  bool symmetric_;
  double zero_point_shift_;
  AffineKernel kernel_;
  AffineRounding rounding_;
  Parametrization parametrization_ = Parametrization::MinMax;
  Tensor min_, max_;       // undefined by scale and offset
  Tensor scale_, offset_;  // undefined by range
  Mark first_mark_, second_mark_;
  bool may_write_min_ = true;
  bool may_write_max_ = true;
};

/// Gives codes, as a QuantizedTensor.
class Quantize final : public AffineQuantizer {
 public:
  /// Throws ArgumentError for a zero_point_shift too.
  explicit Quantize(const Options& options);
  /// A quantizer with the range of an encoding, whose own encoding has the same scale and offset;
  /// where float32 has no range that gives exactly these it is by scale and offset. Throws
  /// ArgumentError for one that is not affine, a scale below the smallest (see AffineQuantizer),
  /// offsets that are not whole or beyond the grid, a symmetric one that is not in the middle.
  static std::shared_ptr<Quantize> from_encodings(const Encoding& encoding);
  using Quantizer::operator();
  /// An empty x has no encoding.
  QuantizedTensor operator()(const Tensor& x) const;
  std::shared_ptr<Quantizer> clone() const override;

 protected:
  std::string_view name() const override { return "Quantize"; }
  EncodedTensor apply(const Tensor& x, const EncodingPtr& encoding) const override;
};

/// Gives the values that the codes stand for, as a DequantizedTensor.
class QuantizeDequantize : public AffineQuantizer {
 public:
  explicit QuantizeDequantize(const Options& options)
      : AffineQuantizer("QuantizeDequantize", options) {}
  /// As Quantize::from_encodings. A GroupedBlockEncoding gives a GroupedBlockQuantizeDequantize.
  static std::shared_ptr<QuantizeDequantize> from_encodings(const Encoding& encoding);
  using Quantizer::operator();
  /// An empty x has no encoding.
  DequantizedTensor operator()(const Tensor& x) const;
  std::shared_ptr<Quantizer> clone() const override;

 protected:
  QuantizeDequantize(std::string_view name, const Options& options)
      : AffineQuantizer(name, options) {}
  std::string_view name() const override { return "QuantizeDequantize"; }
  EncodedTensor apply(const Tensor& x, const EncodingPtr& encoding) const override;
};

struct GroupedBlockOptions {
  AffineQuantizerOptions quantizer{};  ///< symmetric, with a bitwidth
  std::int64_t decompressed_bw = 8;
  /// How many blocks along each axis share a scale per channel; -1: all of them. Empty: all 1.
  Dims block_grouping{};
};

/// LPBQ: the scales of blocks are whole multiples of a scale that a group of blocks shares,
///
///   raw   = the scales that the ranges give
///   pcs   = max over each group of raw / 2^(decompressed_bw - bitwidth)
///   int_s = clamp(round_half_even(raw / pcs), 1, 2^(decompressed_bw - bitwidth))
///   scale = int_s * pcs
class GroupedBlockQuantizeDequantize final : public QuantizeDequantize {
 public:
  /// Throws ArgumentError: decompressed_bw < bitwidth, not symmetric, a grouping that does not
  /// divide the shape.
  explicit GroupedBlockQuantizeDequantize(const GroupedBlockOptions& options);
  /// As Quantize::from_encodings, of a GroupedBlockEncoding; the largest scale of each group has to
  /// be 2^(decompressed_bw - bitwidth) times the group's.
  static std::shared_ptr<GroupedBlockQuantizeDequantize> from_encodings(const Encoding& encoding);
  std::shared_ptr<Quantizer> clone() const override;
  std::int64_t decompressed_bw() const noexcept { return decompressed_bw_; }
  const Dims& block_grouping() const noexcept { return block_grouping_; }
  /// Nothing before the quantizer is initialized.
  std::optional<Tensor> per_channel_scale() const;
  std::optional<Tensor> per_block_int_scale() const;

 protected:
  std::string_view name() const override { return "GroupedBlockQuantizeDequantize"; }
  void save_state(StateDict& state, const std::string& prefix) const override;
  void load_state(nn::StateReader& reader) override;
  Tensor final_scale(const Tensor& raw) const override;
  /// Throws ArgumentError: more bits than decompressed_bw, not symmetric.
  void require_settings(const Grid& grid, bool symmetric) const override;
  EncodingPtr make_encoding(const Tensor& raw_scale, const Tensor& offset) const override;

 private:
  struct Groups {
    Tensor per_channel;  // of shape / grouping
    Tensor int_scale;
    Tensor scale;
  };
  Groups groups_of(const Tensor& raw) const;

  std::int64_t decompressed_bw_;
  Dims block_grouping_;
};

}  // namespace quanta::aimet
