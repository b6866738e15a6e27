#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/observers/fake_quantize.h"
#include "quanta/observers/modelopt/calibrator.h"
#include "quanta/observers/modelopt/compressed_tensor.h"
#include "quanta/observers/modelopt/histogram_calibrator.h"
#include "quanta/observers/modelopt/quant_descriptor.h"
#include "quanta/observers/modelopt/quantizer_config.h"

namespace quanta::modelopt {

namespace detail {
class BlockShape;
}

/// ModelOpt's TensorQuantizer: quantizes and dequantizes what passes, as its config says.
///
///   TensorQuantizer quantizer(QuantizerConfig::from_dict(ConfigValue::dict(
///       {{"num_bits", 4}, {"block_sizes", ConfigValue::dict({{-1, 32}})}})));
///   quantizer.enable_calib();
///   quantizer.disable_quant();
///   for (const Tensor& x : data) quantizer.forward(x);
///   quantizer.load_calib_amax();
///   quantizer.enable_quant();
///   quantizer.disable_calib();
///   Tensor y = quantizer.forward(x);
///
/// forward, in this order: times pre_quant_scale, rotated, split into blocks, collected by the
/// calibrator, quantized, joined and rotated back. Gradients go straight through; with
/// pass_through_bwd=False, and for a quantizer of a descriptor, they are 0 beyond amax. Empty
/// tensors pass.
///
///   num_bits         calculated by
///   integer          fake_tensor_quant
///   (4,3)            scaled_e4m3
///   (2,1)            static_fp4; block scales in E4M3 with block_sizes scale_bits (4,3)
///   dynamic blocks   dynamic_block_quant; with an amax for scale_bits (4,3) only
///
/// amax is the one that was set, else that of the calibrator. With type dynamic it is that of the
/// tensor itself; dynamic blocks with scale_bits (4,3) take that where none was set. Whichever it
/// is, the descriptor's scale_amax multiplies it.
///
/// With learn_amax (a descriptor's) the amax that is set, or taken over by load_calib_amax(), is a
/// parameter: a leaf that asks for gradients, which named_parameters() lists and set_amax() changes
/// in place. The elements beyond it pass it their gradient, and a step that takes it below 0 is
/// undone at the next forward. Module::to takes it along.
///
/// The scales of static blocks are floats, or with scale_bits (4,3) float8 multiples of the
/// tensor's. Integer scale_bits quantize them around their mean (double quantization), in groups of
/// scale_block_sizes blocks in a row ({-1: 256}; all are one group without): as compress() does for
/// NF4, whose elements are those of a table while these are integers.
///
/// Blocks may lie along several axes. Static ones fix the shape of what passes: that of the first
/// call that goes well, which others wait for. Sizes that are all None keep amax for the other axes
/// instead. With fake_quant=False values pass through real compressed storage, without gradients.
///
/// amax, bias and pre_quant_scale stay on the CPU and are copied to the device of what passes;
/// histograms, biases and compressed storage take the CPU alone.
///
/// In a QConfig it observes and quantizes: with_args() gives one that calibrates and uses what the
/// calibrator has seen so far. Integers of 2..8 bits per tensor or along one axis convert to QInt8
/// (unsigned: QUInt8). Many threads may share one.
class TensorQuantizer : public FakeQuantizeBase {
 public:
  /// Quantizes, does not calibrate. Throws ArgumentError as QuantizerConfig::check does, and
  /// UnsupportedError for calibrator descriptions other than names, formats that are none of the
  /// above, and fields that would have no effect: a backend and its arguments, effective_bits,
  /// trt_high_precision_dtype, settings of a rotation that is off, unsigned and narrow_range with
  /// floats, scale_block_sizes without integer scale_bits, a constant amax where amax is dynamic or
  /// with fake_quant=False, ...
  explicit TensorQuantizer(QuantizerConfig config = {});
  /// From a descriptor: its amax is set, calib_method is the calibrator. Throws as the other one and
  /// as ScaledQuantDescriptor::check; UnsupportedError for an amax or learn_amax where amax is
  /// dynamic, and with fake_quant=False; scale_amax with the latter, and in dynamic blocks with
  /// scale_bits other than (4,3).
  explicit TensorQuantizer(const ScaledQuantDescriptor& descriptor);
  ~TensorQuantizer() override;
  static ObserverFactory with_args(const QuantizerConfig& config = {});
  /// learn_amax needs an amax to start from: throws ArgumentError without one.
  static ObserverFactory with_args(const ScaledQuantDescriptor& descriptor);

