#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "quanta/nn/aimet/quantizer.h"
#include "quanta/observers/fake_quantize.h"

namespace quanta {

/// Any of AIMET's quantizers as a fake quantizer of a QConfig:
///
///   aimet::QuantizeDequantize weights({.shape = {64, 1, 1, 1}, .bitwidth = 4, .symmetric = true});
///   QConfig qconfig{..., AimetFakeQuantize::with_args("w4", weights)};
///
/// Observing gathers statistics in a scope of compute_encodings that begins with the first tensor
/// and ends when values are quantized without observing, or parameters are asked for. With both
/// switched on (training) each tensor is quantized with the range of its own.
///
/// dtype, codes and scheme are those of an affine quantizer of up to 8 bits with one scale, or one
/// for each index of one axis, so that convert() makes int8 layers of them. Others stay Float32.
///
/// The quantizer's parameters are the network's, below `quantizer`: they are trained with it.
///
/// One thread at a time while observing. State: fake_quant_enabled, observer_enabled (UInt8 [1]),
/// the quantizer's under `quantizer`.
class AimetFakeQuantize : public FakeQuantizeBase {
 public:
  /// Works on a copy of `quantizer`.
  explicit AimetFakeQuantize(const aimet::Quantizer& quantizer);
  ~AimetFakeQuantize() noexcept override;
  /// `name` tells QConfigs apart. Every quantizer that is made is a copy of `quantizer`.
  static ObserverFactory with_args(std::string name, const aimet::Quantizer& quantizer);

  std::string name() const override { return "AimetFakeQuantize"; }
  Tensor forward(const Tensor& x) override;
  void update(const Tensor& x) override;
  /// As the analyzer's; without one there is nothing to look at.
  DigestKind digests() const override;
  Digest digest(const Tensor& x) const override;
  bool absorb(const Digest& digest) override;
  bool join(Digest& digest, const Digest& next) const override;
  void move_frame(const ValueRange& range) override;
  /// Scale and zero point (the negated offset) of an affine quantizer with one scale, or one for
  /// each index of one axis. Throws UnsupportedError for others.
  ObservedQParams calculate_qparams() const override;
  bool has_data() const override;
  /// Puts a copy of the quantizer that it was made of in the place of this one's; after load_state,
  /// one with the settings and sizes of the state and no range.
  void reset() override;
  void save_state(StateDict& state, const std::string& prefix) const override;
  /// dtype, codes and scheme follow. Throws as Quantizer::load_state_and_shape; what was gathered
  /// is dropped when nothing is wrong.
  void load_state(const StateDict& state, const std::string& prefix) override;
  /// Whether there is a scope, and what it has gathered; nothing of the quantizer.
  void save_gathered(StateDict& state, const std::string& prefix) const override;
  void load_gathered(const StateDict& state, const std::string& prefix) override;

  std::int64_t ch_axis() const noexcept override;
  std::vector<std::pair<std::string, Tensor>> named_parameters() const override;
  void replace_parameters(std::span<const Tensor> parameters) override;

  /// Works out the range from what was gathered, so that the next use writes it without an error.
  /// Whether anything came since the last scope ended that gives one. Throws as
  /// CalibrationScope::gather.
  bool gather();
  /// Drops what was gathered; the range stays as it was.
  void cancel_scope();

  /// Takes a copy of `quantizer`, of which a reset makes new ones from then on; dtype, codes and
  /// scheme follow. What was gathered is dropped.
  void set_quantizer(const aimet::Quantizer& quantizer);
  /// Until the next reset or set_quantizer.
  const aimet::Quantizer& quantizer() const noexcept { return *quantizer_; }

 protected:
  AimetFakeQuantize(const AimetFakeQuantize& other);
  std::shared_ptr<Collector> copy() const override;

 private:
  void end_scope() const;
  void drop_scope();  // under mutex_
  void describe();
  void begin_scope();  // under mutex_

  std::shared_ptr<const aimet::Quantizer> model_;
  std::shared_ptr<aimet::Quantizer> quantizer_;
  mutable std::optional<aimet::CalibrationScope> scope_;  // of quantizer_; guarded by mutex_
};

}  // namespace quanta
