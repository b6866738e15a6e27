#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "quanta/observers/fake_quantize.h"

namespace quanta {

struct LearnableFakeQuantizeOptions {
  ObserverFactory observer = MovingAverageMinMaxObserver::with_args();
  double scale = 1.0;
  double zero_point = 0.0;
  /// Channels of a per-channel observer. Without it they are counted at the first observation,
  /// which then has to come before an optimizer takes the parameters.
  std::optional<std::int64_t> channel_len = std::nullopt;
  bool use_grad_scaling = false;  ///< gradients times 1 / sqrt(elements * quant_max), as LSQ has it
  /// In the static modes the scale is 2 * mean |x| / sqrt(quant_max), of each channel or of all, as
  /// LSQ starts, instead of the observer's. Symmetric schemes with quant_max > 0 only.
  bool mean_magnitude_start = false;
};

void describe(LearnableFakeQuantizeOptions& options, SettingFields& fields);

/// A fake quantizer whose scale and zero point are parameters, trained with the network
/// (torch.ao.quantization._LearnableFakeQuantize). Three modes:
///
///   enable_static_estimate()     scale and zero point follow the observer (the mode at first)
///   enable_static_observation()  the same, but what passes is not changed
///   enable_param_learning()      they are trained; the observer rests
///
/// Module::named_parameters lists the two, so that requires_grad_() and optimizers find them, and
/// Module::to takes them along: they have to be where the input is. A scale below eps is raised to
/// it in place; symmetric schemes hold the zero point at 0.
/// State: scale, zero_point (Float32 [1] or [C]), fake_quant_enabled, observer_enabled,
/// static_enabled, learning_enabled (UInt8 [1]), eps, the observer's under activation_post_process.
///
/// One thread at a time in training; in eval mode with param learning any number.
class LearnableFakeQuantize : public FakeQuantizeBase {
 public:
  using Options = LearnableFakeQuantizeOptions;
  /// Throws ArgumentError for an empty factory, an observer with float zero points, a scale that is
  /// not > 0 and finite, channel_len < 1 or with a per-tensor observer, and mean_magnitude_start
  /// with another than a symmetric scheme.
  explicit LearnableFakeQuantize(const Options& options = {});
  static ObserverFactory with_args(const Options& options = {});

  std::string name() const override { return "LearnableFakeQuantize"; }
  Settings settings() const override;
  Tensor forward(const Tensor& x) override;
  /// Scale and zero point follow the observer, as in the static modes.
  void update(const Tensor& x) override;
  // As the observer's; scale and zero point follow what is absorbed.
  DigestKind digests() const override { return observer_->digests(); }
  Digest digest(const Tensor& x) const override;
  bool absorb(const Digest& digest) override;
  bool join(Digest& digest, const Digest& next) const override;
  void move_frame(const ValueRange& range) override { observer_->move_frame(range); }
  /// The parameters: scale, at least eps, and the zero point rounded into the range.
  ObservedQParams calculate_qparams() const override;
  /// Whether they rest on data or on training.
  bool has_data() const override;
  /// Resets the observer; scale and zero point stay.
  void reset() override { observer_->reset(); }
  void save_state(StateDict& state, const std::string& prefix) const override;
  void load_state(const StateDict& state, const std::string& prefix) override;
  /// Also of before any data, when there were no channels yet.
  void load_gathered(const StateDict& state, const std::string& prefix) override;
  std::vector<std::pair<std::string, Tensor>> named_parameters() const override;
  void replace_parameters(std::span<const Tensor> parameters) override;
  std::int64_t ch_axis() const noexcept override { return observer_->ch_axis(); }
  std::shared_ptr<Observer> observer() const override { return observer_; }

  void enable_param_learning();
  void enable_static_estimate();
  void enable_static_observation();
  /// Whether the observer sets scale and zero point.
  void enable_observer(bool on = true) override;
  bool is_observer_enabled() const override;
  bool is_learning_enabled() const;

  Tensor scale() const;
  Tensor zero_point() const;

 protected:
  LearnableFakeQuantize(const LearnableFakeQuantize& other);
  std::shared_ptr<Collector> copy() const override;

 private:
  struct Parameters {
    Tensor scale;
    Tensor zero_point;
  };
  // The parameters of one call: with the observer's values, or within bounds.
  Parameters observed(const Tensor& x);
  Parameters held();
  std::vector<float> start_scale(const Tensor& x) const;
  void follow(const std::vector<float>& start_scale);
  void take_over(const ObservedQParams& observed);
  void hold_bounds();
  void hold_symmetry();
  void require_defined(const Tensor& x) const;
  void set_learning(bool on);
  Parameters own_parameters() const;
  bool is_symmetric() const noexcept;

  std::shared_ptr<Observer> observer_;
  Parameters parameters_;  // the rest is guarded by mutex_
  Options options_;
  bool static_enabled_ = true;
  bool learning_enabled_ = false;
  bool has_data_ = false;
  float eps_ = 1.1920928955078125e-07F;
};

}  // namespace quanta