  std::string name() const override { return "TensorQuantizer"; }
  Settings settings() const override;
  /// Throws ArgumentError for a shape other than the first with static blocks, and when values are
  /// to be quantized without any amax, or a static bias: nothing that was set or calibrated, and type
  /// static.
  Tensor forward(const Tensor& x) override;

  const QuantizerConfig& config() const noexcept { return config_; }

  // States -----------------------------------------------------------------------------------
  void enable() { set_disabled(false); }
  void disable() { set_disabled(true); }
  bool is_enabled() const;
  void enable_quant() { enable_fake_quant(true); }
  void disable_quant() { enable_fake_quant(false); }
  /// Does nothing for type dynamic.
  void enable_calib() { enable_observer(true); }
  void disable_calib() { enable_observer(false); }
  void enable_observer(bool on = true) override;

  // Parameters -------------------------------------------------------------------------------
  /// The amax that was set or loaded, before scale_amax; undefined if there is none, and for dynamic
  /// blocks that need none.
  Tensor amax() const;
  /// Throws ArgumentError for negative, NaN or infinite values, and for another shape than before;
  /// UnsupportedError where amax is dynamic or constant, and with fake_quant=False.
  void set_amax(const Tensor& amax);
  std::vector<std::pair<std::string, Tensor>> named_parameters() const override;
  void replace_parameters(std::span<const Tensor> parameters) override;
  void reset_amax();
  /// Takes over what the calibrator has found. Without data: ArgumentError if strict, else NaN,
  /// that is, no amax. Histogram: with this method.
  enum class Strict : bool { No, Yes };
  void load_calib_amax(Strict strict = Strict::Yes,
                       HistogramMethod method = HistogramMethod::Entropy,
                       const HistogramSearch& search = {});
  Tensor pre_quant_scale() const;
  void set_pre_quant_scale(const Tensor& scale);
  /// What the float8 scales of static blocks refer to (scale_bits (4,3)), before scale_amax, and the
  /// factor of compressed NVFP4; the largest amax of all blocks until it is set. One element. Throws
  /// ArgumentError for other sizes and values as set_amax does, UnsupportedError for other scales.
  void set_global_amax(const Tensor& amax);

  /// The largest code: 2^(b-1+unsigned)-1, 448 for (4,3), 6 for (2,1), ...
  double maxbound() const;
  /// amax (times scale_amax) / (2^(b-1+unsigned)-1). Throws ArgumentError without amax, UnsupportedError for floats.
  Tensor step_size() const;
  /// amax (times scale_amax) for other programs: no zeros and NaN (maxbound instead), within float32's normal range;
  /// per tensor [1], along one axis [n], static blocks of rows [..., blocks of a row]. Throws
  /// ArgumentError without amax.
  Tensor export_amax() const;

  /// Real compressed storage, by num_bits and block_sizes: scale_bits (8,0) and dynamic with (2,1)
  /// or (4,3): MXFP4, MXFP8 (32); (4,3): FP8; 8: INT8; 4: INT4, with scale_bits 8 and
  /// scale_block_sizes NF4; (2,1) with scale_bits (4,3): NVFP4. Throws UnsupportedError for others:
  /// integer scale_bits are for 4 bits in blocks of the last axis alone. An amax that was set or
  /// calibrated is for fake quantization, a compressed tensor has that of its values; so a constant
  /// amax and scale_amax throw UnsupportedError as well.
  CompressedTensor compress(const Tensor& x) const;

