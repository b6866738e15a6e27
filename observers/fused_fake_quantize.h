#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "quanta/observers/fake_quantize.h"

namespace quanta {

/// The values that fused_moving_avg_obs_fake_quant keeps between calls. Per tensor: running_min and
/// running_max 0-d or [1], +inf and -inf before data, scale and zero_point [1]; per row: [C], or
/// [0] before data. The tensors are replaced, never written to.
struct MovingAverageState {
  Tensor running_min;  ///< Float32
  Tensor running_max;
  Tensor scale;       ///< Float32
  Tensor zero_point;  ///< Int32
};

struct FusedFakeQuantOptions {
  double averaging_const = 0.01;
  std::int64_t quant_min = 0;
  std::int64_t quant_max = 255;
  std::int64_t ch_axis = 0;         ///< the axis of the rows; negative counts from the end
  bool per_row_fake_quant = false;  ///< a scale and zero point for each index along ch_axis
  bool symmetric_quant = false;
  bool observer_on = true;
  bool fake_quant_on = true;
};

/// Observes, chooses parameters and fake-quantizes, as torch.fused_moving_avg_obs_fake_quant:
///
///   observer on     running = isinf(running) ? batch
///                                            : running + averaging_const * (batch - running)
///   fake quant on   scale, zero_point = choose_qparams(running_min, running_max), the rule of
///                   dynamic quantization (symmetric: preserve_sparsity); then
///                   fake_quantize_per_tensor_affine or _per_channel_affine
///   fake quant off  x itself
///
/// The rule differs from the observers' calculate_qparams, which convert uses: symmetric scales of
/// 8 bits have 127 or 128 steps to a side, not 127.5; where all values have one sign the result is
/// affine; scales are at least 6.1e-5. Empty tensors change nothing. Throws ArgumentError for NaN
/// and infinite values under observation, and when there is nothing to choose parameters from; the
/// state is then as before. One thread at a time for each state.
Tensor fused_moving_avg_obs_fake_quant(const Tensor& x, MovingAverageState& state,
                                       const FusedFakeQuantOptions& options);

/// FakeQuantize around a MovingAverageMinMaxObserver or MovingAveragePerChannelMinMaxObserver whose
/// forward is fused_moving_avg_obs_fake_quant. calculate_qparams() is the observer's, as in torch.
/// The two switches of its state are Int64. Many threads may share one.
class FusedMovingAvgObsFakeQuantize : public FakeQuantize {
 public:
  /// Throws ArgumentError for an observer of another class or with float zero points.
  explicit FusedMovingAvgObsFakeQuantize(
      const ObserverFactory& observer = MovingAverageMinMaxObserver::with_args());
  static ObserverFactory with_args(
      const ObserverFactory& observer = MovingAverageMinMaxObserver::with_args());

  std::string name() const override { return "FusedMovingAvgObsFakeQuantize"; }
  Tensor forward(const Tensor& x) override;
  // FakeQuantize's works on the observer, as this class's forward does not.
  // NOLINTNEXTLINE(bugprone-parent-virtual-call)
  void update(const Tensor& x) override { FakeQuantizeBase::update(x); }
  Digest digest(const Tensor& x) const override;
  bool absorb(const Digest& digest) override;

 protected:
  FusedMovingAvgObsFakeQuantize(const FusedMovingAvgObsFakeQuantize&) = default;
  std::shared_ptr<Collector> copy() const override;
  DType switch_dtype() const override { return DType::Int64; }

 private:
  FusedFakeQuantOptions step_options(Switches on) const;
  RangeObserver& range_observer() const;
  void size_range(const Tensor& x);

  double averaging_constant_;
  // One step at a time: range, scale and zero point change together.
  mutable CollectorMutex step_mutex_;
};

}  // namespace quanta
