#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "quanta/observers/fake_quantize.h"
#include "quanta/ops/block_quant.h"

namespace quanta {

/// How a FormatFakeQuantize rounds values.
enum class FormatKind : std::uint8_t {
  /// A small float with one scale for the tensor, so that the largest magnitude seen (amax) is the
  /// format's largest number: (4,3) or (5,2).
  ScaledFloat,
  /// Blocks with a scale each, from the values that pass: see dynamic_block_quant. With scale_bits
  /// (4,3) the scales are multiples of a factor that follows from amax.
  DynamicBlocks,
  /// Integers in blocks, each with a float32 scale from the values that pass: see
  /// fake_tensor_quant.
  IntegerBlocks,
};

/// The direction in which blocks run: the values that are multiplied and summed up with each other.
enum class BlockAxis : std::uint8_t {
  Rows,      ///< for weights: all values of an index along axis 0, in order
  Channels,  ///< for activations: axis 1 of tensors with four or five axes, else the last one
};

struct FormatOptions {
  FormatKind kind = FormatKind::ScaledFloat;
  NumBits num_bits = NumBits::floating(4, 3);
  NumBits scale_bits = NumBits::floating(8, 0);  ///< DynamicBlocks only
  std::int64_t block_size = 32;                  ///< not for ScaledFloat
  BlockAxis block_axis = BlockAxis::Channels;

  bool operator==(const FormatOptions&) const = default;
};

/// Number formats other than integers with a zero point, as fake quantizers:
///
///   QConfig fp8{FormatFakeQuantize::with_args({}), FormatFakeQuantize::with_args({})};
///
/// Where the format needs amax, observing keeps the largest magnitude of all tensors; throws
/// ArgumentError for NaN and infinity, and when values are to be quantized before any was observed.
/// Gradients go straight through, in ScaledFloat where |x| <= amax. Values stay in the dtype of x
/// (Float32, Float64, Float16, BFloat16). There is no scale and zero point of codes:
/// calculate_qparams() throws UnsupportedError, so convert refuses such modules.
///
/// State: fake_quant_enabled, observer_enabled (UInt8 [1]), amax (Float32 [1], -1 before data).
/// Many threads may share one.
class FormatFakeQuantize : public FakeQuantizeBase {
 public:
  using Options = FormatOptions;
  /// Throws ArgumentError for block sizes < 1, UnsupportedError for bits that the kind has not.
  explicit FormatFakeQuantize(const Options& options = {});
  static ObserverFactory with_args(const Options& options = {});

  std::string name() const override { return "FormatFakeQuantize"; }
  Settings settings() const override;
  Tensor forward(const Tensor& x) override;
  /// Keeps the largest magnitude, where the format needs one.
  DigestKind digests() const override { return DigestKind::Alone; }
  Digest digest(const Tensor& x) const override;
  bool absorb(const Digest& digest) override;
  ObservedQParams calculate_qparams() const override;
  /// Always where the format needs no amax.
  bool has_data() const override;
  void reset() override;
  void merge(const Collector& other) override;
  void save_state(StateDict& state, const std::string& prefix) const override;
  void load_state(const StateDict& state, const std::string& prefix) override;

  const Options& options() const noexcept { return options_; }
  /// The largest magnitude seen; -1 before data.
  float amax() const;

 protected:
  FormatFakeQuantize(const FormatFakeQuantize& other);
  std::shared_ptr<Collector> copy() const override;

 private:
  bool needs_amax() const noexcept;
  Tensor quantized(const Tensor& x) const;
  Tensor scaled_float(const Tensor& x) const;
  Tensor blocks(const Tensor& rows) const;

  Options options_;
  float amax_ = -1.0F;  // guarded by mutex_
};

}  // namespace quanta