  ObservedQParams calculate_qparams() const override;
  bool has_data() const override;
  /// What forward gives the calibrator: x scaled, rotated and split into blocks.
  void update(const Tensor& x) override;
  /// As the calibrator's; None with a static bias: what the calibrator sees depends on the bias of the
  /// tensors before.
  DigestKind digests() const override;
  Digest digest(const Tensor& x) const override;
  bool absorb(const Digest& digest) override;
  bool join(Digest& digest, const Digest& next) const override;
  void move_frame(const ValueRange& range) override;
  /// Forgets amax and what the calibrator has seen.
  void reset() override { reset_amax(); }
  /// Merges the calibrators; amax that was set stays. Throws ArgumentError for static blocks of
  /// another shape.
  void merge(const Collector& other) override;
  std::int64_t ch_axis() const noexcept override;
  /// fake_quant_enabled, observer_enabled; _amax, _pre_quant_scale and _global_amax if there; what a
  /// static bias was calibrated with under `bias_calibrator`. load_state throws as set_amax and
  /// set_global_amax do, but for the shape of amax.
  void save_state(StateDict& state, const std::string& prefix) const override;
  void load_state(const StateDict& state, const std::string& prefix) override;
  /// Also what the calibrator has seen, and for which shape.
  void save_gathered(StateDict& state, const std::string& prefix) const override;
  void load_gathered(const StateDict& state, const std::string& prefix) override;

  /// "8 bit narrow fake axis=0 amax=[a, b](n) *0.9 learned calibrator=MaxCalibrator quant", or
  /// "disabled".
  std::string to_string() const;

 protected:
  TensorQuantizer(const TensorQuantizer& other);
  std::shared_ptr<Collector> copy() const override;

 private:
  void start();
  void set_disabled(bool disabled);
  bool has_dynamic_blocks() const;
  bool is_mx() const;
  bool needs_no_amax() const;
  bool is_block_format() const;
  void check_amax(const Tensor& amax) const;
  void check_global_amax(const Tensor& amax) const;
  const BlockSizes* split_sizes() const;
  Dims kept_axes(std::int64_t dim) const;
  std::unique_lock<std::mutex> wait_for_shape() const;
  std::shared_ptr<const detail::BlockShape> shape_for(const Dims& input) const;
  void keep_shape(const std::shared_ptr<const detail::BlockShape>& shape);
  Tensor prepared(const Tensor& x) const;
  void collect(const Tensor& values, const detail::BlockShape* shape);
  Digest digest_of(const Tensor& values, const detail::BlockShape* shape) const;
  bool take_in(const Digest& digest, const detail::BlockShape* shape);
  bool has_static_bias() const;
  std::shared_ptr<Calibrator> calibrator_for(const Dims& input,
                                             const detail::BlockShape* shape) const;
  void take_amax(const Tensor& values);
  Tensor scaled(const Tensor& amax) const;
  Tensor host_amax() const;
  Tensor global_amax() const;
  Tensor amax_for(const Tensor& values, const detail::BlockShape* shape) const;
  Tensor bias_for(const Tensor& values) const;
  Tensor with_rounded_scales(const Tensor& amax) const;
  Tensor quantize(const Tensor& values, const detail::BlockShape* shape) const;
  Tensor quantize_dynamic_blocks(const Tensor& x) const;
  Tensor rotated(const Tensor& x) const;
  void reset_calibrator();
  void set_integer_dtype();

  mutable CollectorMutex shape_mutex_;  // locked before mutex_
  QuantizerConfig config_;
  bool learn_amax_ = false;
  std::optional<double> scale_amax_;
  // Guarded by mutex_; tensors are replaced, never written to, but for a learned amax.
  bool disabled_ = false;
  Tensor amax_, pre_quant_scale_, global_amax_;
  std::shared_ptr<Calibrator> calibrator_;
  std::shared_ptr<BiasCalibrator> bias_calibrator_;
  std::shared_ptr<const detail::BlockShape> shape_;
};

/// Several quantizers one after the other, as ModelOpt's SequentialQuantizer (int4 blocks, then
/// fp8): properties are those of the first. Many threads may call forward.
class SequentialQuantizer {
 public:
  /// Throws ArgumentError for none, and for a null one.
  explicit SequentialQuantizer(std::vector<std::shared_ptr<TensorQuantizer>> quantizers);
  Tensor forward(const Tensor& x) const;
  TensorQuantizer& first() const { return *quantizers_.front(); }
  const std::vector<std::shared_ptr<TensorQuantizer>>& quantizers() const { return quantizers_; }

 private:
  std::vector<std::shared_ptr<TensorQuantizer>> quantizers_;
};

}  // namespace quanta::modelopt
